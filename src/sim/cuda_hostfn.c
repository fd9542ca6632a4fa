/* SPDX-License-Identifier: Apache-2.0 */
/* Host functions: a thread of the simulator, made at first need, calls each when its time has
 * come. Its own lock, never held together with a call into the program. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "sim/cuda_stream.h"

struct host_function {
    struct host_function *next;
    struct stream *stream;
    uint64_t at_ns;
    CUhostFn fn;
    void *data;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct host_function *queue; /* by time, then by order of arrival */
static unsigned long long total_issued;
static unsigned long long total_done;
static bool worker_started;

static void host_function_call(struct host_function *function)
{
    pthread_mutex_unlock(&lock);
    time_wait(function->at_ns);
    function->fn(function->data);
    pthread_mutex_lock(&lock);
    function->stream->host_done++;
    total_done++;
    free(function);
    pthread_cond_broadcast(&changed);
}

static void *worker(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        struct host_function *function = queue;

        if (!function) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        if (function->at_ns > time_now() + 1000000) {
            /* Look again in a millisecond: an earlier one may come. */
            pthread_mutex_unlock(&lock);
            time_wait(time_now() + 1000000);
            pthread_mutex_lock(&lock);
            continue;
        }
        queue = function->next;
        host_function_call(function);
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

CUresult host_function_add(struct stream *stream, uint64_t at_ns, CUhostFn fn, void *data)
{
    struct host_function *function = malloc(sizeof *function);
    struct host_function **at = &queue;
    bool started;

    if (!function)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *function = (struct host_function){NULL, stream, at_ns, fn, data};
    pthread_mutex_lock(&lock);
    started = worker_started || worker_start();
    if (started) {
        while (*at && (*at)->at_ns <= at_ns)
            at = &(*at)->next;
        function->next = *at;
        *at = function;
        stream->host_issued++;
        total_issued++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    if (!started)
        free(function);
    return started ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
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
