/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered memory that is freed elsewhere than it was allocated: on another stream, in
 * another thread or context, after its stream is gone. */
#include "allocate.h"
#include "bed.h"

#include <pthread.h>

#define LIMIT "4GiB"
#define SIZE (96 * MIB)

/* What is left when the pool has given all back. */
static void settle(uint64_t wanted)
{
    CUmemoryPool pool;
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDeviceGetDefaultMemPool)(&pool, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemPoolTrimTo)(pool, 0), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), wanted);
}

static uint64_t start(void)
{
    bed_context(0);
    return allocation_charged();
}

static CUstream stream(unsigned flags)
{
    CUstream made = NULL;
    CHECK_EQ(CU(cuStreamCreate)(&made, flags), CUDA_SUCCESS);
    return made;
}

static CUdeviceptr allocate_on(CUstream on)
{
    CUdeviceptr pointer = 0;
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuMemAllocAsync)(&pointer, SIZE, on), CUDA_SUCCESS);
    CHECK(allocation_charged() >= before + SIZE);
    return pointer;
}

BED_TEST("memory of one stream is freed on another", .limit = LIMIT)
{
    uint64_t before = start();
    CUstream first = stream(CU_STREAM_DEFAULT), second = stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(CU(cuMemFreeAsync)(allocate_on(first), second), CUDA_SUCCESS);
        CHECK_EQ(CU(cuStreamSynchronize)(second), CUDA_SUCCESS);
        settle(before);
    }
}

BED_TEST("and again by the stream of another, ten times over, without a step up", .limit = LIMIT)
{
    uint64_t before = start();
    CUstream streams[4];
    CUdeviceptr pointers[4];
    for (int i = 0; i < 4; i++)
        streams[i] = stream(CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 4; i++)
            CHECK_EQ(CU(cuMemAllocAsync)(&pointers[i], SIZE, streams[i]), CUDA_SUCCESS);
        CHECK(allocation_charged() >= before + 4 * SIZE);
        CHECK(allocation_charged() <= before + 5 * SIZE);
        for (int i = 0; i < 4; i++)
            CHECK_EQ(CU(cuMemFreeAsync)(pointers[i], streams[(i + round) % 4]), CUDA_SUCCESS);
    }
    settle(before);
}

BED_TEST(
    "memory of the legacy stream is freed on the thread's own, and the reverse", .limit = LIMIT)
{
    uint64_t before = start();
    CHECK_EQ(CU(cuMemFreeAsync)(allocate_on(CU_STREAM_LEGACY), CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    settle(before);
    CHECK_EQ(CU(cuMemFreeAsync)(allocate_on(CU_STREAM_PER_THREAD), CU_STREAM_LEGACY), CUDA_SUCCESS);
    settle(before);
    CHECK_EQ(CU(cuMemFreeAsync_ptsz)(allocate_on(NULL), NULL), CUDA_SUCCESS);
    settle(before);
}

BED_TEST("memory outlives the stream on which it was allocated", .limit = LIMIT)
{
    uint64_t before = start();
    CUstream first = stream(CU_STREAM_DEFAULT);
    CUdeviceptr pointer = allocate_on(first);
    uint64_t with = allocation_charged();
    CHECK_EQ(CU(cuStreamDestroy_v2)(first), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), with);
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, NULL), CUDA_SUCCESS);
    settle(before);
}

BED_TEST(
    "a free on a stream that is gone is the driver's error and gives nothing back", .limit = LIMIT)
{
    uint64_t before = start();
    CUstream gone = stream(CU_STREAM_DEFAULT);
    CUdeviceptr pointer = allocate_on(NULL), linear;
    CHECK_EQ(CU(cuMemAlloc_v2)(&linear, SIZE), CUDA_SUCCESS);
    uint64_t with = allocation_charged();
    CHECK_EQ(CU(cuStreamDestroy_v2)(gone), CUDA_SUCCESS);
    CHECK(CU(cuMemFreeAsync)(pointer, gone) != CUDA_SUCCESS);
    CHECK(CU(cuMemFreeAsync)(linear, gone) != CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), with);
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFreeAsync)(linear, NULL), CUDA_SUCCESS);
    settle(before);
}

BED_TEST("freed twice on two streams it is given back once", .limit = LIMIT)
{
    uint64_t before = start();
    CUstream first = stream(CU_STREAM_DEFAULT), second = stream(CU_STREAM_DEFAULT);
    CUdeviceptr kept = allocate_on(first), pointer = allocate_on(first);
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, second), CUDA_SUCCESS);
    CHECK(CU(cuMemFreeAsync)(pointer, first) != CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK(allocation_charged() >= before + SIZE);
    CHECK_EQ(CU(cuMemFreeAsync)(kept, second), CUDA_SUCCESS);
    settle(before);
}

BED_TEST("memory of one context's stream is freed on a stream of another", .limit = LIMIT)
{
    uint64_t before = start();
    CUcontext primary, second;
    CHECK_EQ(CU(cuCtxGetCurrent)(&primary), CUDA_SUCCESS);
    CUdeviceptr pointer = allocate_on(stream(CU_STREAM_DEFAULT));
    CHECK_EQ(CU(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, stream(CU_STREAM_DEFAULT)), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSetCurrent)(primary), CUDA_SUCCESS);
    settle(before);
}

struct handed_over {
    CUdeviceptr pointer;
    CUstream stream;
    CUresult result;
};

/* Without a context of its own: the stream says which, if the driver asks it. */
static void *use_without_context(void *argument)
{
    struct handed_over *handed = argument;
    CUdeviceptr pointer;
    uint64_t with = allocation_charged();
    handed->result = CU(cuMemAllocAsync)(&pointer, SIZE, handed->stream);
    if (handed->result == CUDA_SUCCESS) {
        CHECK(allocation_charged() >= with + SIZE);
        CHECK_EQ(CU(cuMemFreeAsync)(pointer, handed->stream), CUDA_SUCCESS);
    } else {
        CHECK_EQ(allocation_charged(), with);
    }
    if (CU(cuMemFreeAsync)(handed->pointer, handed->stream) == CUDA_SUCCESS)
        handed->pointer = 0;
    return NULL;
}

BED_TEST("a thread without a context is charged for what the driver gave it", .limit = LIMIT)
{
    uint64_t before = start();
    struct handed_over handed = {.stream = stream(CU_STREAM_DEFAULT)};
    pthread_t thread;
    handed.pointer = allocate_on(handed.stream);
    REQUIRE(pthread_create(&thread, NULL, use_without_context, &handed) == 0);
    pthread_join(thread, NULL);
    CHECK(handed.result == CUDA_SUCCESS || handed.result == CUDA_ERROR_INVALID_CONTEXT);
    if (handed.pointer)
        CHECK_EQ(CU(cuMemFreeAsync)(handed.pointer, NULL), CUDA_SUCCESS);
    settle(before);
}

BED_TEST("memory on a stream of another device than the current one is counted there",
    .sim = "2xh200", .limit = LIMIT)
{
    CUdeviceptr pointer = 0;
    bed_context(0); /* met first, so the region's first */
    bed_context(1);
    CUstream second = stream(CU_STREAM_DEFAULT);
    bed_context(0);
    const struct vgpu_slot *slot = bed_region_slot(getpid());
    REQUIRE(slot != NULL);
    uint64_t there = slot->usage[1].bytes, here = slot->usage[0].bytes;
    CHECK_EQ(CU(cuMemAllocAsync)(&pointer, SIZE, second), CUDA_SUCCESS);
    CHECK(slot->usage[1].bytes >= there + SIZE);
    CHECK_EQ(slot->usage[0].bytes, here);
    CHECK_EQ(CU(cuMemAllocAsync)(&pointer, 4 * GIB, second), CUDA_ERROR_OUT_OF_MEMORY);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
