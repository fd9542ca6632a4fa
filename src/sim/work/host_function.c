/* SPDX-License-Identifier: Apache-2.0 */
/* Host functions: a thread of the simulator, made at first need, calls each when what is before it
 * is done. Its own lock, never held together with a call into the program. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "sim/work/stream.h"

/* An earlier one may come meanwhile. */
#define LOOK_NS 1000000u

struct host_function {
    struct host_function *next;
    struct stream *stream;
    struct sim_ticket after;
    struct sim_mark hold; /* of what comes behind */
    CUhostFn fn;
    void *data;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct host_function *queue; /* in the order of their arrival */
static struct host_function **queue_end = &queue;
static unsigned long long total_issued;
static unsigned long long total_done;
static bool worker_started;

static void host_function_call(struct host_function *function)
{
    pthread_mutex_unlock(&lock);
    function->fn(function->data);
    sim_mark_drop(&function->hold);
    pthread_mutex_lock(&lock);
    function->stream->host_done++;
    total_done++;
    free(function);
    pthread_cond_broadcast(&changed);
}

/* Takes out the first whose time has come; NULL with the time to look again. One that waits holds
 * up only its own stream's. */
static struct host_function *queue_take(uint64_t *ret_look_ns)
{
    static unsigned long long round;

    *ret_look_ns = sim_clock_ns() + LOOK_NS;
    round++;
    for (struct host_function **at = &queue; *at; at = &(*at)->next) {
        struct host_function *function = *at;
        uint64_t look;

        if (function->stream->host_round == round)
            continue;
        if (sim_ticket_done(&function->after, &look)) {
            *at = function->next;
            if (queue_end == &function->next)
                queue_end = at;
            return function;
        }
        function->stream->host_round = round;
        *ret_look_ns = look < *ret_look_ns ? look : *ret_look_ns;
    }
    return NULL;
}

static void *worker(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        uint64_t look;
        struct host_function *function = queue_take(&look);

        if (function) {
            host_function_call(function);
        } else if (queue) {
            pthread_mutex_unlock(&lock);
            stream_sleep_until(look);
            pthread_mutex_lock(&lock);
        } else {
            pthread_cond_wait(&changed, &lock);
        }
    }
    return NULL;
}

/* The program's signals are not for this thread. */
static bool worker_start(void)
{
    sigset_t all;
    sigset_t before;
    pthread_t thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    worker_started = pthread_create(&thread, NULL, worker, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (worker_started)
        pthread_detach(thread);
    return worker_started;
}

CUresult host_function_add(struct stream *stream, CUhostFn fn, void *data)
{
    struct host_function *function = calloc(1, sizeof *function);
    bool started;

    if (!function)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    started = worker_started || worker_start();
    pthread_mutex_unlock(&lock);
    if (!started) {
        free(function);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    function->stream = stream;
    function->after = stream->queue.last;
    function->fn = fn;
    function->data = data;
    while (!sim_queue_hold(&stream->queue, &function->hold))
        stream_sleep_until(sim_clock_ns() + LOOK_NS);
    pthread_mutex_lock(&lock);
    *queue_end = function;
    queue_end = &function->next;
    stream->host_issued++;
    total_issued++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* With no stream: all that were issued before. */
void host_function_wait(struct stream *stream, unsigned long long issued)
{
    pthread_mutex_lock(&lock);
    if (!stream)
        issued = total_issued;
    while ((stream ? stream->host_done : total_done) < issued)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}
