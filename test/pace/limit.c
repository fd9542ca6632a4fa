/* SPDX-License-Identifier: Apache-2.0 */
/* A compute limit's share: none without a limit, the same for every way to launch, and another one
 * while the program runs. */
#include "load.h"

#include "abi/nvml.h"
#include "sim/machine/machine.h"

#include <pthread.h>

/* ---- without a limit ---- */

static uint64_t calls_of_ours(void)
{
    return sim_calls("cuEventCreate") + sim_calls("cuEventRecord") + sim_calls("cuEventQuery") +
           sim_calls("cuEventElapsedTime") + sim_calls("cuEventDestroy_v2");
}

/* Launches for a quarter of a second: looks for a limit come each 5 ms. */
static uint64_t launch_for_a_while(CUstream stream)
{
    uint64_t end = load_now_ns() + 250 * MS, launches = 0;
    for (; load_now_ns() < end; launches++) {
        if (!CHECK_EQ(load_launch(launches % 2 ? stream : NULL, 2 * US), CUDA_SUCCESS))
            break;
        if (launches % 100 == 99)
            CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    }
    return launches;
}

static void check_untouched(unsigned more_threads)
{
    load_begin(0);
    CUstream stream = load_stream();
    unsigned threads = load_threads() + more_threads;
    uint64_t events = calls_of_ours(), launched = sim_calls("cuLaunchKernel");
    uint64_t launches = launch_for_a_while(stream);
    CHECK(launches > 100);
    CHECK_EQ(sim_calls("cuLaunchKernel") - launched, launches);
    CHECK_EQ(calls_of_ours() - events, 0);
    CHECK_EQ(load_threads(), threads);
    struct load_state state = load_state(0);
    CHECK_EQ(state.measured_ns, 0);
    CHECK_EQ(state.charged_ns, 0);
    CHECK_EQ(state.granted_ns, 0);
}

BED_TEST("without a compute limit nothing is recorded or asked, and no thread is made")
{
    check_untouched(0);
}

BED_TEST("nor with a memory limit alone, but a thread that sleeps until the container is paused",
    .limit = "4GiB")
{
    check_untouched(1);
}

BED_TEST("nor at 100 %", .environment = {"CUDA_DEVICE_SM_LIMIT=100"})
{
    check_untouched(0);
}

BED_TEST("nor where the policy switches compute limits off, with such a thread",
    .environment = {"CUDA_DEVICE_SM_LIMIT=10", "GPU_CORE_UTILIZATION_POLICY=disable"})
{
    check_untouched(1);
}

BED_TEST("under a limit events are recorded, and there is one thread more",
    .environment = {"CUDA_DEVICE_SM_LIMIT=50"})
{
    load_begin(0);
    CUstream stream = load_stream();
    unsigned threads = load_threads();
    uint64_t events = calls_of_ours();
    (void)launch_for_a_while(stream);
    CHECK(calls_of_ours() > events);
    CHECK_EQ(load_threads(), threads + 1);
}

/* ---- ways to launch ---- */

BED_TEST(
    "kernels of 1 ms on one stream keep to the limit", .environment = {"CUDA_DEVICE_SM_LIMIT=30"})
{
    load_begin(0);
    struct load load = {.step = load_step_plain, .duration_ns = MS, .streams = {load_stream()}};
    load_check_share(&load, 0, 30);
}

BED_TEST("so do kernels of 100 us, at a high limit", .environment = {"CUDA_DEVICE_SM_LIMIT=60"})
{
    load_begin(0);
    struct load load = {
        .step = load_step_plain, .duration_ns = 100 * US, .streams = {load_stream()}};
    load_check_share(&load, 0, 60);
}

BED_TEST("and kernels of 20 ms, at a low one", .environment = {"CUDA_DEVICE_SM_LIMIT=20"})
{
    load_begin(0);
    struct load load = {
        .step = load_step_plain, .duration_ns = 20 * MS, .streams = {load_stream()}};
    load_check_share(&load, 0, 20);
}

static CUresult step_graph(struct load *load, uint64_t number)
{
    (void)number;
    return CU(cuGraphLaunch)(load->own, load->streams[0]);
}

BED_TEST("graphs keep to the limit", .environment = {"CUDA_DEVICE_SM_LIMIT=30"})
{
    CUgraph graph;
    CUgraphExec exec;
    load_begin(0);
    struct load load = {.step = step_graph, .streams = {load_stream()}};
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(load.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(load_launch(load.streams[0], 100 * US), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamEndCapture)(load.streams[0], &graph), CUDA_SUCCESS);
    REQUIRE(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0) == CUDA_SUCCESS);
    load.own = exec;
    load_check_share(&load, 0, 30);
}

static CUresult step_cooperative(struct load *load, uint64_t number)
{
    void *params[] = {&load->duration_ns};
    (void)number;
    return CU(cuLaunchCooperativeKernel)(
        load->own, 132, 1, 1, 256, 1, 1, 0, load->streams[0], params);
}

BED_TEST("cooperative launches keep to the limit", .environment = {"CUDA_DEVICE_SM_LIMIT=30"})
{
    load_begin(0);
    struct load load = {.step = step_cooperative,
        .duration_ns = MS,
        .streams = {load_stream()},
        .own = load_kernel()};
    load_check_share(&load, 0, 30);
}

static CUresult step_per_thread(struct load *load, uint64_t number)
{
    void *params[] = {&load->duration_ns};
    CUresult result = CU(cuLaunchKernel_ptsz)(load->own, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
    if (number % 16 == 15)
        CHECK_EQ(CU(cuStreamSynchronize_ptsz)(NULL), CUDA_SUCCESS);
    return result;
}

BED_TEST("launches on the thread's own stream keep to the limit",
    .environment = {"CUDA_DEVICE_SM_LIMIT=30"})
{
    load_begin(0);
    struct load load = {
        .step = step_per_thread, .duration_ns = MS, .own = load_kernel(), .waits = true};
    load_check_share(&load, 0, 30);
}

static CUresult step_streams(struct load *load, uint64_t number)
{
    return load_launch(load->streams[number % 4], load->duration_ns);
}

BED_TEST("four streams keep to the limit together", .environment = {"CUDA_DEVICE_SM_LIMIT=30"})
{
    load_begin(0);
    struct load load = {.step = step_streams, .duration_ns = 500 * US};
    for (int i = 0; i < 4; i++)
        load.streams[i] = load_stream();
    load_check_share(&load, 0, 30);
}

/* What is admitted is bounded by the time that passed, and that is the longer the slower we are. */
/* How often a launch waits, while the load has `ms` of GPU time. */
static unsigned count_waits(struct load *load, unsigned ms)
{
    unsigned waits = 0;
    uint64_t end = load_state(0).busy_ns + ms * MS;
    while (load_state(0).busy_ns < end) {
        uint64_t before = load_now_ns();
        CHECK_EQ(load->step(load, load->number++), CUDA_SUCCESS);
        waits += load_now_ns() - before > 3 * MS;
    }
    return waits;
}

BED_TEST(
    "what several streams have at a time is 4 ms long", .environment = {"CUDA_DEVICE_SM_LIMIT=10"})
{
    load_begin(0);
    struct load load = {.step = step_streams, .duration_ns = MS};
    for (int i = 0; i < 4; i++)
        load.streams[i] = load_stream();
    (void)count_waits(&load, 50);
    unsigned waits = count_waits(&load, 100);
    /* 20 to 25, and fewer where the load itself was kept from running; of 2 ms each, 50. */
    CHECK(waits <= 35);
    dprintf(STDOUT_FILENO, "# %u waits in 100 ms of GPU time\n", waits);
    load_settle();
}

BED_TEST("what many streams have waiting is admitted within the limit",
    .environment = {"CUDA_DEVICE_SM_LIMIT=50"})
{
    load_begin(0);
    CUstream first = load_stream();
    load_learn(first, 4 * MS, 3);
    struct load_state from = load_state(0);
    for (int i = 0; i < 60; i++) {
        CHECK_EQ(load_launch(load_stream(), 4 * MS), CUDA_SUCCESS);
        struct load_state to = load_state(0);
        to.busy_ns = from.busy_ns + (uint64_t)(i + 1) * 4 * MS;
        load_check_at_most(&from, &to, 50);
    }
}

struct two_contexts {
    CUcontext contexts[2];
    CUfunction kernels[2];
    CUstream streams[2];
};

static CUresult step_contexts(struct load *load, uint64_t number)
{
    const struct two_contexts *two = load->own;
    unsigned at = number / 8 % 2;
    if (number % 8 == 0)
        CHECK_EQ(CU(cuCtxSetCurrent)(two->contexts[at]), CUDA_SUCCESS);
    CUresult result = load_launch_of(two->kernels[at], two->streams[at], load->duration_ns);
    if (number % 32 == 31)
        CHECK_EQ(CU(cuStreamSynchronize)(two->streams[at]), CUDA_SUCCESS);
    return result;
}

BED_TEST("two contexts of a program keep to the limit together",
    .environment = {"CUDA_DEVICE_SM_LIMIT=30"})
{
    struct two_contexts two;
    load_begin(0);
    for (int i = 0; i < 2; i++) {
        REQUIRE(CU(cuCtxCreate_v2)(&two.contexts[i], 0, 0) == CUDA_SUCCESS);
        two.kernels[i] = load_kernel();
        two.streams[i] = load_stream();
    }
    struct load load = {.step = step_contexts, .duration_ns = 500 * US, .own = &two, .waits = true};
    load_check_share(&load, 0, 30);
}

static CUresult step_wait(struct load *load, uint64_t number)
{
    (void)number;
    CUresult result = load_launch(load->streams[0], load->duration_ns);
    return result ? result : CU(cuStreamSynchronize)(load->streams[0]);
}

BED_TEST("a program that waits for each launch keeps to the limit",
    .environment = {"CUDA_DEVICE_SM_LIMIT=20"})
{
    load_begin(0);
    struct load load = {
        .step = step_wait, .duration_ns = 2 * MS, .streams = {load_stream()}, .waits = true};
    load_check_share(&load, 0, 20);
}

/* The processor waits for each look: who is to notice nothing is looked at rarely. */
static void check_looked_at_rarely(struct load *load, unsigned one_in)
{
    load_run(load, load_now_ns() + 500 * MS);
    uint64_t launches = 0, records = 0;
    /* A loaded computer may make a launch late, which is looked at for that. */
    for (int i = 0; i < 20 && records / 4 * one_in >= launches; i++) {
        launches = load->number;
        records = sim_calls("cuEventRecord");
        load_run(load, load_now_ns() + 500 * MS);
        launches = load->number - launches;
        records = sim_calls("cuEventRecord") - records; /* four at each look */
    }
    if (!CHECK(records > 0 && records / 4 * one_in < launches))
        dprintf(STDOUT_FILENO, "# %llu events, %llu launches\n", (unsigned long long)records,
            (unsigned long long)launches);
}

BED_TEST("below its limit, of short launches that are waited for, less than one in 80 is looked at",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    load_begin(0);
    struct load load = {
        .step = step_wait, .duration_ns = 100 * US, .streams = {load_stream()}, .waits = true};
    check_looked_at_rarely(&load, 80);
}

#define SHAPES 400

/* How long so many kernels of 40 us took, no two of which have the same shape. */
static uint64_t run_shapes(CUfunction kernel, CUstream stream, unsigned attempt)
{
    uint64_t duration_ns = 40 * US, begun_ns = load_now_ns();
    void *params[] = {&duration_ns};
    for (unsigned i = 1; i <= SHAPES; i++)
        CHECK_EQ(CU(cuLaunchKernel)(kernel, i, attempt, 1, 32, 1, 1, 0, stream, params, NULL), 0);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    return load_now_ns() - begun_ns;
}

BED_TEST("launches of a new shape each follow one another without a pause",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    load_begin(0);
    CUfunction kernel = load_kernel();
    CUstream stream = load_stream();
    uint64_t best_ns = UINT64_MAX;
    for (unsigned i = 1; i <= 20 && best_ns > SHAPES * 60 * US; i++) {
        uint64_t took_ns = run_shapes(kernel, stream, i);
        best_ns = took_ns < best_ns ? took_ns : best_ns;
        bed_sleep_ms(100);
    }
    if (!CHECK(best_ns < SHAPES * 60 * US))
        dprintf(STDOUT_FILENO, "# %llu us\n", (unsigned long long)(best_ns / US));
}

/* As runtimes do that are told the same device again. */
static CUresult step_current(struct load *load, uint64_t number)
{
    CUcontext context;
    CHECK_EQ(CU(cuCtxSetCurrent)(load->own), CUDA_SUCCESS);
    if (number % 2) {
        CHECK_EQ(CU(cuCtxPushCurrent_v2)(load->own), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxPopCurrent_v2)(&context), CUDA_SUCCESS);
    }
    return step_wait(load, number);
}

BED_TEST("also where the context that is current is made so before each",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    load_begin(0);
    struct load load = {
        .step = step_current, .duration_ns = 100 * US, .streams = {load_stream()}, .waits = true};
    CHECK_EQ(CU(cuCtxGetCurrent)((CUcontext *)&load.own), CUDA_SUCCESS);
    check_looked_at_rarely(&load, 30);
}

/* Each eight launches have a stream of their own. */
static CUresult step_short_lived(struct load *load, uint64_t number)
{
    CUstream stream = load_stream();
    CUresult result = CUDA_SUCCESS;
    (void)number;
    for (int i = 0; i < 8 && result == CUDA_SUCCESS; i++)
        result = load_launch(stream, load->duration_ns);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamDestroy_v2)(stream), CUDA_SUCCESS);
    return result;
}

#define MANY_STREAMS 32

BED_TEST("launches on 32 streams in turn ask the driver hardly more than those on one",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    CUstream streams[MANY_STREAMS];
    load_begin(0);
    CUfunction kernel = load_kernel();
    for (int i = 0; i < MANY_STREAMS; i++)
        streams[i] = load_stream();
    uint64_t asked = 0;
    for (int i = 0; i < 100 * MANY_STREAMS; i++) {
        if (i == 40 * MANY_STREAMS)
            asked = sim_calls("cuStreamIsCapturing");
        CHECK_EQ(load_launch_of(kernel, streams[i % MANY_STREAMS], 5 * US), CUDA_SUCCESS);
        if (i % (4 * MANY_STREAMS) == 0)
            CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    }
    asked = sim_calls("cuStreamIsCapturing") - asked;
    if (!CHECK(asked < 60 * MANY_STREAMS / 2))
        dprintf(STDOUT_FILENO, "# asked %llu times\n", (unsigned long long)asked);
}

/* But its own launch. A closer look, each millisecond or two of GPU time, asks some ten times; on a
 * loaded computer there are more. */
BED_TEST("the usual launch under a limit asks the driver nothing",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    load_begin(0);
    CUfunction kernel = load_kernel();
    CUstream stream = load_stream();
    const uint64_t launches = 4000, at_once = 100;
    uint64_t least = UINT64_MAX;
    for (int attempt = 0; attempt < 5 && least >= launches / 10; attempt++) {
        uint64_t calls = sim_calls_all("cu");
        for (unsigned i = 0; i < launches; i++) {
            CHECK_EQ(load_launch_of(kernel, stream, 5 * US), CUDA_SUCCESS);
            if (i % at_once == 0)
                CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
        }
        calls = sim_calls_all("cu") - calls - launches - launches / at_once;
        least = calls < least ? calls : least;
    }
    if (!CHECK(least < launches / 10))
        dprintf(STDOUT_FILENO, "# %llu calls\n", (unsigned long long)least);
}

BED_TEST("a program whose streams live for a few launches keeps to the limit",
    .environment = {"CUDA_DEVICE_SM_LIMIT=20"})
{
    load_begin(0);
    struct load load = {.step = step_short_lived, .duration_ns = 100 * US, .waits = true};
    load_check_share(&load, 0, 20);
}

/* ---- threads, devices ---- */

struct thread_load {
    struct load load;
    int ordinal;
    uint64_t end_ns;
};

static void *thread_run(void *argument)
{
    struct thread_load *thread = argument;
    CUcontext context;
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&context, thread->ordinal), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    thread->load.own = load_kernel();
    thread->load.streams[0] = load_stream();
    load_run(&thread->load, thread->end_ns);
    return NULL;
}

static CUresult step_own_kernel(struct load *load, uint64_t number)
{
    (void)number;
    return load_launch_of(load->own, load->streams[0], load->duration_ns);
}

BED_TEST("four threads keep to the limit together", .environment = {"CUDA_DEVICE_SM_LIMIT=30"})
{
    pthread_t threads[4];
    struct thread_load loads[4];
    load_begin(0);
    struct load_state from = load_state(0);
    for (int i = 0; i < 4; i++) {
        loads[i] = (struct thread_load){
            .load = {.step = step_own_kernel, .duration_ns = (uint64_t)(1 + i) * 300 * US},
            .end_ns = from.now_ns + 1500 * MS};
        REQUIRE(pthread_create(&threads[i], NULL, thread_run, &loads[i]) == 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    struct load_state to = load_state(0);
    load_check_at_most(&from, &to, 30);
    CHECK(to.busy_ns - from.busy_ns > 200 * MS);
    for (int i = 0; i < 4; i++)
        CHECK(loads[i].load.number > 20);
}

BED_TEST("two devices have limits of their own", .sim = "2xh200",
    .environment = {"CUDA_DEVICE_SM_LIMIT_0=20", "CUDA_DEVICE_SM_LIMIT_1=60"})
{
    pthread_t threads[2];
    struct thread_load loads[2];
    bed_context(1);
    load_begin(0);
    const struct vgpu_region *region = bed_region();
    REQUIRE(region != NULL && region->device_count == 2);
    struct load_state from[2] = {load_state(0), load_state(1)};
    for (int i = 0; i < 2; i++) {
        loads[i] = (struct thread_load){.load = {.step = step_own_kernel, .duration_ns = MS},
            .ordinal = i,
            .end_ns = from[0].now_ns + 1500 * MS};
        REQUIRE(pthread_create(&threads[i], NULL, thread_run, &loads[i]) == 0);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    struct load_state to[2] = {load_state(0), load_state(1)};
    load_check_at_most(&from[0], &to[0], 20);
    load_check_at_most(&from[1], &to[1], 60);
    CHECK(to[0].busy_ns > 150 * MS);
    CHECK(to[1].busy_ns > to[0].busy_ns);
}

BED_TEST("the other device is not held where one has a limit", .sim = "2xh200",
    .environment = {"CUDA_DEVICE_SM_LIMIT_0=5"})
{
    load_begin(0);
    CHECK_EQ(load_launch(NULL, 2 * SECOND), CUDA_SUCCESS);
    load_begin(1);
    uint64_t start = load_now_ns();
    for (int i = 0; i < 100; i++)
        CHECK_EQ(load_launch(NULL, 10 * MS), CUDA_SUCCESS);
    CHECK(load_now_ns() - start < SECOND);
    CHECK_EQ(load_state(1).charged_ns, 0);
}

/* ---- NVML ---- */

BED_TEST("NVML's utilisation, the region's busy time and the limit agree",
    .environment = {"CUDA_DEVICE_SM_LIMIT=40"})
{
    struct sim_sample samples[SIM_SAMPLES_MAX];
    nvmlDevice_t device;
    nvmlUtilization_t utilization;
    load_begin(0);
    struct load load = {.step = load_step_plain, .duration_ns = MS, .streams = {load_stream()}};
    load_run(&load, load_now_ns() + 300 * MS);
    struct load_state from = load_state(0);
    load_run(&load, from.now_ns + 1600 * MS);
    struct load_state to = load_state(0);
    unsigned count = sim_device_samples(0, from.now_ns, false, samples), sum = 0;
    for (unsigned i = 0; i < count; i++)
        sum += samples[i].busy_percent;
    REQUIRE(count >= 6);
    int share = load_permille(to.measured_ns - from.measured_ns, to.now_ns - from.now_ns);
    int seen = (int)(sum * 10 / count);
    CHECK(seen > share - 60 && seen < share + 60);
    CHECK(seen < 460);
    REQUIRE(ML(nvmlInit_v2)() == NVML_SUCCESS);
    CHECK_EQ(ML(nvmlDeviceGetHandleByIndex_v2)(0, &device), NVML_SUCCESS);
    CHECK_EQ(ML(nvmlDeviceGetUtilizationRates)(device, &utilization), NVML_SUCCESS);
    CHECK(utilization.gpu <= 65); /* of one window of 200 ms: a burst of 100 ms may lie in it */
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
