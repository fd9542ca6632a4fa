/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts that are attached to and detached from, and green ones, under a compute limit. */
#include "green.h"
#include "load.h"

#include "sim/machine/machine.h"

#define LIMIT_50 .environment = {"CUDA_DEVICE_SM_LIMIT=50"}
#define LIMIT_20 .environment = {"CUDA_DEVICE_SM_LIMIT=20"}

static uint64_t events_alive(void)
{
    return sim_calls("cuEventCreate") - sim_calls("cuEventDestroy_v2");
}

/* What was launched is measured, and nothing else; each context's work is a twentieth. */
static void check_measured(uint64_t wanted_ns)
{
    load_settle();
    struct load_state state = load_state(0);
    CHECK_EQ(state.busy_ns, wanted_ns);
    if (!CHECK(state.measured_ns > wanted_ns - wanted_ns / 25 &&
               state.measured_ns < wanted_ns + wanted_ns / 25))
        dprintf(STDOUT_FILENO, "# measured %llu of %llu ns\n",
            (unsigned long long)state.measured_ns, (unsigned long long)wanted_ns);
}

/* ---- attached and detached ---- */

BED_TEST("contexts are detached from while their work runs, and launches go on", LIMIT_50)
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
        CHECK_EQ(CU(cuCtxDetach)(context), CUDA_SUCCESS);
        CHECK_EQ(events_alive(), alive);
        CHECK_EQ(CU(cuCtxSetCurrent)(primary), CUDA_SUCCESS);
    }
    for (int i = 0; i < 20; i++)
        CHECK_EQ(load_launch(NULL, 300 * US), CUDA_SUCCESS);
    load_settle();
}

BED_TEST("a context that is still attached to is measured on", LIMIT_50)
{
    CUcontext context, same;
    load_begin(0);
    CHECK_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
    CUfunction kernel = load_kernel();
    CUstream stream = load_stream();
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(CU(cuCtxAttach)(&same, 0), CUDA_SUCCESS);
        CHECK_EQ(load_launch_of(kernel, stream, 3 * MS), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxDetach)(context), CUDA_SUCCESS);
    }
    check_measured(20 * 3 * MS);
    CHECK_EQ(CU(cuCtxDetach)(context), CUDA_SUCCESS);
}

BED_TEST("so is one that is not the thread's to detach from", LIMIT_50)
{
    CUcontext context, primary;
    load_begin(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&primary), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
    CUfunction kernel = load_kernel();
    CUstream stream = load_stream();
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(load_launch_of(kernel, stream, 3 * MS), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxSetCurrent)(primary), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxDetach)(context), CUDA_ERROR_INVALID_CONTEXT);
        CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    }
    check_measured(20 * 3 * MS);
}

BED_TEST("so is a primary context that is attached to and detached from", LIMIT_50)
{
    CUcontext context;
    load_begin(0);
    CUstream stream = load_stream();
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(CU(cuCtxAttach)(&context, 0), CUDA_SUCCESS);
        CHECK_EQ(load_launch(stream, 3 * MS), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxDetach)(context), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxDetach)(context), CUDA_SUCCESS);
    }
    check_measured(20 * 3 * MS);
}

/* ---- green contexts ---- */

BED_TEST("work on a green context's stream keeps to the limit", LIMIT_20)
{
    load_begin(0);
    struct load load = {
        .step = load_step_plain, .duration_ns = 200 * US, .streams = {green_stream(green_make())}};
    load_check_share(&load, 0, 20);
}

BED_TEST("what runs on after its green context is gone is measured", LIMIT_50)
{
    load_begin(0);
    for (int i = 0; i < 20; i++) {
        CUgreenCtx green = green_make();
        CUstream stream = green_stream(green);
        CHECK_EQ(load_launch(stream, 3 * MS), CUDA_SUCCESS);
        CHECK_EQ(CU(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
        CHECK_EQ(CU(cuGreenCtxDestroy)(green), CUDA_SUCCESS);
    }
    check_measured(20 * 3 * MS);
}

BED_TEST("also where its streams were not destroyed", LIMIT_50)
{
    load_begin(0);
    for (int i = 0; i < 20; i++) {
        CUgreenCtx green = green_make();
        CHECK_EQ(load_launch(green_stream(green), 3 * MS), CUDA_SUCCESS);
        CHECK_EQ(CU(cuGreenCtxDestroy)(green), CUDA_SUCCESS);
    }
    check_measured(20 * 3 * MS);
}

BED_TEST("where a reset is refused for a green context, the others' work is measured", LIMIT_50)
{
    load_begin(0);
    CUgreenCtx green = green_make();
    CUstream stream = load_stream();
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(load_launch(stream, 3 * MS), CUDA_SUCCESS);
        CHECK_EQ(CU(cuDevicePrimaryCtxReset_v2)(0), CUDA_ERROR_NOT_PERMITTED);
    }
    check_measured(20 * 3 * MS);
    CHECK_EQ(CU(cuGreenCtxDestroy)(green), CUDA_SUCCESS);
}

BED_TEST("the events of a green context's default stream are given up before it goes", LIMIT_50)
{
    load_begin(0);
    uint64_t alive = events_alive();
    for (int i = 0; i < 20; i++) {
        CUgreenCtx green = green_make();
        green_enter(green);
        for (int k = 0; k < 12; k++)
            CHECK_EQ(load_launch(NULL, 500 * US), CUDA_SUCCESS);
        green_leave();
        CHECK_EQ(CU(cuGreenCtxDestroy)(green), CUDA_SUCCESS);
        CHECK_EQ(events_alive(), alive);
    }
    CHECK_EQ(load_launch(NULL, 300 * US), CUDA_SUCCESS);
    load_settle();
}

BED_TEST("those of a primary context are that goes with its last green one", LIMIT_50)
{
    load_begin(0);
    CHECK_EQ(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
    for (int i = 0; i < 20; i++) {
        CUgreenCtx green = green_make();
        uint64_t alive = events_alive();
        green_enter(green);
        CUfunction kernel = load_kernel();
        CUstream streams[2] = {green_stream(green), NULL};
        for (int k = 0; k < 12; k++)
            CHECK_EQ(load_launch_of(kernel, streams[k % 2], 500 * US), CUDA_SUCCESS);
        green_leave();
        CHECK_EQ(CU(cuGreenCtxDestroy)(green), CUDA_SUCCESS);
        CHECK_EQ(events_alive(), alive);
    }
    load_begin(0);
    CHECK_EQ(load_launch(NULL, 300 * US), CUDA_SUCCESS);
    load_settle();
}

/* ---- stopped together ---- */

/* A change of context is busy time, but no kernel's: so it is somewhat more than they ran for. */
static bool is_charged_once(void)
{
    struct load_state from = load_state(0);
    bed_sleep_ms(1500);
    struct load_state to = load_state(0);
    uint64_t busy = to.busy_ns - from.busy_ns, measured = to.measured_ns - from.measured_ns;
    dprintf(STDOUT_FILENO, "# measured %llu us, the kernels ran for %llu us\n",
        (unsigned long long)measured / 1000, (unsigned long long)busy / 1000);
    return busy > 0 && measured > busy / 2 && measured < busy * 2;
}

BED_TEST("kernels in four contexts that are stopped together are charged once", LIMIT_20)
{
    CUcontext context;
    load_begin(0);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
        CUfunction kernel = load_kernel();
        CHECK_EQ(load_launch_of(kernel, load_stream(), 60 * SECOND), CUDA_SUCCESS);
    }
    bed_sleep_ms(500);
    /* Three attempts: a loaded computer's governor comes late. */
    CHECK(is_charged_once() || is_charged_once() || is_charged_once());
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
