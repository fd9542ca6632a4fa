/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, contexts and threads that come and go under a compute limit. */
#include "load.h"

#include "sim/machine/machine.h"

#include <pthread.h>

#define LIMIT_50 .environment = {"CUDA_DEVICE_SM_LIMIT=50"}
#define LIMIT_20 .environment = {"CUDA_DEVICE_SM_LIMIT=20"}

/* ---- streams and contexts ---- */

BED_TEST("streams are destroyed while their work runs, and launches go on", LIMIT_50)
{
    load_begin(0);
    for (int i = 0; i < 400; i++) {
        CUstream stream = load_stream();
        for (int k = 0; k < 1 + i % 5; k++)
            CHECK_EQ(load_launch(stream, 300 * US), CUDA_SUCCESS);
        CHECK_EQ(CU(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    }
    load_settle();
    struct load_state state = load_state(0);
    CHECK_EQ(state.busy_ns, 400ull * 3 * 300 * US);
    CHECK_EQ(load_launch(NULL, 300 * US), CUDA_SUCCESS);
}

static uint64_t events_alive(void)
{
    return sim_calls("cuEventCreate") - sim_calls("cuEventDestroy_v2");
}

BED_TEST("events of a context that is gone are refused by the simulator", .native = true)
{
    CUcontext context;
    CUevent event, other;
    float milliseconds;
    load_begin(0);
    CHECK_EQ(CU(cuEventCreate)(&other, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuEventRecord)(other, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuEventCreate)(&event, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuEventRecord)(event, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    CHECK(CU(cuEventQuery)(event) != CUDA_SUCCESS);
    CHECK(CU(cuEventElapsedTime)(&milliseconds, other, event) != CUDA_SUCCESS);
    CHECK(CU(cuEventDestroy_v2)(event) != CUDA_SUCCESS);
}

/* All events of ours on a context are given up before it goes: their number shows it. */
static void check_context_goes(CUresult (*leave)(CUcontext context), bool synchronised)
{
    CUcontext context, primary;
    load_begin(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&primary), CUDA_SUCCESS);
    uint64_t alive = events_alive();
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
        CUfunction kernel = load_kernel();
        CUstream streams[2] = {load_stream(), load_stream()};
        for (int k = 0; k < 12; k++)
            CHECK_EQ(load_launch_of(kernel, streams[k % 2], 500 * US), CUDA_SUCCESS);
        if (synchronised)
            CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
        CHECK_EQ(leave(context), CUDA_SUCCESS);
        CHECK_EQ(events_alive(), alive);
        CHECK_EQ(CU(cuCtxSetCurrent)(primary), CUDA_SUCCESS);
    }
    for (int i = 0; i < 20; i++)
        CHECK_EQ(load_launch(NULL, 300 * US), CUDA_SUCCESS);
    load_settle();
}

static CUresult destroy(CUcontext context)
{
    return CU(cuCtxDestroy_v2)(context);
}

BED_TEST("contexts are destroyed while their work runs, and launches go on", LIMIT_50)
{
    check_context_goes(destroy, false);
}

BED_TEST("so are contexts whose work is done", LIMIT_50)
{
    check_context_goes(destroy, true);
}

static CUresult destroy_from_another(CUcontext context)
{
    CUcontext popped;
    CHECK_EQ(CU(cuCtxPopCurrent_v2)(&popped), CUDA_SUCCESS);
    return CU(cuCtxDestroy_v2)(context);
}

BED_TEST("so are contexts that are not current", LIMIT_50)
{
    check_context_goes(destroy_from_another, false);
}

static void check_primary_goes(CUresult (*leave)(CUdevice device))
{
    for (int i = 0; i < 20; i++) {
        load_begin(0);
        uint64_t alive = events_alive();
        CUstream streams[2] = {load_stream(), load_stream()};
        for (int k = 0; k < 12; k++)
            CHECK_EQ(load_launch(streams[k % 2], 500 * US), CUDA_SUCCESS);
        CHECK_EQ(leave(0), CUDA_SUCCESS);
        CHECK_EQ(events_alive(), alive);
    }
    load_begin(0);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(load_launch(NULL, 300 * US), CUDA_SUCCESS);
    load_settle();
}

BED_TEST("a primary context is released while its work runs, and comes again", LIMIT_50)
{
    check_primary_goes(CU(cuDevicePrimaryCtxRelease_v2));
}

BED_TEST("so is one that is reset", LIMIT_50)
{
    check_primary_goes(CU(cuDevicePrimaryCtxReset_v2));
}

/* A library that retains the primary context for each of its calls. */
static CUresult step_retain(struct load *load, uint64_t number)
{
    CUcontext context;
    CUresult result = CUDA_SUCCESS;
    (void)number;
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    for (int i = 0; i < 8 && result == CUDA_SUCCESS; i++)
        result = load_launch(load->streams[0], load->duration_ns);
    CHECK_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
    return result;
}

BED_TEST("a primary context that others still hold keeps to the limit", LIMIT_20)
{
    load_begin(0);
    struct load load = {.step = step_retain, .duration_ns = 100 * US, .streams = {load_stream()}};
    load_check_share(&load, 0, 20);
}

/* ---- numbers ---- */

static long resident_kib(void)
{
    long pages = 0, resident = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm && fscanf(statm, "%ld %ld", &pages, &resident) == 2);
    if (statm)
        fclose(statm);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void use_streams(int count)
{
    for (int i = 0; i < count; i++) {
        CUstream stream = load_stream();
        CHECK_EQ(load_launch(stream, 1 * US), CUDA_SUCCESS);
        CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
        CHECK_EQ(CU(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    }
}

BED_TEST("thousands of streams come and go without growth", LIMIT_50)
{
    load_begin(0);
    use_streams(1000);
    long before = resident_kib();
    uint64_t alive = events_alive();
    use_streams(4000);
    CHECK(resident_kib() - before < 1500);
    CHECK(events_alive() <= alive + 80);
}

static void *use_own_stream(void *context)
{
    uint64_t duration = 1 * US;
    void *params[] = {&duration};
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CHECK_EQ(CU(cuLaunchKernel_ptsz)(load_kernel(), 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL),
        CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize_ptsz)(NULL), CUDA_SUCCESS);
    return NULL;
}

static void *launch_on_own_stream(void *argument)
{
    void **both = argument;
    uint64_t duration = 1 * US;
    void *params[] = {&duration};
    CHECK_EQ(CU(cuCtxSetCurrent)(both[0]), CUDA_SUCCESS);
    CHECK_EQ(
        CU(cuLaunchKernel_ptsz)(both[1], 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize_ptsz)(NULL), CUDA_SUCCESS);
    return NULL;
}

static void use_threads(int count, CUcontext context, CUfunction kernel)
{
    void *both[2] = {context, kernel};
    pthread_t threads[8];
    for (int i = 0; i < count; i += 8) {
        for (int k = 0; k < 8; k++)
            REQUIRE(pthread_create(&threads[k], NULL, launch_on_own_stream, both) == 0);
        for (int k = 0; k < 8; k++)
            pthread_join(threads[k], NULL);
    }
}

BED_TEST("so do thousands of threads with streams of their own", LIMIT_50)
{
    CUcontext context;
    load_begin(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    CHECK_EQ(use_own_stream(context), NULL);
    CUfunction kernel = load_kernel();
    use_threads(400, context, kernel);
    long before = resident_kib();
    uint64_t alive = events_alive();
    use_threads(2400, context, kernel);
    CHECK(resident_kib() - before < 6000);
    CHECK(events_alive() <= alive + 80);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
