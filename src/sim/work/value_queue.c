/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for values in memory, and writes of values, in the order of their streams. Nothing tells
 * when the processor writes to memory: a thread of the simulator, made at first need, looks. Its
 * lock is taken under the driver's and over the machine's, and never held across a wait.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "sim/work/stream.h"

/* How often a value is looked at: at first, and at the least. In between each time after a 16th of
 * the time that it was waited for. */
#define LOOK_FIRST_NS 50000u
#define LOOK_LATEST_NS 1000000u
#define LOOK_PART 16u

struct value_task {
    struct value_task *next;
    struct value_op op;
    struct sim_ticket after; /* what is before it on the stream */
    struct sim_ticket end; /* its own place there: passed while it is held if the stream is gone */
    struct sim_mark hold;  /* of what comes behind */
    uint64_t due_ns;       /* since when it is the first on its stream; 0: it is not */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* by CLOCK_MONOTONIC; made with the thread */
static struct value_task *tasks;
static struct value_task **tasks_end = &tasks; /* in the order of their arrival */
static atomic_uint task_count;
static bool worker_started;

/* As the card compares: by the sign of the difference, so that counters may wrap. */
static bool value_holds(const struct value_op *op, uint64_t found)
{
    uint64_t mask = op->bytes == 4 ? UINT32_MAX : UINT64_MAX;
    uint64_t wanted = op->value & mask;

    switch (op->flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return ((found - wanted) & mask) <= mask >> 1;
    case CU_STREAM_WAIT_VALUE_EQ:
        return found == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
        return (found & wanted) != 0;
    default:
        return (~(found | wanted) & mask) != 0;
    }
}

bool value_queue_is_done(const struct value_op *op)
{
    uint64_t found;

    if (op->write && op->bytes == 4)
        __atomic_store_n((uint32_t *)op->host, (uint32_t)op->value, __ATOMIC_RELEASE);
    else if (op->write)
        __atomic_store_n((uint64_t *)op->host, op->value, __ATOMIC_RELEASE);
    if (op->write)
        return true;
    if (op->bytes == 4)
        found = __atomic_load_n((const uint32_t *)op->host, __ATOMIC_ACQUIRE);
    else
        found = __atomic_load_n((const uint64_t *)op->host, __ATOMIC_ACQUIRE);
    return value_holds(op, found);
}

/* ---- the thread, with the lock ---- */

static uint64_t look_ns(const struct value_task *task, uint64_t now_ns)
{
    uint64_t step = (now_ns - task->due_ns) / LOOK_PART;

    if (step < LOOK_FIRST_NS)
        step = LOOK_FIRST_NS;
    return now_ns + (step < LOOK_LATEST_NS ? step : LOOK_LATEST_NS);
}

/* If it is not over, *ret_look_ns is when to look again. */
static bool task_over(struct value_task *task, uint64_t *ret_look_ns)
{
    if (sim_ticket_done(&task->end, NULL))
        return true;
    if (!task->due_ns && !sim_ticket_done(&task->after, ret_look_ns))
        return false;
    if (!task->due_ns)
        task->due_ns = sim_clock_ns();
    if (value_queue_is_done(&task->op))
        return true;
    *ret_look_ns = look_ns(task, sim_clock_ns());
    return false;
}

static void task_end(struct value_task **at)
{
    struct value_task *task = *at;

    *at = task->next;
    if (tasks_end == &task->next)
        tasks_end = at;
    sim_mark_drop(&task->hold);
    free(task);
    task_count--;
}

/* Whether there was something to do; else *ret_look_ns is when to look again. */
static bool tasks_look(uint64_t *ret_look_ns)
{
    bool any = false;

    *ret_look_ns = UINT64_MAX;
    for (struct value_task **at = &tasks; *at;) {
        uint64_t look = UINT64_MAX;

        if (task_over(*at, &look)) {
            task_end(at);
            any = true;
            continue;
        }
        *ret_look_ns = look < *ret_look_ns ? look : *ret_look_ns;
        at = &(*at)->next;
    }
    return any;
}

static void *worker(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        uint64_t look;
        struct timespec until;

        while (tasks_look(&look))
            ; /* others may have waited for that */
        until = (struct timespec){(time_t)(look / 1000000000u), (long)(look % 1000000000u)};
        if (tasks)
            pthread_cond_timedwait(&changed, &lock, &until);
        else
            pthread_cond_wait(&changed, &lock);
    }
    return NULL;
}

/* The program's signals are not for this thread. */
static bool worker_start(void)
{
    sigset_t all;
    sigset_t before;
    pthread_t thread;
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    worker_started = pthread_create(&thread, NULL, worker, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (worker_started)
        pthread_detach(thread);
    return worker_started;
}

/* ---- from outside ---- */

static void task_publish(struct value_task *task)
{
    pthread_mutex_lock(&lock);
    *tasks_end = task;
    tasks_end = &task->next;
    task_count++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

CUresult value_queue_add(struct stream *stream, const struct value_op *op)
{
    struct value_task *task = calloc(1, sizeof *task);
    bool started;

    if (!task)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    started = worker_started || worker_start();
    pthread_mutex_unlock(&lock);
    if (!started) {
        free(task);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    task->op = *op;
    task->after = stream->queue.last;
    while (!sim_queue_hold(&stream->queue, &task->hold))
        stream_sleep_until(sim_clock_ns() + LOOK_LATEST_NS);
    if (!task->hold.generation) {
        CUresult r = task->hold.at_ns ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        free(task);
        return r;
    }
    task->end = stream->queue.last;
    task_publish(task);
    return CUDA_SUCCESS;
}

void value_queue_memory_changed(void)
{
    if (!task_count)
        return;
    pthread_mutex_lock(&lock);
    if (worker_started)
        pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

void value_queue_forget(uint64_t address, uint64_t bytes)
{
    if (!task_count)
        return;
    pthread_mutex_lock(&lock);
    for (struct value_task **at = &tasks; *at;) {
        if ((*at)->op.address - address < bytes)
            task_end(at);
        else
            at = &(*at)->next;
    }
    pthread_mutex_unlock(&lock);
}
