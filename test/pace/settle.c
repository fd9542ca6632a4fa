/* SPDX-License-Identifier: Apache-2.0 */
/* What passes by its estimate and is settled by the governor, by another thread's look or under
 * another name of its meter is charged once, and what waits meanwhile is measured. */
#include "load.h"

#include "sim/machine/machine.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#define LIMIT_50 .environment = {"CUDA_DEVICE_SM_LIMIT=50"}
#define ROUNDS 40
#define SHORT_NS (20 * US)
#define SHORTS 20

static CUfunction known;
static CUcontext main_context;
static pthread_barrier_t barrier;

/* Most of them pass by their estimate. Then the stream is idle, and the governor sees it. */
static void launch_shorts(CUstream stream, int count)
{
    for (int i = 0; i < count; i++)
        CHECK_EQ(load_launch_of(known, stream, SHORT_NS), CUDA_SUCCESS);
}

static void know_shorts(void)
{
    load_begin(0);
    known = load_kernel();
    for (int i = 0; i < 20; i++) {
        launch_shorts(NULL, 1);
        CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    }
    load_settle();
}

static void *look_each_round(void *kernel)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(main_context), CUDA_SUCCESS);
    for (int i = 0; i < ROUNDS; i++) {
        (void)pthread_barrier_wait(&barrier);
        CHECK_EQ(load_launch_of(kernel, NULL, 1200 * US), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
        (void)pthread_barrier_wait(&barrier);
    }
    return NULL;
}

BED_TEST(
    "what another thread's look has settled is not settled again when the stream is idle", LIMIT_50)
{
    pthread_t thread;
    know_shorts();
    CUfunction longer = load_kernel();
    REQUIRE(CU(cuCtxGetCurrent)(&main_context) == CUDA_SUCCESS);
    REQUIRE(pthread_barrier_init(&barrier, NULL, 2) == 0);
    struct load_state from = load_state(0);
    REQUIRE(pthread_create(&thread, NULL, look_each_round, longer) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        launch_shorts(NULL, SHORTS);
        (void)pthread_barrier_wait(&barrier); /* it looks */
        (void)pthread_barrier_wait(&barrier);
        launch_shorts(NULL, 1);
        bed_sleep_ms(40);
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
    load_check_measured(&from);
}

static void capture_nothing(CUstream stream)
{
    CUgraph graph;
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    if (graph)
        CHECK_EQ(CU(cuGraphDestroy)(graph), CUDA_SUCCESS);
}

BED_TEST(
    "what was settled on an idle stream is charged once, though a capture begins there", LIMIT_50)
{
    know_shorts();
    CUstream stream = load_stream();
    launch_shorts(stream, SHORTS);
    load_settle();
    struct load_state from = load_state(0);
    for (int i = 0; i < ROUNDS; i++) {
        launch_shorts(stream, SHORTS);
        bed_sleep_ms(40);
        capture_nothing(stream);
    }
    load_settle();
    struct load_state to = load_state(0);
    CHECK_EQ(to.busy_ns - from.busy_ns, ROUNDS * SHORTS * SHORT_NS);
    CHECK(to.charged_ns - from.charged_ns < (int64_t)(ROUNDS * SHORTS * SHORT_NS + 5 * MS));
}

/* Nothing that is put there runs before its graphics API runs the list: a timing event would never
 * come. */
static void check_no_event_in_list(CUstream stream, bool per_thread)
{
    int unused;
    CUstreamCigParam param = {STREAM_CIG_DATA_TYPE_VULKAN_COMMAND_BUFFER_HANDLE_NV, &unused};
    CUstreamCigCaptureParams list = {&param};
    CHECK_EQ(per_thread ? CU(cuStreamBeginCaptureToCig_ptsz)(stream, &list)
                        : CU(cuStreamBeginCaptureToCig)(stream, &list),
        CUDA_SUCCESS);
    CHECK(CU(cuStreamBeginCaptureToCig)(stream, &list) != CUDA_SUCCESS); /* and goes on */
    uint64_t events = sim_calls("cuEventRecord");
    for (int i = 0; i < 100; i++)
        launch_shorts(stream, SHORTS);
    CHECK_EQ(sim_calls("cuEventRecord"), events);
    CHECK_EQ(
        per_thread ? CU(cuStreamEndCaptureToCig_ptsz)(stream) : CU(cuStreamEndCaptureToCig)(stream),
        CUDA_SUCCESS);
    for (int i = 0; i < 100; i++)
        launch_shorts(stream, SHORTS);
    CHECK(sim_calls("cuEventRecord") > events);
}

BED_TEST("no timing event goes into a command list that a stream captures into, and some do again "
         "after it",
    LIMIT_50, .sim = "cuda=13010")
{
    know_shorts();
    check_no_event_in_list(load_stream(), false);
    check_no_event_in_list(CU_STREAM_PER_THREAD, true);
    CUstream stream = load_stream();
    CHECK_EQ(CU(cuStreamBeginCaptureToCig)(stream, NULL), CUDA_ERROR_INVALID_VALUE);
    uint64_t events = sim_calls("cuEventRecord");
    for (int i = 0; i < 100; i++)
        launch_shorts(stream, SHORTS);
    CHECK(sim_calls("cuEventRecord") > events);
}

static void *begin_list_and_end(void *context)
{
    static int unused;
    CUstreamCigParam param = {STREAM_CIG_DATA_TYPE_VULKAN_COMMAND_BUFFER_HANDLE_NV, &unused};
    CUstreamCigCaptureParams list = {&param};
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamBeginCaptureToCig_ptsz)(NULL, &list), CUDA_SUCCESS);
    return NULL;
}

static void *launch_with_event(void *context)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    uint64_t events = sim_calls("cuEventRecord");
    for (int i = 0; i < 100; i++)
        launch_shorts(CU_STREAM_PER_THREAD, SHORTS);
    CHECK(sim_calls("cuEventRecord") > events);
    return NULL;
}

BED_TEST("what a thread's own stream captured does not count for the next thread's", LIMIT_50,
    .sim = "cuda=13010")
{
    CUcontext context;
    pthread_t thread;
    know_shorts();
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, begin_list_and_end, context) == 0);
    pthread_join(thread, NULL);
    REQUIRE(pthread_create(&thread, NULL, launch_with_event, context) == 0);
    pthread_join(thread, NULL);
}

static bool captures_are_over;

static void *capture_elsewhere(void *context)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    CUstream stream = load_stream();
    while (!__atomic_load_n(&captures_are_over, __ATOMIC_RELAXED)) {
        capture_nothing(stream);
        usleep(500);
    }
    return NULL;
}

BED_TEST("launches that wait at the gate while another thread begins captures are measured",
    .environment = {"CUDA_DEVICE_SM_LIMIT=20"})
{
    pthread_t thread;
    load_begin(0);
    REQUIRE(CU(cuCtxGetCurrent)(&main_context) == CUDA_SUCCESS);
    CUfunction kernel = load_kernel();
    for (int i = 0; i < 100; i++)
        CHECK_EQ(load_launch_of(kernel, NULL, 2 * MS), CUDA_SUCCESS);
    load_settle();
    struct load_state from = load_state(0);
    REQUIRE(pthread_create(&thread, NULL, capture_elsewhere, main_context) == 0);
    for (int i = 0; i < 200; i++)
        CHECK_EQ(load_launch_of(kernel, NULL, 2 * MS), CUDA_SUCCESS);
    __atomic_store_n(&captures_are_over, true, __ATOMIC_RELAXED);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    load_check_measured(&from);
}

/* A wait, by which the first launch behind it is looked at, and others that go by their estimate,
 * which took a ninth of that when it was learnt. */
static void launch_round(CUstream stream, CUevent event, CUfunction first)
{
    CHECK_EQ(CU(cuStreamWaitEvent)(stream, event, 0), CUDA_SUCCESS);
    CHECK_EQ(load_launch_of(first, stream, 60 * US), CUDA_SUCCESS);
    for (int i = 0; i < SHORTS; i++)
        CHECK_EQ(load_launch_of(known, stream, 9 * SHORT_NS), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    usleep(3000);
}

BED_TEST("kernels that have grown longer are measured again, though a round's first is looked at",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    CUevent event;
    know_shorts();
    CUfunction first = load_kernel();
    CUstream stream = load_stream();
    REQUIRE(CU(cuEventCreate)(&event, 0) == CUDA_SUCCESS);
    REQUIRE(CU(cuEventRecord)(event, stream) == CUDA_SUCCESS);
    for (int i = 0; i < 200; i++)
        launch_round(stream, event, first);
    load_settle();
    struct load_state from = load_state(0);
    for (int i = 0; i < 200; i++)
        launch_round(stream, event, first);
    load_check_measured(&from);
}

/* ---- a program that waits for each of its launches ---- */

#define WAITED_NS (100 * US)
#define WAITED 1000
#define ATTEMPTS 30

static void wait_for_each(uint64_t duration_ns, int count)
{
    for (int i = 0; i < count; i++) {
        CHECK_EQ(load_launch_of(known, NULL, duration_ns), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    }
}

/* A loaded computer may make a launch late, which is looked at for that. */
BED_TEST("of launches that are waited for less than one in a hundred is measured, and all are "
         "charged",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    uint64_t least = UINT64_MAX;
    load_begin(0);
    known = load_kernel();
    wait_for_each(WAITED_NS, 400);
    struct load_state from = load_state(0);
    for (int i = 0; i < ATTEMPTS && least > WAITED / 30; i++) {
        uint64_t before = sim_calls("cuEventRecord");
        wait_for_each(WAITED_NS, WAITED);
        uint64_t records = sim_calls("cuEventRecord") - before;
        least = records < least ? records : least;
    }
    load_settle();
    struct load_state to = load_state(0);
    uint64_t busy = to.busy_ns - from.busy_ns, measured = to.measured_ns - from.measured_ns;
    CHECK(measured > busy - busy / 10 && measured < busy + busy / 2);
    if (!CHECK(least <= WAITED / 30)) /* four timing events each */
        dprintf(STDOUT_FILENO, "# %llu timing events for %d launches\n", (unsigned long long)least,
            WAITED);
}

BED_TEST("and where they take longer from then on, that is seen",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    load_begin(0);
    known = load_kernel();
    wait_for_each(WAITED_NS, 2000);
    struct load_state from = load_state(0);
    wait_for_each(3 * WAITED_NS, 6000);
    load_check_measured(&from);
}

/* A look is due after 20 ms of GPU time at most, which are 200 launches. */
BED_TEST("and where they are queued from then on, that is seen, too",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    load_begin(0);
    known = load_kernel();
    for (int round = 0; round < 6; round++) {
        wait_for_each(WAITED_NS, 1500);
        load_settle();
        bed_sleep_ms(200);
        uint64_t before = sim_calls("cuEventRecord"), queued = 0;
        while (sim_calls("cuEventRecord") - before < 3 && queued < 400) {
            CHECK_EQ(load_launch_of(known, NULL, WAITED_NS), CUDA_SUCCESS);
            queued++;
        }
        if (!CHECK(queued < 250))
            dprintf(STDOUT_FILENO, "# %llu launches\n", (unsigned long long)queued);
        load_settle();
    }
}

/* ---- requests: a launch, a wait for it, and a while of nothing ---- */

#define REQUEST_NS (600 * US)
#define REQUESTS 100

static void request(CUstream stream, uint64_t duration_ns, unsigned pause_us)
{
    CHECK_EQ(load_launch_of(known, stream, duration_ns), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    usleep(pause_us);
}

static CUstream requests_begin(void)
{
    load_begin(0);
    known = load_kernel();
    CUstream stream = load_stream();
    for (int i = 0; i < 60; i++)
        request(stream, REQUEST_NS, 3000);
    return stream;
}

/* The fewest timing events that REQUESTS of them had, of several attempts, until they had no more
 * than `most`: whether they come each 3 ms, or each other time as rarely as `pause_us` says. */
static uint64_t fewest_events(CUstream stream, uint64_t most, unsigned pause_us)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < ATTEMPTS && least > most; i++) {
        uint64_t before = sim_calls("cuEventRecord");
        for (int k = 0; k < REQUESTS; k++)
            request(stream, REQUEST_NS, i % 2 ? pause_us : 3000);
        uint64_t records = sim_calls("cuEventRecord") - before;
        least = records < least ? records : least;
    }
    if (least > most)
        dprintf(STDOUT_FILENO, "# %llu timing events for %d requests\n", (unsigned long long)least,
            REQUESTS);
    return least;
}

/* Where a loaded computer keeps a thread from running before it waits, the next requests are looked
 * at for that. */
BED_TEST("of requests that come rarely less than one in ten has more than a timing event behind it",
    .environment = {"CUDA_DEVICE_SM_LIMIT=50"})
{
    const uint64_t most = REQUESTS + REQUESTS / 10;
    CHECK(fewest_events(requests_begin(), most, 10000) <= most);
}

/* Each is looked at by its thread's clock, and the first of those that took longer have one each.
 */
BED_TEST("most of them have none once they take what is thought",
    .environment = {"CUDA_DEVICE_SM_LIMIT=50"})
{
    CUstream stream = requests_begin();
    struct load_state from = load_state(0);
    CHECK(fewest_events(stream, REQUESTS / 2, 3000) <= REQUESTS / 2);
    load_check_measured(&from);
}

static void of_two_kernels(CUstream stream)
{
    CHECK_EQ(load_launch_of(known, stream, REQUEST_NS / 2), CUDA_SUCCESS);
    CHECK_EQ(load_launch_of(known, stream, REQUEST_NS / 2), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
}

static void behind_a_copy(CUstream stream)
{
    static CUdeviceptr memory;
    static char bytes[4096];
    if (!memory)
        REQUIRE(CU(cuMemAlloc_v2)(&memory, sizeof(bytes)) == CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemcpyHtoDAsync_v2)(memory, bytes, sizeof(bytes), stream), CUDA_SUCCESS);
    CHECK_EQ(load_launch_of(known, stream, REQUEST_NS), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
}

static void awaited_by_the_context(CUstream stream)
{
    CHECK_EQ(load_launch_of(known, stream, REQUEST_NS), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
}

static void asked_for(CUstream stream)
{
    CHECK_EQ(load_launch_of(known, stream, REQUEST_NS), CUDA_SUCCESS);
    while (CU(cuStreamQuery)(stream) == CUDA_ERROR_NOT_READY)
        usleep(50);
}

BED_TEST("those of several kernels, behind a copy, or waited for otherwise have one each",
    .environment = {"CUDA_DEVICE_SM_LIMIT=50"})
{
    void (*const kinds[])(CUstream) = {
        of_two_kernels, behind_a_copy, awaited_by_the_context, asked_for};
    CUstream stream = requests_begin();
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct load_state from = load_state(0);
        uint64_t before = sim_calls("cuEventRecord");
        for (int k = 0; k < REQUESTS; k++) {
            kinds[i](stream);
            usleep(3000);
        }
        uint64_t records = sim_calls("cuEventRecord") - before;
        if (!CHECK(records >= REQUESTS - REQUESTS / 10))
            dprintf(
                STDOUT_FILENO, "# kind %u: %llu timing events\n", i, (unsigned long long)records);
        load_check_measured(&from);
    }
}

/* An estimate stands where a round was shorter, up to what it took by the processor's clock, which
 * is more where the computer is loaded. */
static void check_charged(const struct load_state *from)
{
    load_settle();
    struct load_state to = load_state(0);
    uint64_t busy = to.busy_ns - from->busy_ns, measured = to.measured_ns - from->measured_ns;
    dprintf(STDOUT_FILENO, "# busy %llu us, measured %llu us\n", (unsigned long long)(busy / 1000),
        (unsigned long long)(measured / 1000));
    CHECK(measured > busy - busy / 10 && measured < busy + busy / 6);
}

/* Before any timing event was seen as soon as it was reached. */
BED_TEST("the first ones are charged with what they take, too",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    load_begin(0);
    known = load_kernel();
    CUstream stream = load_stream();
    for (int k = 0; k < 10; k++)
        request(stream, REQUEST_NS, 3000);
    struct load_state from = load_state(0);
    for (int k = 0; k < 30; k++)
        request(stream, REQUEST_NS, 3000);
    check_charged(&from);
}

BED_TEST("and all are charged, also where they take longer from then on, or less",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    static const uint64_t durations[] = {REQUEST_NS, 6 * REQUEST_NS, REQUEST_NS / 2};
    CUstream stream = requests_begin();
    for (int i = 0; i < 3; i++) {
        struct load_state from = load_state(0);
        for (int k = 0; k < REQUESTS; k++)
            request(stream, durations[i], 3000);
        check_charged(&from);
    }
}

/* Each is within what the governor takes for a kernel that runs on. */
BED_TEST("and where one of twenty takes much longer than the others, by which it was admitted",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    CUstream stream = requests_begin();
    struct load_state from = load_state(0);
    for (int i = 1; i < 6 * REQUESTS; i++)
        request(stream, i % 20 ? REQUEST_NS : 8 * REQUEST_NS, 3000);
    check_charged(&from);
}

BED_TEST("what the thread does between a launch and its wait is not charged",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    CUstream stream = requests_begin();
    struct load_state from = load_state(0);
    for (int i = 0; i < 3 * REQUESTS; i++) {
        CHECK_EQ(load_launch_of(known, stream, REQUEST_NS), CUDA_SUCCESS);
        usleep(5000);
        CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
        usleep(3000);
    }
    check_charged(&from);
}

/* One in so many of the launches of a kernel takes 200 times as long as the others, and all are
 * waited for. */
BED_TEST("and where one of twenty that follow each other at once takes much longer",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    CUstream stream = requests_begin();
    struct load_state from = load_state(0);
    for (int i = 1; i < 40 * REQUESTS; i++)
        request(stream, i % 20 ? 20 * US : 4 * MS, 0);
    check_charged(&from);
}

/* Each of them is admitted by estimate, and nothing but a timing event right behind it tells how
 * long it took. */
static void run_behind(void (*next)(CUstream stream))
{
    CUstream stream = requests_begin();
    struct load_state from = load_state(0);
    for (int i = 1; i < 3 * REQUESTS; i++) {
        if (i % 10) {
            request(stream, REQUEST_NS, 3000);
            continue;
        }
        CHECK_EQ(load_launch_of(known, stream, 20 * REQUEST_NS), CUDA_SUCCESS);
        next(stream);
        CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
        usleep(3000);
    }
    check_charged(&from);
}

BED_TEST("and where a capture begins behind one that takes longer",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    run_behind(capture_nothing);
}

static void wait_for_nothing(CUstream stream)
{
    static CUevent event;
    if (!event) {
        REQUIRE(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
        CUstream other = load_stream();
        CHECK_EQ(CU(cuEventRecord)(event, other), CUDA_SUCCESS);
        CHECK_EQ(CU(cuStreamSynchronize)(other), CUDA_SUCCESS);
    }
    CHECK_EQ(CU(cuStreamWaitEvent)(stream, event, 0), CUDA_SUCCESS);
}

BED_TEST("and where its stream is told to wait for something that is over",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    run_behind(wait_for_nothing);
}

static void nap(int number)
{
    (void)number;
    (void)!poll(NULL, 0, 60);
}

/* As where the container's part of the processors is used up, or a debugger looks. The timing event
 * behind each request says that it was not the device. */
BED_TEST(
    "the time for which a thread is stopped while it waits is not charged, and raises no distrust",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    CUstream stream = requests_begin();
    struct load_state from = load_state(0);
    uint64_t records = sim_calls("cuEventRecord");
    REQUIRE(signal(SIGALRM, nap) != SIG_ERR);
    for (int i = 1; i < 3 * REQUESTS; i++) {
        if (i % 10 == 0)
            CHECK_EQ(setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = 300}, NULL), 0);
        request(stream, REQUEST_NS, 3000);
    }
    records = sim_calls("cuEventRecord") - records;
    if (!CHECK(records < 4 * REQUESTS))
        dprintf(STDOUT_FILENO, "# %llu timing events\n", (unsigned long long)records);
    check_charged(&from);
}

BED_TEST("what began when nothing was limited yet does not hide what comes after",
    .environment = {"CUDA_DEVICE_SM_LIMIT=0"})
{
    load_begin(0);
    CHECK_EQ(load_launch(NULL, MS), CUDA_SUCCESS);
    load_set(-1, 50);
    CUstream stream = requests_begin();
    bed_sleep_ms(3500); /* its share is not shown any more, and nobody looks soon */
    struct load_state from = load_state(0);
    request(stream, REQUEST_NS, 3000);
    CHECK_EQ(load_launch_of(known, stream, 900 * MS), CUDA_SUCCESS);
    bed_sleep_ms(950);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    load_check_measured(&from);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
