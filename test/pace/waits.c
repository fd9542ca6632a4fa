/* SPDX-License-Identifier: Apache-2.0 */
/* Launches that wait for their kernel in the driver's call, as all do with CUDA_LAUNCH_BLOCKING=1:
 * what passes in the call is the kernel's own time. */
#include "load.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCKING(percent)                                                                          \
    .environment = {"CUDA_DEVICE_SM_LIMIT=" #percent, "CUDA_LAUNCH_BLOCKING=1"}

/* A thread wakes up late, and what it waited is charged: it may use less than its limit. */
static void check_at_most(uint64_t duration_ns, unsigned percent)
{
    CUstream stream = load_stream();
    struct load_state from = load_state(0);
    while (load_now_ns() < from.now_ns + SECOND)
        CHECK_EQ(load_launch(stream, duration_ns), CUDA_SUCCESS);
    load_settle();
    struct load_state to = load_state(0);
    load_check_at_most(&from, &to, percent);
    CHECK(to.measured_ns - from.measured_ns >= (to.busy_ns - from.busy_ns) * 9 / 10);
}

BED_TEST("kernels of 1 ms whose launches wait for them are held to the limit", BLOCKING(50))
{
    load_begin(0);
    check_at_most(MS, 50);
}

BED_TEST("so are short ones", BLOCKING(20))
{
    load_begin(0);
    check_at_most(100 * US, 20);
}

BED_TEST("and shorter ones", BLOCKING(20))
{
    load_begin(0);
    check_at_most(30 * US, 20);
}

BED_TEST("and long ones", BLOCKING(50))
{
    load_begin(0);
    check_at_most(20 * MS, 50);
}

static CUstream waited_for;

static void *launch_long(void *context)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    (void)load_launch(waited_for, 20 * SECOND);
    return NULL;
}

/* On the stream, by another thread. */
static void check_long_is_held(CUstream stream)
{
    CUcontext context;
    pthread_t thread;
    waited_for = stream;
    REQUIRE(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, launch_long, context) == 0);
    load_check_held(0, 30);
    END_TEST();
}

BED_TEST("and one that hardly ends, while its launch waits for it", BLOCKING(30))
{
    load_begin(0);
    check_long_is_held(NULL);
}

BED_TEST("also on the thread's own stream", BLOCKING(30))
{
    load_begin(0);
    check_long_is_held(CU_STREAM_PER_THREAD);
}

BED_TEST("one that takes longer than it did is charged from its beginning", BLOCKING(95))
{
    load_begin(0);
    CUstream stream = load_stream();
    load_learn(stream, 50 * MS, 5);
    struct load_state from = load_state(0);
    CHECK_EQ(load_launch(stream, 70 * MS), CUDA_SUCCESS);
    CHECK_EQ(load_launch(stream, 600 * MS), CUDA_SUCCESS);
    uint64_t called = load_now_ns() - from.now_ns;
    load_settle();
    struct load_state to = load_state(0);
    uint64_t measured = to.measured_ns - from.measured_ns;
    CHECK(measured >= 650 * MS && measured <= called + 20 * MS);
    CHECK(to.charged_ns - from.charged_ns >= (int64_t)(650 * MS));
}

BED_TEST("so are those that a debugger makes wait", .environment = {"CUDA_DEVICE_SM_LIMIT=50"})
{
    load_begin(0);
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1); /* too late for any but the simulator */
    check_at_most(MS, 50);
}

BED_TEST("what a launch waited for is charged, and no more", BLOCKING(95))
{
    load_begin(0);
    CUstream stream = load_stream();
    load_learn(stream, 2 * MS, 5);
    struct load_state from = load_state(0);
    for (int i = 0; i < 40; i++)
        CHECK_EQ(load_launch(stream, 2 * MS), CUDA_SUCCESS);
    uint64_t called = load_now_ns() - from.now_ns;
    load_settle();
    struct load_state to = load_state(0);
    uint64_t busy = to.busy_ns - from.busy_ns, measured = to.measured_ns - from.measured_ns;
    CHECK_EQ(busy, 80 * MS);
    CHECK(measured >= busy - busy / 20 && measured <= called + busy / 20);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
