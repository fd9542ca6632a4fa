/* SPDX-License-Identifier: Apache-2.0 */
/* A test bed for the built library: preloaded, over a simulated machine and in a container of the
 * test's own. The body of a BED_TEST runs in a program of its own under that environment; a process
 * that it forks before its first CUDA call is one more process of the container. */
#ifndef VGPU_TEST_BED_H
#define VGPU_TEST_BED_H

#include "check.h"
#include "vgpu/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define BED_ENVIRONMENT_MAX 8

struct bed {
    const char *limit;  /* CUDA_DEVICE_MEMORY_LIMIT; NULL: none */
    const char *sim;    /* the machine's description; NULL: one H200 */
    const char *before; /* preloaded before libvgpu.so, by its path in the build directory */
    const char *behind; /* and behind it */
    const char *driver; /* searched for libcuda before src/sim, in the build directory */
    bool native;        /* without libvgpu.so */
    bool no_driver;     /* without src/sim: there is no libcuda and no NVML to load */
    bool boards;        /* VGPU_BOARD_DIR is the test's own directory */
    const char *environment[BED_ENVIRONMENT_MAX]; /* "NAME=VALUE"; "NAME": taken out */
};

/* BED_TEST("a refusal is an error code", .limit = "1GiB") { ... }
 * VGPU_TEST_LEDGER=rm, api or no-rm chooses the ledger. VGPU_TEST_DRIVER adds words to each test's
 * machine, under which the ledger VGPU_TEST_EXPECT is to count; a test that needs a function that
 * the driver lacks is then skipped. */
#define BED_TEST(sentence, ...) BED_TEST_AT(sentence, __LINE__, __VA_ARGS__)
#define BED_TEST_AT(sentence, line, ...) BED_TEST_NAMED(sentence, line, __VA_ARGS__)
#define BED_TEST_NAMED(sentence, line, ...)                                                        \
    static void bed_body_##line(void);                                                             \
    TEST(sentence)                                                                                 \
    {                                                                                              \
        const struct bed bed = {__VA_ARGS__};                                                      \
        char skip_reason[200] = "";                                                                \
        if (bed_directory())                                                                       \
            bed_body_##line();                                                                     \
        else if (CHECK_EQ(bed_repeat(&bed, sentence, skip_reason), 0) && skip_reason[0])           \
            SKIP(skip_reason);                                                                     \
    }                                                                                              \
    static void bed_body_##line(void)

/* Runs the calling program's test of that sentence under the bed and passes its remarks on. Returns
 * 0 where it passed; ret_reason is then filled if it was skipped. */
int bed_repeat(const struct bed *bed, const char *sentence, char ret_reason[200]);

/* The program under the bed, with what it printed on both streams in `output`; its wait status. */
int bed_run(const struct bed *bed, char *const argv[], char *output, size_t output_bytes);

/* `path` in the build directory, as "src/sim"; on the heap. */
char *bed_build_path(const char *path);

/* The test's own directory, which is removed afterwards; NULL outside of a bed. */
const char *bed_directory(void);

/* Inside: which ledger is to count: "rm" or "api". */
const char *bed_ledger(void);

/* Inside: what was written to stderr so far. */
const char *bed_stderr(void);
/* How many lines of it contain the text. */
int bed_stderr_lines(const char *text);

/* The container's region, mapped; NULL while there is none. */
struct vgpu_region *bed_region(void);

/* The bytes that all live slots hold on a device of the region. */
uint64_t bed_region_bytes(unsigned device);

/* The live slot of a process; NULL where it has none. */
const struct vgpu_slot *bed_region_slot(pid_t pid);

/* The bytes that the card has given out to all processes, whoever they are. */
uint64_t bed_card_bytes(unsigned index);
/* What it could still give. */
uint64_t bed_card_free(unsigned index);

/* Runs the function in a forked process. */
pid_t bed_fork(void (*body)(void *argument), void *argument);
/* Waits for it; true where it ended with status 0. */
bool bed_ended_well(pid_t pid);

void bed_sleep_ms(unsigned milliseconds);

/* A driver function by its exported name, as a program gets it: dlopen, dlsym. NULL only where
 * VGPU_TEST_DRIVER names a driver that lacks it. */
void *bed_cuda(const char *name);
void *bed_nvml(const char *name);

static inline void *bed_needed(void *function, const char *name)
{
    char reason[128];
    snprintf(reason, sizeof(reason), "the driver has no %s", name);
    if (!function && check_shared)
        SKIP(reason);
    if (!function)
        _exit(CHECK_EXIT_SKIPPED);
    return function;
}
#define CU(name) ((__typeof__(name) *)bed_needed(bed_cuda(#name), #name))
#define ML(name) ((__typeof__(name) *)bed_needed(bed_nvml(#name), #name))

/* cuInit and the primary context of the ordinal, current. */
void bed_context(int ordinal);

#endif
