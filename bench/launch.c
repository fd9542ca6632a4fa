/* SPDX-License-Identifier: Apache-2.0 */
/* Launches in a loop, for what a launch costs: launch kernel|graph|waited|rare STREAMS THREADS
 * LAUNCHES; waited: a kernel, and cuStreamSynchronize behind each; rare: 5 ms before each of these.
 * Prints the processor's nanoseconds of a launch, of the thread that took longest, and how often
 * threads slept meanwhile; of rare ones the median, with its wait. For bench/launch.py. */
#include "median.h"

#include "abi/cuda_api.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 16
#define STREAMS_MAX 64
#define RARE_PAUSE_US 5000

static bool graph, waited, rare;
static unsigned streams, launches;
static long slept;
static pthread_barrier_t barrier;

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* As objects lie in a heap: anywhere, at a multiple of 16. */
static CUstream handle_of(uintptr_t thread, unsigned number)
{
    uint64_t chance = (thread * STREAMS_MAX + number + 1) * 0xff51afd7ed558ccdull;
    return (CUstream)(0x7f0000000000ull + (chance >> 40) * 16);
}

static void run(unsigned count, uintptr_t thread)
{
    static char function, exec;
    CUstream handles[STREAMS_MAX] = {0};
    for (unsigned i = 0; i < streams; i++)
        handles[i] = handle_of(thread, i);
    for (unsigned i = 0, next = 0; i < count; i++) {
        CUstream stream = handles[next];
        next = next + 1 < streams ? next + 1 : 0;
        CUresult result = graph ? cuGraphLaunch((CUgraphExec)&exec, stream)
                                : cuLaunchKernel((CUfunction)&function, 1, 1, 1, 128, 1, 1, 0,
                                      stream, NULL, NULL);
        if (result != CUDA_SUCCESS || (waited && cuStreamSynchronize(stream) != CUDA_SUCCESS))
            exit(1);
    }
}

/* Into the median: a thread that was kept from running meanwhile has colder caches than others. */
static double run_rarely(unsigned count, uintptr_t thread)
{
    double *each = calloc(count, sizeof(*each));
    for (unsigned i = 0; each && i < count; i++) {
        usleep(RARE_PAUSE_US);
        double start = now_ns();
        run(1, thread);
        each[i] = now_ns() - start;
    }
    double middle = each ? median(each, count) : 0;
    free(each);
    return middle;
}

/* Of a launch. */
static double time_ns(unsigned count, uintptr_t thread)
{
    if (rare)
        return run_rarely(count, thread);
    double start = now_ns();
    run(count, thread);
    return (now_ns() - start) / count;
}

static void *measure(void *argument)
{
    static double taken[THREADS_MAX];
    uintptr_t thread = (uintptr_t)argument;
    (void)time_ns(launches / 10 + 1, thread);
    pthread_barrier_wait(&barrier);
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    taken[thread] = time_ns(launches, thread);
    getrusage(RUSAGE_THREAD, &after);
    __atomic_fetch_add(&slept, after.ru_nvcsw - before.ru_nvcsw, __ATOMIC_RELAXED);
    return &taken[thread];
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS_MAX];
    size_t unused, total;
    double most = 0;
    unsigned count = argc == 5 ? (unsigned)atoi(argv[3]) : 0;
    if (!count || count > THREADS_MAX) {
        fputs("usage: launch kernel|graph|waited|rare STREAMS THREADS LAUNCHES\n", stderr);
        return 2;
    }
    graph = !strcmp(argv[1], "graph");
    rare = !strcmp(argv[1], "rare");
    waited = rare || !strcmp(argv[1], "waited");
    streams = (unsigned)atoi(argv[2]);
    launches = (unsigned)atoi(argv[4]);
    /* The second call is the first that says which device the program is on. */
    if (!streams || streams > STREAMS_MAX || cuInit(0) != CUDA_SUCCESS ||
        cuMemGetInfo_v2(&unused, &total) != CUDA_SUCCESS)
        return 1;
    pthread_barrier_init(&barrier, NULL, count);
    for (uintptr_t i = 1; i < count; i++)
        pthread_create(&threads[i], NULL, measure, (void *)i);
    most = *(double *)measure(NULL);
    for (unsigned i = 1; i < count; i++) {
        void *taken;
        pthread_join(threads[i], &taken);
        most = *(double *)taken > most ? *(double *)taken : most;
    }
    printf("%.3f %ld\n", most, slept);
    return 0;
}
