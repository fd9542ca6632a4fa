/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's streams wait for values in memory, and write them, in their order. */
#include "program.h"

#include "sim/machine/machine_layout.h"

#include <pthread.h>

#define MS 1000000ull

/* Memory of the processor's that the card sees; the card knows it by the same address here. */
static volatile uint64_t *words;
static CUdeviceptr words_address;

static CUdeviceptr address_of(unsigned word)
{
    return words_address + 8 * word;
}

static void words_begin(void)
{
    void *memory;
    program_begin();
    DRIVER_CALL(driver.cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    words = memory;
    words_address = (CUdeviceptr)(uintptr_t)memory;
}

static void values_begin(void)
{
    begin("");
    words_begin();
}

static CUresult value_wait(
    CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags, unsigned bytes)
{
    return bytes == 4 ? driver.cuStreamWaitValue32_v2(stream, address, (uint32_t)value, flags)
                      : driver.cuStreamWaitValue64_v2(stream, address, value, flags);
}

static void set_word(unsigned word, uint64_t value, unsigned bytes)
{
    if (bytes == 4)
        *(volatile uint32_t *)&words[word] = (uint32_t)value;
    else
        words[word] = value;
}

struct comparison {
    unsigned flags;
    uint64_t wanted, waits, passes;
};

/* A value that does not do holds the stream up, one that does lets it go on. */
static void check_comparison(const struct comparison *how, unsigned bytes)
{
    CUstream stream = stream_new();
    set_word(0, how->waits, bytes);
    CHECK_EQ(value_wait(stream, address_of(0), how->wanted, how->flags, bytes), CUDA_SUCCESS);
    launch(stream, 10000);
    nap_ms(5);
    CHECK_EQ(driver.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    set_word(0, how->passes, bytes);
    CHECK_EQ(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
    CHECK_EQ(value_wait(stream, address_of(0), how->wanted, how->flags, bytes), CUDA_SUCCESS);
    CHECK_EQ(driver.cuStreamQuery(stream), CUDA_SUCCESS);
    DRIVER_CALL(driver.cuStreamDestroy_v2(stream));
}

TEST("a stream waits for a value by each comparison, of 4 bytes and of 8")
{
    const struct comparison four[] = {{CU_STREAM_WAIT_VALUE_GEQ, 5, 4, 6},
        {CU_STREAM_WAIT_VALUE_GEQ, 2, 0xfffffffe, 3}, {CU_STREAM_WAIT_VALUE_EQ, 5, 6, 5},
        {CU_STREAM_WAIT_VALUE_AND, 6, 9, 12},
        {CU_STREAM_WAIT_VALUE_NOR, 0xf0f0f0f0, 0x0f0f0f0f, 0x0f0f0f0e}};
    const struct comparison eight[] = {{CU_STREAM_WAIT_VALUE_GEQ, 5ull << 32, 1, 6ull << 32},
        {CU_STREAM_WAIT_VALUE_GEQ, 1, UINT64_MAX, 1},
        {CU_STREAM_WAIT_VALUE_EQ, 5ull << 40, 5, 5ull << 40},
        {CU_STREAM_WAIT_VALUE_AND, 1ull << 40, 1, 3ull << 40},
        {CU_STREAM_WAIT_VALUE_NOR, UINT64_MAX << 1, 1, 0}};
    values_begin();
    for (unsigned i = 0; i < sizeof(four) / sizeof(four[0]); i++) {
        check_comparison(&four[i], 4);
        check_comparison(&eight[i], 8);
    }
}

TEST("the first version of a wait does what the second does")
{
    values_begin();
    CUstream stream = stream_new();
    CHECK_EQ(driver.cuStreamWaitValue32(stream, address_of(0), 1, CU_STREAM_WAIT_VALUE_EQ),
        CUDA_SUCCESS);
    nap_ms(5);
    CHECK_EQ(driver.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    words[0] = 1;
    CHECK_EQ(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST("a value is written when what is before it on its stream is done")
{
    values_begin();
    CUstream writer = stream_new(), waiter = stream_new();
    CHECK_EQ(value_wait(writer, address_of(0), 1, CU_STREAM_WAIT_VALUE_EQ, 4), CUDA_SUCCESS);
    CHECK_EQ(driver.cuStreamWriteValue32_v2(writer, address_of(1), 7, 0), CUDA_SUCCESS);
    CHECK_EQ(driver.cuStreamWriteValue64_v2(writer, address_of(2), 7ull << 40, 0), CUDA_SUCCESS);
    CHECK_EQ(
        value_wait(waiter, address_of(2), 7ull << 40, CU_STREAM_WAIT_VALUE_EQ, 8), CUDA_SUCCESS);
    launch(waiter, 10000);
    nap_ms(5);
    CHECK_EQ(words[1], 0);
    CHECK_EQ(driver.cuStreamQuery(waiter), CUDA_ERROR_NOT_READY);
    words[0] = 1;
    CHECK_EQ(driver.cuStreamSynchronize(waiter), CUDA_SUCCESS);
    CHECK_EQ(words[1], 7);
    CHECK_EQ(words[2], 7ull << 40);
    CHECK_EQ(driver.cuStreamQuery(writer), CUDA_SUCCESS);
}

TEST("a copy or a fill into device memory lets a stream go on")
{
    CUdeviceptr device;
    static const uint32_t one = 1;
    values_begin();
    CUstream stream = stream_new(), other = stream_new();
    DRIVER_CALL(driver.cuMemAlloc_v2(&device, 4096));
    CHECK_EQ(value_wait(stream, device, 1, CU_STREAM_WAIT_VALUE_EQ, 4), CUDA_SUCCESS);
    nap_ms(5);
    CHECK_EQ(driver.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    DRIVER_CALL(driver.cuMemcpyHtoDAsync_v2(device, &one, sizeof(one), other));
    CHECK_EQ(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
    CHECK_EQ(value_wait(stream, device, 2, CU_STREAM_WAIT_VALUE_EQ, 4), CUDA_SUCCESS);
    nap_ms(5);
    CHECK_EQ(driver.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    DRIVER_CALL(driver.cuMemsetD32Async(device, 2, 4, other));
    CHECK_EQ(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST("a list of waits and writes goes one after the other")
{
    values_begin();
    CUstream stream = stream_new();
    CUstreamBatchMemOpParams list[4] = {0};
    list[0].writeValue = (struct CUstreamMemOpWriteValueParams_st){
        .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = address_of(0), .value = 1};
    list[1].waitValue = (struct CUstreamMemOpWaitValueParams_st){
        .operation = CU_STREAM_MEM_OP_WAIT_VALUE_64, .address = address_of(1), .value64 = 1};
    list[2].writeValue = (struct CUstreamMemOpWriteValueParams_st){
        .operation = CU_STREAM_MEM_OP_WRITE_VALUE_64, .address = address_of(2), .value64 = 2};
    list[3].operation = CU_STREAM_MEM_OP_BARRIER;
    CHECK_EQ(driver.cuStreamBatchMemOp_v2(stream, 4, list, 0), CUDA_SUCCESS);
    nap_ms(5);
    CHECK_EQ(words[0], 1);
    CHECK_EQ(words[2], 0);
    CHECK_EQ(driver.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    words[1] = 1;
    CHECK_EQ(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
    CHECK_EQ(words[2], 2);
}

TEST("addresses that are odd or unknown, and unknown flags, are refused")
{
    values_begin();
    CUstream stream = stream_new();
    CHECK_EQ(value_wait(stream, address_of(0) + 2, 0, 0, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(value_wait(stream, address_of(0) + 4, 0, 0, 8), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(value_wait(stream, (uintptr_t)&stream, 0, 0, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(value_wait(stream, address_of(0), 0, 4, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(driver.cuStreamWriteValue32_v2(stream, address_of(0), 0, 2), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(driver.cuStreamQuery(stream), CUDA_SUCCESS);
}

static void *set_first_word(void *unused)
{
    (void)unused;
    nap_ms(50);
    words[0] = 1;
    return NULL;
}

TEST("a context is waited for until the value is there, and the GPU is free meanwhile")
{
    pthread_t thread;
    values_begin();
    CUstream stream = stream_new(), other = stream_new();
    CHECK_EQ(value_wait(stream, address_of(0), 1, CU_STREAM_WAIT_VALUE_EQ, 4), CUDA_SUCCESS);
    launch(stream, MS);
    launch(other, MS);
    CHECK_EQ(driver.cuStreamSynchronize(other), CUDA_SUCCESS);
    CHECK_EQ(driver.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    REQUIRE(pthread_create(&thread, NULL, set_first_word, NULL) == 0);
    CHECK_EQ(driver.cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_EQ(words[0], 1);
    CHECK_EQ(driver.cuStreamQuery(stream), CUDA_SUCCESS);
    pthread_join(thread, NULL);
}

static uint64_t processor_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

TEST("waiting takes next to no processor time")
{
    values_begin();
    CUstream stream = stream_new();
    CHECK_EQ(value_wait(stream, address_of(0), 1, CU_STREAM_WAIT_VALUE_EQ, 4), CUDA_SUCCESS);
    uint64_t before = processor_ns();
    nap_ms(1000);
    CHECK(processor_ns() - before < 100 * MS);
}

/* The graph's nodes go on with the driver's lock held. */
TEST("a value ends the wait before a graph that is too large for the stream")
{
    pthread_t thread;
    CUgraph graph;
    CUgraphExec exec;
    values_begin();
    CUstream stream = stream_new();
    DRIVER_CALL(driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (unsigned i = 0; i < SIM_OPS_MAX + 100; i++)
        launch(stream, 1000);
    DRIVER_CALL(driver.cuStreamEndCapture(stream, &graph));
    DRIVER_CALL(driver.cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK_EQ(value_wait(stream, address_of(0), 1, CU_STREAM_WAIT_VALUE_EQ, 4), CUDA_SUCCESS);
    REQUIRE(pthread_create(&thread, NULL, set_first_word, NULL) == 0);
    CHECK_EQ(driver.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    CHECK_EQ(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
    CHECK_EQ(words[0], 1);
    pthread_join(thread, NULL);
}

TEST("memory that is freed is waited for by nobody")
{
    CUdeviceptr device;
    values_begin();
    CUstream stream = stream_new();
    DRIVER_CALL(driver.cuMemAlloc_v2(&device, 4096));
    CHECK_EQ(value_wait(stream, device, 1, CU_STREAM_WAIT_VALUE_EQ, 4), CUDA_SUCCESS);
    CHECK_EQ(driver.cuStreamWriteValue32_v2(stream, device, 1, 0), CUDA_SUCCESS);
    DRIVER_CALL(driver.cuMemFree_v2(device));
    CHECK_EQ(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST("a reset context takes its waits and writes with it")
{
    CUdevice device;
    values_begin();
    CUstream stream = stream_new();
    CHECK_EQ(value_wait(stream, address_of(0), 1, CU_STREAM_WAIT_VALUE_EQ, 4), CUDA_SUCCESS);
    CHECK_EQ(driver.cuStreamWriteValue32_v2(stream, address_of(1), 1, 0), CUDA_SUCCESS);
    launch(stream, UINT64_MAX);
    DRIVER_CALL(driver.cuDeviceGet(&device, 0));
    DRIVER_CALL(driver.cuDevicePrimaryCtxReset_v2(device));
    nap_ms(5);
    program_begin();
    stream = stream_new();
    launch(stream, 1000);
    CHECK_EQ(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
}

/* Rings that have work, and marks that are taken. */
static void machine_count(unsigned *ret_rings, unsigned *ret_marks)
{
    const struct sim_timeline *line = &sim_machine->timeline;
    *ret_rings = *ret_marks = 0;
    sim_lock();
    sim_reap_locked();
    (void)sim_timeline_look_locked();
    for (uint32_t i = 0; i < line->rings_end; i++)
        *ret_rings += line->rings[i].live;
    for (uint32_t i = 0; i < line->marks_end; i++)
        *ret_marks += line->marks[i].live;
    sim_unlock();
}

TEST("a process that is killed while it waits leaves nothing on the machine")
{
    unsigned rings, marks;
    int ready[2];
    char letter;
    begin("");
    REQUIRE(pipe(ready) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        words_begin();
        for (unsigned i = 0; i < 8; i++) {
            CUstream stream = stream_new();
            DRIVER_CALL(value_wait(stream, address_of(0), 1, CU_STREAM_WAIT_VALUE_EQ, 4));
            launch(stream, 1000);
        }
        REQUIRE(write(ready[1], "", 1) == 1);
        pause();
    }
    REQUIRE(read(ready[0], &letter, 1) == 1);
    machine_count(&rings, &marks);
    CHECK_EQ(rings, 8);
    CHECK_EQ(marks, 8);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    machine_count(&rings, &marks);
    CHECK_EQ(rings, 0);
    CHECK_EQ(marks, 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
