/* SPDX-License-Identifier: Apache-2.0 */
/* What calls cost the program that makes them, and what runs beside it. */
#include "bench/worker.h"

#include "load/calibration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALLS_MOST 2001
#define WARM_CALLS 20          /* and the fewest of a turn */
#define SPIN_NS 2000000        /* before a turn, after a wait */
#define BATCH 200              /* launches that fit into the driver's queue */
#define WARM_BATCHES 30        /* a kernel's first launches are measured one by one */
#define REST_NS 300000         /* between batches, so that a limit of 95 % is not reached */
#define BLOCK_BYTES (2u << 20) /* what the driver takes from its kernel module at least */
#define CROWD_BYTES (BLOCK_BYTES / 8)
#define QUEUED 4

static uint64_t samples[CALLS_MOST];

static void rest(void)
{
    uint64_t begin = worker_now_ns();
    LOAD_CALL(cuCtxSynchronize);
    while (worker_now_ns() - begin < REST_NS) {
    }
}

static void allocations(const char *key, size_t bytes, unsigned calls)
{
    CUdeviceptr pointer;
    for (unsigned i = 0; i < calls; i++) {
        uint64_t start = worker_now_ns();
        LOAD_CALL(cuMemAlloc_v2, &pointer, bytes);
        WORKER_CALL(cuMemFree_v2, pointer);
        samples[i] = worker_now_ns() - start;
    }
    worker_write_median(key, samples, calls, 1e3);
}

static void async_allocations(unsigned calls)
{
    CUdeviceptr pointer;
    CUmemoryPool pool;
    uint64_t keep = UINT64_MAX;
    if (!worker_cuda.cuMemAllocAsync) {
        if (!worker_quiet)
            puts("cost.alloc.async ! this driver has no cuMemAllocAsync");
        return;
    }
    WORKER_CALL(cuDeviceGetDefaultMemPool, &pool, 0);
    WORKER_CALL(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    for (unsigned i = 0; i < calls; i++) {
        uint64_t start = worker_now_ns();
        WORKER_CALL(cuMemAllocAsync, &pointer, 1 << 20, NULL);
        WORKER_CALL(cuMemFreeAsync, pointer, NULL);
        samples[i] = worker_now_ns() - start;
    }
    LOAD_CALL(cuCtxSynchronize);
    worker_write_median("cost.alloc.async", samples, calls, 1e3);
}

static void queries(unsigned calls)
{
    size_t free_bytes, total;
    for (unsigned i = 0; i < calls; i++) {
        uint64_t start = worker_now_ns();
        WORKER_CALL(cuMemGetInfo_v2, &free_bytes, &total);
        samples[i] = worker_now_ns() - start;
    }
    worker_write_median("cost.query", samples, calls, 1e3);
}

static void launches(const char *key, const struct load_device *device,
    const struct load_kernel *kernel, unsigned launches_each, CUstream stream, unsigned batches)
{
    for (unsigned i = 0; i < 1 + batches; i++) { /* the first one is for the warmth */
        uint64_t start = worker_now_ns();
        for (unsigned k = 0; k < launches_each; k++)
            load_kernel_launch(device, kernel, stream);
        if (i)
            samples[i - 1] = worker_now_ns() - start;
        rest();
    }
    worker_write_median(key, samples, batches, launches_each);
}

static void synchronised(const struct load_device *device, const struct load_kernel *kernel,
    CUstream stream, unsigned calls)
{
    for (unsigned i = 0; i < calls; i++) {
        uint64_t start = worker_now_ns();
        load_kernel_launch(device, kernel, stream);
        LOAD_CALL(cuStreamSynchronize, stream);
        samples[i] = worker_now_ns() - start;
        while (worker_now_ns() - start < 20000) { /* so that a limit of 95 % is not reached */
        }
    }
    worker_write_median("cost.launch.sync", samples, calls, 1e3);
}

/* "idle SETTLE SECONDS": what winds down after work is none of the idle time's. */
static void idle(const char *line)
{
    char *at = strchr(line, ' ');
    double settle_s = at ? strtod(at, &at) : 0, measured_s = at ? strtod(at, NULL) : 0;
    usleep((useconds_t)(settle_s * 1e6));
    double before = worker_other_threads_s();
    uint64_t begin = worker_now_ns();
    usleep((useconds_t)(measured_s * 1e6));
    double took = (double)(worker_now_ns() - begin) / 1e9;
    worker_write("cost.cpu.idle", (worker_other_threads_s() - before) / took * 100, 1);
}

struct scene {
    struct load_device device;
    struct load_kernel kernel, graph;
    CUstream stream;
};

/* The number of calls of each kind; of those that take long, fewer. */
static void calls_of_each(struct scene *scene, unsigned calls)
{
    unsigned batches = calls / 16 + 1, graphs = BATCH / LOAD_GRAPH_KERNELS;
    /* First: what a library learns from batches may change what it does at waits for a while. */
    synchronised(&scene->device, &scene->kernel, scene->stream, calls / 2);
    launches("cost.launch.async", &scene->device, &scene->kernel, BATCH, scene->stream, batches);
    launches("cost.launch.graph", &scene->device, &scene->graph, graphs, scene->stream, batches);
    allocations("cost.alloc.1MiB", BLOCK_BYTES / 2, calls);
    allocations("cost.alloc.2MiB", BLOCK_BYTES, calls);
    allocations("cost.alloc.64MiB", 64 << 20, calls / 10);
    async_allocations(calls);
    queries(calls);
}

/* What a first use alone costs: a kernel's first launches are measured one by one. */
static void warm_up(struct scene *scene)
{
    for (unsigned i = 0; i < 2 * WARM_BATCHES; i++) {
        const struct load_kernel *kernel = i % 2 ? &scene->graph : &scene->kernel;
        unsigned count = i % 2 ? BATCH / LOAD_GRAPH_KERNELS : BATCH;
        for (unsigned k = 0; k < count; k++)
            load_kernel_launch(&scene->device, kernel, scene->stream);
        rest();
    }
    worker_quiet = true;
    calls_of_each(scene, WARM_CALLS);
    worker_quiet = false;
}

static void turn(struct scene *scene, unsigned calls, const char *line)
{
    cpu_set_t former = worker_pin(line);
    worker_spin(SPIN_NS);
    calls_of_each(scene, calls);
    worker_unpin(&former);
}

/* CALLS: turns of CALLS calls of each kind ("turn cpu NUMBER"), and idle times. */
int worker_cost(int argc, char **argv)
{
    struct scene scene;
    char rest_of_line[32];
    unsigned calls = argc > 0 ? (unsigned)atoi(argv[0]) : 0;
    if (calls < WARM_CALLS || calls > CALLS_MOST)
        load_fail("cost: CALLS, %d to %d", WARM_CALLS, CALLS_MOST);
    worker_open();
    load_device_open(&scene.device, 0);
    LOAD_CALL(cuStreamCreate, &scene.stream, CU_STREAM_NON_BLOCKING);
    scene.kernel = load_kernel_make(&scene.device, FORM_ONE_BLOCK, 1);
    scene.graph = load_kernel_make(&scene.device, FORM_GRAPH, 1);
    warm_up(&scene);
    worker_say("ready");
    for (char what; (what = worker_command(rest_of_line, sizeof(rest_of_line)));) {
        if (what == 'i')
            idle(rest_of_line);
        else
            turn(&scene, calls, rest_of_line);
        worker_say("done");
    }
    return 0;
}

/* The first cuInit and the first context. */
int worker_init(int argc, char **argv)
{
    CUcontext context;
    (void)argc;
    (void)argv;
    worker_open();
    uint64_t start = worker_now_ns();
    LOAD_CALL(cuInit, 0);
    worker_write("cost.init", (double)(worker_now_ns() - start) / 1e6, 1);
    start = worker_now_ns();
    LOAD_CALL(cuDevicePrimaryCtxRetain, &context, 0);
    worker_write("cost.context", (double)(worker_now_ns() - start) / 1e6, 1);
    return 0;
}

/* KEY LIVE CALLS: turns of CALLS pairs of 2 MiB ("turn cpu NUMBER") while LIVE allocations
 * live */
int worker_crowd(int argc, char **argv)
{
    struct load_device device;
    CUdeviceptr pointer;
    char rest_of_line[32];
    unsigned long live = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    unsigned calls = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    if (!calls || calls > CALLS_MOST)
        load_fail("crowd: KEY LIVE CALLS");
    worker_open();
    load_device_open(&device, 0);
    for (unsigned long i = 0; i < live; i++)
        LOAD_CALL(cuMemAlloc_v2, &pointer, CROWD_BYTES);
    worker_quiet = true;
    allocations(argv[0], BLOCK_BYTES, calls);
    worker_quiet = false;
    worker_say("ready");
    while (worker_command(rest_of_line, sizeof(rest_of_line))) {
        cpu_set_t former = worker_pin(rest_of_line);
        worker_spin(SPIN_NS);
        allocations(argv[0], BLOCK_BYTES, calls);
        worker_unpin(&former);
        worker_say("done");
    }
    return 0;
}

/* CALIBRATION SECONDS: what other threads take while this one has the GPU work */
int worker_busy(int argc, char **argv)
{
    struct load_device device;
    struct load_calibration calibration = {0};
    CUstream stream;
    if (argc < 2)
        load_fail("busy: CALIBRATION SECONDS");
    worker_open();
    load_device_open(&device, 0);
    load_calibration_read(&calibration, argv[0]);
    LOAD_CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    struct load_kernel kernel = load_kernel_make(
        &device, FORM_FULL, load_calibration_steps(&calibration.rates[FORM_FULL], 1000));
    uint64_t begin = worker_now_ns(), end = begin + (uint64_t)(atof(argv[1]) * 1e9);
    double before = worker_other_threads_s();
    while (worker_now_ns() < end) {
        for (int i = 0; i < QUEUED; i++)
            load_kernel_launch(&device, &kernel, stream);
        LOAD_CALL(cuStreamSynchronize, stream);
    }
    double took = (double)(worker_now_ns() - begin) / 1e9;
    worker_write("cost.cpu.busy", (worker_other_threads_s() - before) / took * 100, 1);
    return 0;
}
