/* SPDX-License-Identifier: Apache-2.0 */
/* What is charged for what is no GPU time, for launches that fail, and what happens where a kernel
 * never ends or the driver's events fail. */
#include "green.h"
#include "load.h"

#include "sim/machine/machine.h"

#include <pthread.h>

#define LIMIT_50 .environment = {"CUDA_DEVICE_SM_LIMIT=50"}
#define LITTLE_NS ((int64_t)(5 * MS))
#define KERNEL_NS (200 * US)

static CUstream first, second;

static void begin(void)
{
    load_begin(0);
    first = load_stream();
    second = load_stream();
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(load_launch(first, KERNEL_NS), CUDA_SUCCESS);
        CHECK_EQ(load_launch(second, KERNEL_NS), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    }
    load_settle();
}

static void nap(void *ms)
{
    bed_sleep_ms((unsigned)(uintptr_t)ms);
}

static void check_charged(const struct load_state *from, uint64_t busy_ns, int64_t more_ns)
{
    struct load_state to = load_state(0);
    int64_t busy = (int64_t)(to.busy_ns - from->busy_ns);
    int64_t measured = (int64_t)(to.measured_ns - from->measured_ns);
    int64_t charged = to.charged_ns - from->charged_ns;
    CHECK_EQ(busy, busy_ns);
    if (!CHECK(measured < busy + more_ns) || !CHECK(charged < busy + more_ns))
        dprintf(STDOUT_FILENO, "# measured %lld us, charged %lld us\n",
            (long long)(measured / 1000), (long long)(charged / 1000));
}

/* Kernels on the stream, the thing, kernels: no more is charged than the kernels took, and a
 * little. */
static void check_costs_little(void (*thing)(void *argument), void *argument)
{
    struct load_state from = load_state(0);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(load_launch(first, KERNEL_NS), CUDA_SUCCESS);
    thing(argument);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(load_launch(first, KERNEL_NS), CUDA_SUCCESS);
    load_settle();
    check_charged(&from, 10 * KERNEL_NS, LITTLE_NS);
}

static void host_function(void *argument)
{
    (void)argument;
    CHECK_EQ(CU(cuLaunchHostFunc)(first, nap, (void *)1000), CUDA_SUCCESS);
}

BED_TEST("a host function of a second costs next to nothing", LIMIT_50)
{
    begin();
    check_costs_little(host_function, NULL);
}

static void spinning_host_function(void *argument)
{
    (void)argument;
    CHECK_EQ(CU(cuLaunchHostFunc_v2)(first, nap, (void *)500, 1), CUDA_SUCCESS);
    CHECK_EQ(CU(cuLaunchHostFunc_v2_ptsz)(first, nap, (void *)500, 1), CUDA_SUCCESS);
}

BED_TEST("nor does one of CUDA 13.1, whose thread spins", LIMIT_50, .sim = "cuda=13010")
{
    begin();
    check_costs_little(spinning_host_function, NULL);
}

static void discards(void *argument)
{
    CUdeviceptr managed = *(CUdeviceptr *)argument;
    size_t bytes = 4 * GIB, from = 0;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(CU(cuMemDiscardBatchAsync)(&managed, &bytes, 1, 0, first), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemDiscardBatchAsync_ptsz)(&managed, &bytes, 1, 0, first), CUDA_SUCCESS);
    }
    CHECK_EQ(CU(cuMemDiscardAndPrefetchBatchAsync)(&managed, &bytes, 1, &here, &from, 1, 0, first),
        CUDA_SUCCESS);
    CHECK_EQ(
        CU(cuMemDiscardAndPrefetchBatchAsync_ptsz)(&managed, &bytes, 1, &here, &from, 1, 0, first),
        CUDA_SUCCESS);
}

BED_TEST("nor do managed pages that are discarded", LIMIT_50)
{
    CUdeviceptr managed;
    begin();
    REQUIRE(CU(cuMemAllocManaged)(&managed, 4 * GIB, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    check_costs_little(discards, &managed);
}

static void graphics(void *argument)
{
    CUgraphicsResource resources[] = {(void *)200, (void *)300};
    (void)argument;
    CHECK_EQ(CU(cuGraphicsMapResources)(2, resources, first), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphicsMapResources_ptsz)(2, resources, first), CUDA_SUCCESS);
}

BED_TEST("nor does what graphics do with resources that are mapped", LIMIT_50)
{
    begin();
    check_costs_little(graphics, NULL);
}

/* The default stream waits for those that do not say otherwise, and they for it. */
static void begin_between(bool on_default)
{
    CUstream stream;
    begin();
    REQUIRE(CU(cuStreamCreate)(&stream, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
    first = on_default ? CU_STREAM_LEGACY : stream;
    second = on_default ? stream : CU_STREAM_LEGACY;
    load_learn(first, KERNEL_NS, 10);
}

static void host_function_on_second(void *argument)
{
    (void)argument;
    CHECK_EQ(CU(cuLaunchHostFunc)(second, nap, (void *)1000), CUDA_SUCCESS);
}

BED_TEST("nor does one for which the default stream waits", LIMIT_50)
{
    begin_between(true);
    check_costs_little(host_function_on_second, NULL);
}

BED_TEST("nor one on the default stream, for which another waits", LIMIT_50)
{
    begin_between(false);
    check_costs_little(host_function_on_second, NULL);
}

static void event_of_other_stream(void *argument)
{
    CUevent event;
    (void)argument;
    CHECK_EQ(CU(cuEventCreate)(&event, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuLaunchHostFunc)(second, nap, (void *)1000), CUDA_SUCCESS);
    CHECK_EQ(CU(cuEventRecord)(event, second), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamWaitEvent)(first, event, 0), CUDA_SUCCESS);
}

BED_TEST("nor does a wait of a second for another stream's event", LIMIT_50)
{
    begin();
    check_costs_little(event_of_other_stream, NULL);
}

static void wait_of_context(void *argument)
{
    CUevent event;
    CUcontext context;
    CUstream beside = load_stream();
    (void)argument;
    CHECK_EQ(CU(cuEventCreate)(&event, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuLaunchHostFunc)(beside, nap, (void *)1000), CUDA_SUCCESS);
    CHECK_EQ(CU(cuEventRecord)(event, beside), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxWaitEvent)(context, event), CUDA_SUCCESS);
}

BED_TEST("nor does a wait of all of a context's streams", LIMIT_50)
{
    begin();
    check_costs_little(wait_of_context, NULL);
}

static void wait_of_green_context(void *green)
{
    CUevent event;
    CHECK_EQ(CU(cuEventCreate)(&event, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuLaunchHostFunc)(second, nap, (void *)1000), CUDA_SUCCESS);
    CHECK_EQ(CU(cuEventRecord)(event, second), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGreenCtxWaitEvent)(green, event), CUDA_SUCCESS);
}

BED_TEST("or of a green one's", LIMIT_50)
{
    begin();
    CUgreenCtx green = green_make();
    first = green_stream(green);
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(load_launch(first, KERNEL_NS), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    }
    load_settle();
    check_costs_little(wait_of_green_context, green);
}

/* ---- waits for values ---- */

static volatile uint64_t *word; /* the processor's, and the card's under the same address */

static void word_begin(void)
{
    void *memory;
    begin();
    REQUIRE(CU(cuMemHostAlloc)(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_SUCCESS);
    word = memory;
}

static CUdeviceptr word_address(void)
{
    return (CUdeviceptr)(uintptr_t)word;
}

static void write_late(void *value)
{
    bed_sleep_ms(1000);
    *word = (uint64_t)(uintptr_t)value;
}

static void value_of_processor(void *argument)
{
    (void)argument;
    CHECK_EQ(CU(cuLaunchHostFunc)(second, write_late, (void *)1), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamWaitValue32_v2)(first, word_address(), 1, CU_STREAM_WAIT_VALUE_EQ),
        CUDA_SUCCESS);
}

static void value_of_other_stream(void *argument)
{
    (void)argument;
    CHECK_EQ(CU(cuLaunchHostFunc)(second, nap, (void *)1000), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamWriteValue64_v2)(second, word_address(), 2, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamWaitValue64_v2)(first, word_address(), 2, CU_STREAM_WAIT_VALUE_GEQ),
        CUDA_SUCCESS);
}

static void value_of_list(void *argument)
{
    CUstreamBatchMemOpParams wait = {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                                         .address = word_address(),
                                         .value = 4,
                                         .flags = CU_STREAM_WAIT_VALUE_AND}};
    (void)argument;
    CHECK_EQ(CU(cuLaunchHostFunc)(second, write_late, (void *)4), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamBatchMemOp_v2)(first, 1, &wait, 0), CUDA_SUCCESS);
}

BED_TEST("nor does a wait of a second for a value, whoever writes it",
    .environment = {"CUDA_DEVICE_SM_LIMIT=20"})
{
    word_begin();
    check_costs_little(value_of_processor, NULL);
    check_costs_little(value_of_other_stream, NULL);
    check_costs_little(value_of_list, NULL);
}

/* One kernel each 10 ms on the other stream is all that is charged, and for each what the computer
 * was busy with elsewhere between the kernel and its timing event. */
BED_TEST("a stream that waits for a value costs nothing while another works",
    .environment = {"CUDA_DEVICE_SM_LIMIT=20"})
{
    word_begin();
    struct load_state from = load_state(0);
    CHECK_EQ(load_launch(first, KERNEL_NS), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamWaitValue32_v2)(first, word_address(), 1, CU_STREAM_WAIT_VALUE_EQ),
        CUDA_SUCCESS);
    CHECK_EQ(load_launch(first, KERNEL_NS), CUDA_SUCCESS);
    for (int i = 0; i < 98; i++) {
        CHECK_EQ(load_launch(second, KERNEL_NS), CUDA_SUCCESS);
        bed_sleep_ms(10);
    }
    *word = 1;
    load_settle();
    check_charged(&from, 100 * KERNEL_NS, SECOND / 10);
}

static void idle_second(void *argument)
{
    (void)argument;
    bed_sleep_ms(1000);
}

BED_TEST("nor a second in which nothing is launched", LIMIT_50)
{
    begin();
    check_costs_little(idle_second, NULL);
}

static char *host_memory(void)
{
    static char *memory;
    if (!memory)
        memory = mmap(
            NULL, GIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void copy_in(void *device)
{
    CHECK_EQ(CU(cuMemcpyHtoDAsync_v2)((CUdeviceptr)(uintptr_t)device, host_memory(), GIB, first),
        CUDA_SUCCESS);
}

static void copy_out(void *device)
{
    CHECK_EQ(CU(cuMemcpyDtoHAsync_v2)(host_memory(), (CUdeviceptr)(uintptr_t)device, GIB, first),
        CUDA_SUCCESS);
}

static void copy_any(void *device)
{
    CHECK_EQ(CU(cuMemcpyAsync)(
                 (CUdeviceptr)(uintptr_t)device, (CUdeviceptr)(uintptr_t)host_memory(), GIB, first),
        CUDA_SUCCESS);
}

static void copy_rectangle(void *device)
{
    const CUDA_MEMCPY2D rectangle = {.srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = host_memory(),
        .srcPitch = 32768,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = (CUdeviceptr)(uintptr_t)device,
        .dstPitch = 32768,
        .WidthInBytes = 32768,
        .Height = 32768};
    CHECK_EQ(CU(cuMemcpy2DAsync_v2)(&rectangle, first), CUDA_SUCCESS);
}

BED_TEST("nor does a copy of 1 GiB, in, out or by rows", LIMIT_50)
{
    CUdeviceptr device = 0;
    begin();
    REQUIRE(host_memory() != NULL);
    REQUIRE(CU(cuMemAlloc_v2)(&device, GIB) == CUDA_SUCCESS);
    void (*const copies[])(void *) = {copy_in, copy_out, copy_any, copy_rectangle};
    for (unsigned i = 0; i < sizeof(copies) / sizeof(copies[0]); i++)
        check_costs_little(copies[i], (void *)(uintptr_t)device);
}

/* ---- launches that fail ---- */

static CUresult launch_too_large(CUfunction kernel, uint64_t duration_ns)
{
    void *params[] = {&duration_ns};
    return CU(cuLaunchKernel)(kernel, 1, 1, 1, 2048, 1, 1, 0, first, params, NULL);
}

BED_TEST("a launch that fails keeps its code and costs nothing", LIMIT_50)
{
    begin();
    CUfunction kernel = load_kernel();
    struct load_state from = load_state(0);
    for (int i = 0; i < 300; i++) {
        CHECK_EQ(launch_too_large(kernel, SECOND), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQ(load_launch((CUstream)(uintptr_t)0x1230, MS), CUDA_ERROR_INVALID_HANDLE);
    }
    load_settle();
    CHECK_EQ(load_launch(first, KERNEL_NS), CUDA_SUCCESS);
    load_settle();
    struct load_state to = load_state(0);
    CHECK_EQ(to.busy_ns - from.busy_ns, KERNEL_NS);
    if (!CHECK(to.charged_ns - from.charged_ns < LITTLE_NS))
        dprintf(STDOUT_FILENO, "# charged %lld us\n",
            (long long)(to.charged_ns - from.charged_ns) / 1000);
}

BED_TEST("nor does one of a kernel whose duration is known",
    .environment = {"CUDA_DEVICE_SM_LIMIT=50"},
    .sim = "fail=cuLaunchKernel:31:701,"
           "fail=cuLaunchKernel:32:701,fail=cuLaunchKernel:33:701,fail=cuLaunchKernel:34:701")
{
    load_begin(0);
    first = load_stream();
    load_learn(first, 4 * MS, 30);
    struct load_state from = load_state(0);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(load_launch(first, 4 * MS), 701);
    CHECK_EQ(load_launch(first, 4 * MS), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize)(first), CUDA_SUCCESS);
    load_settle();
    CHECK_EQ(load_launch(first, 4 * MS), CUDA_SUCCESS);
    load_settle();
    struct load_state to = load_state(0);
    CHECK_EQ(to.busy_ns - from.busy_ns, 8 * MS);
    CHECK(to.charged_ns - from.charged_ns < (int64_t)(8 * MS) + 2 * LITTLE_NS / 5);
}

/* ---- a driver whose events fail ---- */

static void check_launches_pass(void)
{
    load_begin(0);
    first = load_stream();
    uint64_t start = load_now_ns();
    for (int i = 0; i < 300; i++)
        CHECK_EQ(load_launch(first, 100 * US), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize)(first), CUDA_SUCCESS);
    CHECK(load_now_ns() - start < 20 * SECOND);
}

BED_TEST("launches pass where each question for an event is answered with a fault", LIMIT_50,
    .sim = "fail=cuEventQuery:0:719")
{
    check_launches_pass();
}

BED_TEST("and where no event can be made", LIMIT_50, .sim = "fail=cuEventCreate:0:2")
{
    check_launches_pass();
}

BED_TEST("and where none can be recorded", LIMIT_50, .sim = "fail=cuEventRecord:0:719")
{
    check_launches_pass();
}

BED_TEST("and where no time can be asked for", LIMIT_50, .sim = "fail=cuEventElapsedTime:0:719")
{
    check_launches_pass();
}

BED_TEST("after a fault each launch gets the driver's code, at once", LIMIT_50,
    .sim = "fail=cuLaunchKernel:0:719,fail=cuEventQuery:0:719,fail=cuEventRecord:0:719,"
           "fail=cuEventCreate:0:719,fail=cuStreamIsCapturing:0:719,fail=cuCtxGetCurrent:0:719")
{
    bed_context(0);
    CUfunction kernel = load_kernel();
    uint64_t start = load_now_ns(), duration = MS;
    void *params[] = {&duration};
    for (int i = 0; i < 100; i++)
        CHECK_EQ(CU(cuLaunchKernel)(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL), 719);
    CHECK(load_now_ns() - start < 5 * SECOND);
}

/* ---- a kernel that never ends ---- */

struct late {
    CUstream stream;
    CUcontext context;
    uint64_t passed_ns;
};

static void *launch_beside(void *argument)
{
    struct late *late = argument;
    CHECK_EQ(CU(cuCtxSetCurrent)(late->context), CUDA_SUCCESS);
    CHECK_EQ(load_launch(late->stream, KERNEL_NS), CUDA_SUCCESS);
    late->passed_ns = load_now_ns();
    return NULL;
}

BED_TEST("a kernel that never ends hangs no launch for good, on its stream or another", LIMIT_50)
{
    pthread_t threads[2];
    struct late late[2] = {0};
    begin();
    CHECK_EQ(load_launch(first, SIM_NEVER), CUDA_SUCCESS);
    bed_sleep_ms(1500); /* its container is deep in debt by then */
    uint64_t start = load_now_ns();
    for (int i = 0; i < 2; i++) {
        late[i].stream = i ? second : first;
        CHECK_EQ(CU(cuCtxGetCurrent)(&late[i].context), CUDA_SUCCESS);
        REQUIRE(pthread_create(&threads[i], NULL, launch_beside, &late[i]) == 0);
    }
    while (load_now_ns() - start < 25 * SECOND &&
           !(__atomic_load_n(&late[0].passed_ns, __ATOMIC_SEQ_CST) &&
               __atomic_load_n(&late[1].passed_ns, __ATOMIC_SEQ_CST)))
        bed_sleep_ms(20);
    CHECK(late[0].passed_ns > start);
    CHECK(late[1].passed_ns > start);
    END_TEST();
}

/* A program's round: a kernel of 65 us and three of 21 us, of which most pass by their estimates,
 * then work of the host. The first of the short ones takes `first_ns`. */
static void check_rounds(uint64_t first_ns, unsigned rounds)
{
    /* How soon a kernel is measured again is chance; until then it is charged what it took first.
     */
    load_begin(0);
    CUfunction longer = load_kernel(), shorter = load_kernel();
    CHECK_EQ(load_launch_of(shorter, NULL, first_ns), CUDA_SUCCESS);
    load_settle();
    struct load_state from = load_state(0);
    for (unsigned i = 0; i < rounds; i++) {
        CHECK_EQ(load_launch_of(longer, NULL, 65 * US), CUDA_SUCCESS);
        for (int k = 0; k < 3; k++)
            CHECK_EQ(load_launch_of(shorter, NULL, 21 * US), CUDA_SUCCESS);
        for (uint64_t until = load_now_ns() + 200 * US; load_now_ns() < until;) {
        }
    }
    load_check_measured(&from);
}

BED_TEST("short kernels behind a longer one, then work of the host, are measured at their length",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    check_rounds(21 * US, 6000);
}

BED_TEST("and when the first of them that was measured took much less",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    check_rounds(7 * US, 6000);
}

/* More rounds: what is charged until the kernel is measured again, 16 ms in the mean and 94 ms once
 * in 120 runs, is all too much. */
BED_TEST("or much longer", .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    check_rounds(63 * US, 18000);
}

/* ---- threads that take turns on one stream, as a training's forward and backward pass do ---- */

#define TURNS 2000
#define TURN_KERNELS 6

static struct {
    pthread_barrier_t barrier;
    CUcontext context;
} turns;

static void launch_turn(CUfunction kernel, uint64_t duration_ns)
{
    (void)pthread_barrier_wait(&turns.barrier);
    for (int i = 0; i < TURN_KERNELS; i++)
        CHECK_EQ(load_launch_of(kernel, NULL, duration_ns), CUDA_SUCCESS);
    (void)pthread_barrier_wait(&turns.barrier);
}

static void *take_turns(void *kernel)
{
    CHECK_EQ(CU(cuCtxSetCurrent)(turns.context), CUDA_SUCCESS);
    for (int i = 0; i < TURNS; i++)
        launch_turn(kernel, 30 * US);
    return NULL;
}

/* What one thread launched by estimate lies before the timing events of the other, which begin and
 * end its intervals. */
BED_TEST("kernels of threads that take turns on a stream are measured at their length",
    .environment = {"CUDA_DEVICE_SM_LIMIT=95"})
{
    load_begin(0);
    CUfunction forward = load_kernel(), backward = load_kernel();
    REQUIRE(CU(cuCtxGetCurrent)(&turns.context) == CUDA_SUCCESS);
    REQUIRE(pthread_barrier_init(&turns.barrier, NULL, 2) == 0);
    pthread_t thread;
    struct load_state from = load_state(0);
    REQUIRE(pthread_create(&thread, NULL, take_turns, backward) == 0);
    for (int i = 0; i < TURNS; i++) {
        for (int k = 0; k < TURN_KERNELS; k++)
            CHECK_EQ(load_launch_of(forward, NULL, 20 * US), CUDA_SUCCESS);
        (void)pthread_barrier_wait(&turns.barrier); /* its turn */
        (void)pthread_barrier_wait(&turns.barrier);
        for (uint64_t until = load_now_ns() + 250 * US; load_now_ns() < until;) {
        }
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
    load_check_measured(&from);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
