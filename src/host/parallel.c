/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that take one index after the other. */
#include "host/parallel.h"

#include "base/atomic.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>

#define THREADS_MAX 8
#define FEW 4 /* things for which a thread is not worth its start */

struct shared {
    uint64_t next;
    size_t count;
    void (*work)(size_t index, void *context);
    void *context;
};

static void *take_turns(void *argument)
{
    struct shared *shared = argument;
    for (uint64_t i; (i = add_seq_cst(&shared->next, (uint64_t)1) - 1) < shared->count;)
        shared->work((size_t)i, shared->context);
    return NULL;
}

static size_t processors(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < 1 ? 1 : count > THREADS_MAX ? THREADS_MAX : (size_t)count;
}

void parallel_each(size_t count, void (*work)(size_t index, void *context), void *context)
{
    struct shared shared = {.count = count, .work = work, .context = context};
    pthread_t threads[THREADS_MAX];
    size_t wanted = count > FEW ? processors() - 1 : 0, started = 0;
    while (started < wanted && pthread_create(&threads[started], NULL, take_turns, &shared) == 0)
        started++;
    take_turns(&shared);
    while (started)
        pthread_join(threads[--started], NULL);
}
