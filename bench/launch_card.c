/* SPDX-License-Identifier: Apache-2.0 */
/* Empty kernels on a card, in batches that fit into the driver's queue, for what a launch costs:
 * launch_card BATCHES [CORE]. Prints a line for each case: its name, a tab, and the median
 * nanoseconds of a launch in a batch, by the clock and by the thread's processor time. Between
 * batches it waits for the work and turns for a while, so that a limit of 95 % is not reached. The
 * first case are requests that come alone, as many: a kernel of 100 us and a wait for it, after 10
 * ms of nothing. The thread stays on one core, CORE where it is given, because cores differ by a
 * tenth of what a request takes. For bench/launch.py.
 */
#include "driver.h"
#include "median.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BATCH 200
#define WARM_BATCHES 30 /* a kernel's first launches are measured one by one */
#define REST_NS 300000
#define STREAMS 4
#define REQUEST_NS 100000
#define REQUEST_REST_US 10000

static CUfunction nop, spin;
static CUgraphExec exec;
static CUstream streams[STREAMS];

static double now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void launch_kernel(unsigned stream)
{
    uint64_t cell = 0;
    void *params[] = {&cell};
    DRIVER_CALL(driver.cuLaunchKernel(nop, 1, 1, 1, 32, 1, 1, 0, streams[stream], params, NULL));
}

static void launch_graph(unsigned stream)
{
    DRIVER_CALL(driver.cuGraphLaunch(exec, streams[stream]));
}

static void launch_and_wait(unsigned stream)
{
    launch_kernel(stream);
    DRIVER_CALL(driver.cuStreamSynchronize(streams[stream]));
}

static const struct {
    const char *name;
    void (*launch)(unsigned stream);
    unsigned streams;
} cases[] = {{"kernel, each waited for", launch_and_wait, 1},
    {"kernel, one stream", launch_kernel, 1},
    {"kernel, four streams in turn", launch_kernel, STREAMS},
    {"graph, one stream", launch_graph, 1}};

static void rest(void)
{
    double begin = now_ns(CLOCK_MONOTONIC);
    DRIVER_CALL(driver.cuCtxSynchronize());
    while (now_ns(CLOCK_MONOTONIC) - begin < REST_NS) {
    }
}

static void tell(const char *name, double *wall, double *processor, unsigned count)
{
    printf("%s\t%.1f %.1f\n", name, median(wall, count), median(processor, count));
    fflush(stdout);
}

static void measure(unsigned which, unsigned batches, double *wall, double *processor)
{
    for (unsigned i = 0; i < WARM_BATCHES + batches; i++) {
        double wall_ns = now_ns(CLOCK_MONOTONIC), own_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
        for (unsigned k = 0; k < BATCH; k++)
            cases[which].launch(k % cases[which].streams);
        own_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - own_ns;
        wall_ns = now_ns(CLOCK_MONOTONIC) - wall_ns;
        if (i >= WARM_BATCHES) {
            wall[i - WARM_BATCHES] = wall_ns / BATCH;
            processor[i - WARM_BATCHES] = own_ns / BATCH;
        }
        rest();
    }
    tell(cases[which].name, wall, processor, batches);
}

static void request(void)
{
    uint64_t duration_ns = REQUEST_NS;
    void *params[] = {&duration_ns};
    DRIVER_CALL(driver.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, streams[0], params, NULL));
    DRIVER_CALL(driver.cuStreamSynchronize(streams[0]));
}

/* The main thread alone: who was made by a first launch stays where it is. */
static void stay_on(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
        perror("launch_card: sched_setaffinity");
}

static void measure_requests(unsigned count, double *wall, double *processor)
{
    for (unsigned i = 0; i < WARM_BATCHES + count; i++) {
        usleep(REQUEST_REST_US);
        double wall_ns = now_ns(CLOCK_MONOTONIC), own_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
        request();
        if (i >= WARM_BATCHES) {
            processor[i - WARM_BATCHES] = now_ns(CLOCK_THREAD_CPUTIME_ID) - own_ns;
            wall[i - WARM_BATCHES] = now_ns(CLOCK_MONOTONIC) - wall_ns;
        }
    }
    tell("kernel of 100 us and its wait, 10 ms after another", wall, processor, count);
}

static void begin(void)
{
    CUcontext context;
    CUmodule module;
    CUgraph graph;
    DRIVER_CALL(driver.cuInit(0));
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&context, 0));
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    DRIVER_CALL(driver.cuModuleLoadData(&module, driver_ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&nop, module, "nop"));
    DRIVER_CALL(driver.cuModuleLoadData(&module, driver_spin_ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&spin, module, "spin"));
    for (unsigned i = 0; i < STREAMS; i++)
        DRIVER_CALL(driver.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    DRIVER_CALL(driver.cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    launch_kernel(0);
    DRIVER_CALL(driver.cuStreamEndCapture(streams[0], &graph));
    DRIVER_CALL(driver.cuGraphInstantiateWithFlags(&exec, graph, 0));
}

int main(int argc, char **argv)
{
    unsigned batches = argc == 2 || argc == 3 ? (unsigned)atoi(argv[1]) : 0;
    if (!batches || batches > 100000) {
        fputs("usage: launch_card BATCHES [CORE]\n", stderr);
        return 2;
    }
    if (!driver_load())
        return 77;
    begin();
    double *figures = malloc(2 * sizeof(double) * batches);
    if (!figures)
        return 1;
    request();
    stay_on(argc == 3 ? atoi(argv[2]) : sched_getcpu());
    measure_requests(batches, figures, figures + batches);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        measure(i, batches, figures, figures + batches);
    free(figures);
    return 0;
}
