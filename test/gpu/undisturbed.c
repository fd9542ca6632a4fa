/* SPDX-License-Identifier: Apache-2.0 */
/* What a program sees of events, captures, streams and cuCtxSynchronize, for
 * test/gpu/undisturbed.py: undisturbed [--sim]. Prints a line for each promise, and times, which
 * nothing is asserted of. With
 * --sim the kernels' results are not looked at: the simulator executes none. */
#include "abi/cuda_api.h"
#include "../driver/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPIN_NS 5000000ull
#define ROUNDS 20
#define CAPTURES 30
#define CAPTURED_KERNELS 10
#define BESIDE_KERNELS 800
#define BESIDE_FIRST 300  /* more than a limit of 50 % lets a container save up */
#define BESIDE_DURING 400 /* these 100 wait at the gate while a stream captures */
#define BESIDE_NS 200000ull
#define LATENCIES 1000

static const char add_ptx[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .entry add(.param .u64 cell)\n{\n.reg .b64 %rd<3>;\n.reg .b32 %r<3>;\n"
    "ld.param.u64 %rd1, [cell];\ncvta.to.global.u64 %rd1, %rd1;\n"
    "ld.global.u32 %r1, [%rd1];\nadd.u32 %r1, %r1, 1;\nst.global.u32 [%rd1], %r1;\nret;\n}\n";

static bool sim;
static int broken;
static CUfunction spin, add;
static CUstream stream, other;
static CUdeviceptr cell, copy;
static __typeof__(cuMemcpyDtoH_v2) *memcpy_to_host;

static void promise(const char *what, bool kept)
{
    broken += !kept;
    printf("%s - %s\n", kept ? "ok" : "NOT OK", what);
    fflush(stdout);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void figures(const char *what, double *values, unsigned count)
{
    qsort(values, count, sizeof(*values), ascending);
    printf("# %s: least %.1f, median %.1f, p99 %.1f us\n", what, values[0], values[count / 2],
        values[count - 1 - count / 100]);
}

static void launch_spin(CUstream on, uint64_t duration_ns)
{
    void *params[] = {&duration_ns};
    DRIVER_CALL(driver.cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, on, params, NULL));
}

static void launch_add(CUstream on)
{
    void *params[] = {&cell};
    DRIVER_CALL(driver.cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, on, params, NULL));
}

static void clear(void)
{
    DRIVER_CALL(driver.cuMemsetD8_v2(cell, 0, 4));
    DRIVER_CALL(driver.cuMemsetD8_v2(copy, 0, 4));
    DRIVER_CALL(driver.cuCtxSynchronize());
}

static bool holds(CUdeviceptr where, uint32_t wanted)
{
    uint32_t value = 0;
    DRIVER_CALL(memcpy_to_host(&value, where, sizeof(value)));
    if (value != wanted && !sim)
        printf("# %u instead of %u\n", value, wanted);
    return sim || value == wanted;
}

/* Holds its stream up until it is let go: what is not ready stays so, however slow the machine. */
static void hold(void *let_go)
{
    struct timespec pause = {.tv_nsec = 200000};
    while (!atomic_load((atomic_bool *)let_go))
        nanosleep(&pause, NULL);
}

static void events_answer(void)
{
    static atomic_bool let_go;
    CUevent before, after, fresh, untimed;
    float ms = -1;
    DRIVER_CALL(driver.cuEventCreate(&before, 0));
    DRIVER_CALL(driver.cuEventCreate(&after, 0));
    DRIVER_CALL(driver.cuEventCreate(&fresh, 0));
    DRIVER_CALL(driver.cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    promise("an event never recorded is ready", driver.cuEventQuery(fresh) == CUDA_SUCCESS);
    DRIVER_CALL(driver.cuEventRecord(before, stream));
    DRIVER_CALL(driver.cuLaunchHostFunc(stream, hold, &let_go));
    launch_spin(stream, SPIN_NS);
    DRIVER_CALL(driver.cuEventRecord(after, stream));
    DRIVER_CALL(driver.cuEventRecord(untimed, stream));
    promise("an event and its stream are not ready while work before it is not done",
        driver.cuEventQuery(after) == CUDA_ERROR_NOT_READY &&
            driver.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    promise("nor is the time between two of which one is not reached",
        driver.cuEventElapsedTime(&ms, before, after) == CUDA_ERROR_NOT_READY);
    promise("another stream is ready meanwhile", driver.cuStreamQuery(other) == CUDA_SUCCESS);
    atomic_store(&let_go, true);
    DRIVER_CALL(driver.cuEventSynchronize(after));
    DRIVER_CALL(driver.cuStreamSynchronize(stream));
    promise("they are ready afterwards",
        driver.cuEventQuery(after) == CUDA_SUCCESS && driver.cuStreamQuery(stream) == CUDA_SUCCESS);
    promise("the time between them is no less than the kernel's",
        driver.cuEventElapsedTime(&ms, before, after) == CUDA_SUCCESS && ms > 0.9 * SPIN_NS / 1e6);
    promise("events without timing have no time between them",
        driver.cuEventElapsedTime(&ms, untimed, untimed) == CUDA_ERROR_INVALID_HANDLE);
}

/* Where a launch waits at the gate between the two records, that is in the time, too. */
static void events_time(void)
{
    double elapsed_us[ROUNDS], empty_us[ROUNDS];
    CUevent marks[3];
    bool ordered = true;
    for (unsigned i = 0; i < 3; i++)
        DRIVER_CALL(driver.cuEventCreate(&marks[i], 0));
    for (unsigned i = 0; i < ROUNDS; i++) {
        float ms = -1, none = -1;
        struct timespec pause = {.tv_nsec = 30000000};
        nanosleep(&pause, NULL);
        DRIVER_CALL(driver.cuEventRecord(marks[0], stream));
        launch_spin(stream, SPIN_NS);
        DRIVER_CALL(driver.cuEventRecord(marks[1], stream));
        DRIVER_CALL(driver.cuEventRecord(marks[2], stream));
        DRIVER_CALL(driver.cuStreamSynchronize(stream));
        DRIVER_CALL(driver.cuEventElapsedTime(&ms, marks[0], marks[1]));
        DRIVER_CALL(driver.cuEventElapsedTime(&none, marks[1], marks[2]));
        ordered = ordered && ms > 0.9 * SPIN_NS / 1e6 && none >= 0;
        elapsed_us[i] = 1000.0 * (double)ms;
        empty_us[i] = 1000.0 * (double)none;
    }
    promise("events around a kernel are its duration apart at least, and in order", ordered);
    figures("events around a kernel of 5 ms that had time to save up", elapsed_us, ROUNDS);
    figures("events with nothing between them", empty_us, ROUNDS);
}

static void streams_order(void)
{
    static atomic_bool let_go;
    CUevent done;
    clear();
    DRIVER_CALL(driver.cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    DRIVER_CALL(driver.cuLaunchHostFunc(stream, hold, &let_go));
    for (unsigned i = 0; i < 100; i++)
        launch_add(stream);
    DRIVER_CALL(driver.cuEventRecord(done, stream));
    DRIVER_CALL(driver.cuStreamWaitEvent(other, done, 0));
    DRIVER_CALL(driver.cuMemcpyDtoDAsync_v2(copy, cell, 4, other));
    promise("a stream that waits for another's event is not ready before it",
        driver.cuStreamQuery(other) == CUDA_ERROR_NOT_READY);
    atomic_store(&let_go, true);
    DRIVER_CALL(driver.cuStreamSynchronize(other));
    promise("it sees all that was done before the event", holds(copy, 100));
    DRIVER_CALL(driver.cuCtxSynchronize());
    launch_add(stream);
    DRIVER_CALL(driver.cuCtxSynchronize());
    promise("cuCtxSynchronize waits for what was launched", holds(cell, 101));
}

static CUcontext context;
static atomic_uint launched_beside;
static atomic_bool ends;

static void *launch_beside(void *unused)
{
    (void)unused;
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    while (launched_beside < BESIDE_DURING || (launched_beside < BESIDE_KERNELS && !ends)) {
        launch_spin(other, BESIDE_NS);
        launched_beside++;
    }
    return NULL;
}

static void wait_for_beside(unsigned launched)
{
    struct timespec pause = {.tv_nsec = 100000};
    while (launched_beside < launched)
        nanosleep(&pause, NULL);
}

static void begin_beside(pthread_t *thread)
{
    launched_beside = 0;
    ends = false;
    if (pthread_create(thread, NULL, launch_beside, NULL) != 0)
        exit(1);
    wait_for_beside(BESIDE_FIRST);
}

/* While another thread launches so much that it waits at the gate. */
static void captures(CUstreamCaptureMode mode, const char *what)
{
    pthread_t thread;
    CUgraphExec execs[CAPTURES];
    bool good = true;
    char text[96];
    clear();
    begin_beside(&thread);
    for (unsigned i = 0; i < CAPTURES; i++) {
        CUgraph graph = NULL;
        size_t nodes = 0;
        DRIVER_CALL(driver.cuStreamBeginCapture_v2(stream, mode));
        for (unsigned k = 0; k < CAPTURED_KERNELS; k++) {
            launch_add(stream);
            launch_spin(stream, BESIDE_NS);
        }
        wait_for_beside(BESIDE_DURING);
        CUresult result = driver.cuStreamEndCapture(stream, &graph);
        good = good && result == CUDA_SUCCESS && graph &&
               driver.cuGraphGetNodes(graph, NULL, &nodes) == CUDA_SUCCESS &&
               nodes == 2 * CAPTURED_KERNELS;
        if (!good) {
            printf("# capture %u: %s, %zu nodes\n", i, driver_error(result), nodes);
            break;
        }
        DRIVER_CALL(driver.cuGraphInstantiateWithFlags(&execs[i], graph, 0));
    }
    ends = true;
    pthread_join(thread, NULL);
    for (unsigned i = 0; good && i < CAPTURES; i++)
        DRIVER_CALL(driver.cuGraphLaunch(execs[i], stream));
    DRIVER_CALL(driver.cuCtxSynchronize());
    snprintf(text, sizeof(text), "captures in %s mode hold what was launched, and run", what);
    promise(text, good && holds(cell, CAPTURES * CAPTURED_KERNELS));
}

static void synchronize_times(void)
{
    static double idle_us[LATENCIES], after_us[LATENCIES];
    for (unsigned i = 0; i < LATENCIES; i++) {
        double begin = now_us();
        DRIVER_CALL(driver.cuCtxSynchronize());
        idle_us[i] = now_us() - begin;
        begin = now_us();
        launch_add(stream);
        DRIVER_CALL(driver.cuCtxSynchronize());
        after_us[i] = now_us() - begin;
    }
    figures("cuCtxSynchronize with nothing to wait for", idle_us, LATENCIES);
    figures("a launch and cuCtxSynchronize", after_us, LATENCIES);
}

static void begin(void)
{
    CUmodule module;
    DRIVER_CALL(driver.cuInit(0));
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&context, 0));
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    DRIVER_CALL(driver.cuModuleLoadData(&module, driver_spin_ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&spin, module, "spin"));
    DRIVER_CALL(driver.cuModuleLoadData(&module, add_ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&add, module, "add"));
    DRIVER_CALL(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRIVER_CALL(driver.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    DRIVER_CALL(driver.cuMemAlloc_v2(&cell, 4));
    DRIVER_CALL(driver.cuMemAlloc_v2(&copy, 4));
}

int main(int argc, char **argv)
{
    sim = argc == 2 && !strcmp(argv[1], "--sim");
    if (!driver_load())
        return 77;
    memcpy_to_host = (__typeof__(memcpy_to_host))dlsym(
        dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuMemcpyDtoH_v2");
    begin();
    events_answer();
    events_time();
    streams_order();
    captures(CU_STREAM_CAPTURE_MODE_GLOBAL, "the global");
    captures(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "the thread's");
    captures(CU_STREAM_CAPTURE_MODE_RELAXED, "the relaxed");
    synchronize_times();
    return broken != 0;
}
