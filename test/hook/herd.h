/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that allocate and free all kinds of memory at random, and keep their own reckoning in
 * shared words. */
#ifndef VGPU_TEST_HERD_H
#define VGPU_TEST_HERD_H

#include "allocate.h"
#include "bed.h"
#include "sim/machine/machine.h"

#define HERD_WORKERS_MAX 64
#define HERD_THREADS_MAX 4

#define HERD_CONTEXT_BYTES (520 * MIB) /* by the API ledger; less by the other */

/* The low part of herd->pause. */
enum herd_pause {
    HERD_RUN,
    HERD_PAUSE,       /* stand still */
    HERD_PAUSE_EMPTY, /* and hold nothing but the context */
    HERD_PAUSES,
};

struct herd_thread {
    int paused; /* the value of herd->pause that it stands at */
    uint64_t progress;
    uint64_t least_bytes, most_bytes; /* what it may be charged for what it holds and asks for */
};

struct herd_worker {
    struct herd_thread threads[HERD_THREADS_MAX];
};

/* Shared with all processes of the test. */
struct herd {
    int pause;
    unsigned threads; /* of each worker */
    bool is_api;
    uint64_t quota_bytes; /* a worker's; below UINT64_MAX no request within it may be refused */
    long grants, refusals, wrong_refusals, odd_answers;
    int order, done; /* for the witness (kills.c) */
    struct herd_worker workers[HERD_WORKERS_MAX];
};

extern struct herd *herd;

void herd_begin(unsigned threads);

/* The body of a worker: argument is its struct herd_worker. Never returns. */
void herd_work(void *argument);

static inline int herd_get(const int *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static inline void herd_set(int *word, int value)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

static inline uint64_t herd_progress(const struct herd_thread *thread)
{
    return __atomic_load_n(&thread->progress, __ATOMIC_SEQ_CST);
}

static inline long herd_count(const long *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

#endif
