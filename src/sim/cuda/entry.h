/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One row per exported function: what every call does first (count, fail on demand, refuse
 * before cuInit, in a forked child, without a context, during a capture) is written once.
 */
#ifndef VGPU_SIM_CUDA_ENTRY_H
#define VGPU_SIM_CUDA_ENTRY_H

#include <stdbool.h>

#include "abi/cuda.h"

enum {
    ENTRY_ANYTIME = 1,    /* answers before cuInit */
    ENTRY_CONTEXT = 2,    /* needs a current context */
    ENTRY_UNSAFE = 4,     /* refused while a capture forbids potentially unsafe calls */
    ENTRY_PER_THREAD = 8, /* stream 0 means the thread's own stream */
};

struct cuda_entry {
    const char *name;
    void (*body)(void);
    void (*own)(void); /* the exported function, under a name that nothing can stand in for */
    unsigned flags;
    int since; /* CUDA version that brought it, 0: always there */
    unsigned long long calls;
};

/* NULL if there is no such export. */
struct cuda_entry *cuda_entry_find(const char *name);

/* Entry points that the described driver lacks, by version or by behaviour, answer NOT_SUPPORTED
 * and cuGetProcAddress does not find them; dlsym always does. Done once, at the first call. */
void cuda_description_load(void);
/* -errno if the pretend machine could not be attached. */
int cuda_attach_error(void);

/* Inside a body: was the call made through a per-thread-stream twin? */
bool cuda_entry_per_thread(void);

/* After a fork, in the child, and only if the driver was initialised. */
bool cuda_forked(void);
bool cuda_initialised(void);
void cuda_initialised_set(void);

#define BODY(name, flags) __typeof__(name) sim_##name __attribute__((visibility("hidden")));
#define TWIN(name, of, flags)
#define ABSENT(name)
#include "sim/cuda/entries.def"
#undef BODY
#undef TWIN
#undef ABSENT

#endif
