/* SPDX-License-Identifier: Apache-2.0 */
/* A compute limit that is set, changed and removed by `vgpu set` while a program runs. What the
 * program does in the first 300 ms after a change is not looked at; in the first second where it
 * launches rarely. */
#include "load.h"

#include <pthread.h>

#define LOOK_AWAY_NS (300 * MS)
#define ATTEMPTS 5

/* Sets the limit, and lets the load run on for a second under it. */
static void check_changed_within(struct load *load, unsigned percent, uint64_t within_ns)
{
    load_set(-1, percent);
    load_run(load, load_now_ns() + within_ns);
    struct load_state from = load_state(0);
    load_run(load, from.now_ns + SECOND);
    struct load_state to = load_state(0);
    load_check_at_most(&from, &to, percent);
    CHECK(to.granted_ns > from.granted_ns);
}

static void check_changed(struct load *load, unsigned percent)
{
    check_changed_within(load, percent, LOOK_AWAY_NS);
}

/* Removes it, or sets a high one: the load gets more than the share again. */
static void check_freed(struct load *load, unsigned percent, int permille)
{
    int best = 0;
    load_set(-1, percent);
    load_run(load, load_now_ns() + LOOK_AWAY_NS);
    for (int i = 0; i < ATTEMPTS && best < permille; i++) {
        struct load_state from = load_state(0);
        load_run(load, from.now_ns + 500 * MS);
        struct load_state to = load_state(0);
        int share = load_permille(to.busy_ns - from.busy_ns, to.now_ns - from.now_ns);
        best = share > best ? share : best;
    }
    if (!CHECK(best >= permille))
        dprintf(STDOUT_FILENO, "# %d of 1,000 at best, at %u %%\n", best, percent);
}

BED_TEST("a limit is set, changed and removed in a program that runs")
{
    load_begin(0);
    struct load load = {.step = load_step_plain, .duration_ns = MS, .streams = {load_stream()}};
    load_run(&load, load_now_ns() + 200 * MS);
    CHECK_EQ(load_state(0).granted_ns, 0);
    check_changed(&load, 20);
    check_freed(&load, 80, 400);
    check_changed(&load, 10);
    check_freed(&load, 0, 500);
    load_settle();
    int64_t charged = load_state(0).charged_ns;
    load_run(&load, load_now_ns() + 200 * MS);
    load_settle();
    CHECK_EQ(load_state(0).charged_ns, charged);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
}

static CUresult step_wait(struct load *load, uint64_t number)
{
    (void)number;
    CUresult result = load_launch(load->streams[0], load->duration_ns);
    return result ? result : CU(cuStreamSynchronize)(load->streams[0]);
}

BED_TEST("also in one that waits for each launch")
{
    load_begin(0);
    struct load load = {
        .step = step_wait, .duration_ns = 5 * MS, .streams = {load_stream()}, .waits = true};
    load_run(&load, load_now_ns() + 200 * MS);
    check_changed(&load, 20);
    check_freed(&load, 0, 400);
}

/* Without a call that waits: until a host function has said so. */
static CUresult step_rare(struct load *load, uint64_t number)
{
    (void)number;
    CUresult result = load_launch(load->streams[0], load->duration_ns);
    while (CU(cuStreamQuery)(load->streams[0]) == CUDA_ERROR_NOT_READY)
        bed_sleep_ms(1);
    return result;
}

BED_TEST("also in one that launches rarely, after it launched a lot")
{
    load_begin(0);
    struct load load = {
        .step = step_rare, .duration_ns = 15 * MS, .streams = {load_stream()}, .waits = true};
    for (int i = 0; i < 4000; i++)
        CHECK_EQ(load_launch(load.streams[0], 1 * US), CUDA_SUCCESS);
    load_run(&load, load_now_ns() + 200 * MS);
    check_changed_within(&load, 20, SECOND);
    check_freed(&load, 0, 400);
}

BED_TEST("and holds the first launch behind a pause, after the program asked until all was over")
{
    load_begin(0);
    CUstream stream = load_stream();
    for (int i = 0; i < 4000; i++)
        CHECK_EQ(load_launch(stream, 1 * US), CUDA_SUCCESS);
    while (CU(cuStreamQuery)(stream) == CUDA_ERROR_NOT_READY)
        bed_sleep_ms(1);
    load_set(-1, 20);
    bed_sleep_ms(200);
    struct load_state from = load_state(0);
    for (int i = 0; i < 20; i++)
        CHECK_EQ(load_launch(stream, 100 * MS), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    load_check_measured(&from);
}

static CUresult step_graph(struct load *load, uint64_t number)
{
    (void)number;
    return CU(cuGraphLaunch)(load->own, load->streams[0]);
}

BED_TEST("also in one that launches graphs")
{
    CUgraph graph;
    CUgraphExec exec;
    load_begin(0);
    struct load load = {.step = step_graph, .streams = {load_stream()}};
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(load.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
    for (int i = 0; i < 8; i++)
        CHECK_EQ(load_launch(load.streams[0], 200 * US), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamEndCapture)(load.streams[0], &graph), CUDA_SUCCESS);
    REQUIRE(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0) == CUDA_SUCCESS);
    load.own = exec;
    load_run(&load, load_now_ns() + 200 * MS);
    check_changed(&load, 20);
    check_freed(&load, 0, 500);
}

BED_TEST("of two devices the one that was named changes", .sim = "2xh200")
{
    bed_context(0); /* the region's first */
    load_begin(1);
    struct load load = {.step = load_step_plain, .duration_ns = MS, .streams = {load_stream()}};
    load_run(&load, load_now_ns() + 100 * MS);
    load_set(0, 10);
    load_run(&load, load_now_ns() + 100 * MS);
    CHECK_EQ(load_state(1).granted_ns, 0);
    load_set(1, 20);
    load_run(&load, load_now_ns() + LOOK_AWAY_NS);
    struct load_state from = load_state(1);
    load_run(&load, from.now_ns + SECOND);
    struct load_state to = load_state(1);
    load_check_at_most(&from, &to, 20);
}

static void *launch_once(void *argument)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(argument), CUDA_SUCCESS);
    CHECK_EQ(load_launch(NULL, MS), CUDA_SUCCESS);
    return NULL;
}

BED_TEST("who waits at the gate goes on when the limit is removed",
    .environment = {"CUDA_DEVICE_SM_LIMIT=2", "VGPU_GATE=launch"})
{
    pthread_t thread;
    CUcontext context;
    load_begin(0);
    CUstream stream = load_stream();
    CHECK_EQ(load_launch(stream, 1 * US), CUDA_SUCCESS);
    load_settle();
    /* Another kernel, which nobody knows the duration of: 20 seconds' worth. */
    CHECK_EQ(load_launch_of(load_kernel(), stream, 400 * MS), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    bed_sleep_ms(100);
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    uint64_t start = load_now_ns();
    REQUIRE(pthread_create(&thread, NULL, launch_once, context) == 0);
    bed_sleep_ms(200);
    CHECK_EQ(pthread_tryjoin_np(thread, NULL), EBUSY);
    load_set(-1, 0);
    pthread_join(thread, NULL);
    CHECK(load_now_ns() - start < 8 * SECOND);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
