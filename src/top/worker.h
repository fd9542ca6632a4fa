/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that does what could be kept waiting by a file system, so that keys are not: it is asked
 * to do its one thing, does it, and says that it has done so by a descriptor. */
#ifndef VGPU_TOP_WORKER_H
#define VGPU_TOP_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct top_worker {
    void (*work)(void *context);
    void *context; /* the thread's from top_worker_ask until top_worker_take says true */
    int event;     /* readable when it has done it */
    pthread_mutex_t lock;
    pthread_cond_t asked_or_done;
    bool asked, done;
    uint64_t since_ns; /* asked; CLOCK_MONOTONIC */
};

/* The thread starts with the caller's mask of signals and lasts as long as the process; so must the
 * struct. Returns 0 or -errno. */
int top_worker_start(struct top_worker *worker, void (*work)(void *context), void *context)
    __attribute__((warn_unused_result));

/* For how long it has been at it; 0: it is not. */
uint64_t top_worker_busy_ns(struct top_worker *worker);

/* Not while it is busy. */
void top_worker_ask(struct top_worker *worker);

/* Whether what was asked for is done: once. Waits for nothing. */
bool top_worker_take(struct top_worker *worker);

#endif
