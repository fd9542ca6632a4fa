/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered pools and graphs: what they hold counts, and gives way before a refusal. */
#include "allocate.h"
#include "bed.h"

#include <pthread.h>

#define LIMIT "2GiB"

static CUmemoryPool default_pool(void)
{
    CUmemoryPool pool = NULL;
    REQUIRE(CU(cuDeviceGetDefaultMemPool)(&pool, 0) == CUDA_SUCCESS);
    return pool;
}

static void keep_all(CUmemoryPool pool)
{
    cuuint64_t all = UINT64_MAX;
    REQUIRE(
        CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all) == CUDA_SUCCESS);
}

/* A pool that holds GIB of unused memory. */
static void hold_unused(void)
{
    CUdeviceptr pointer;
    keep_all(default_pool());
    REQUIRE(CU(cuMemAllocAsync)(&pointer, GIB, NULL) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemFreeAsync)(pointer, NULL) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxSynchronize)() == CUDA_SUCCESS);
}

BED_TEST("what a pool keeps stays charged", .limit = LIMIT)
{
    bed_context(0);
    uint64_t before = allocation_charged();
    hold_unused();
    CHECK(allocation_charged() - before >= GIB);
    CHECK_EQ(CU(cuMemPoolTrimTo)(default_pool(), 0), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("what a pool keeps serves the next request", .limit = LIMIT)
{
    CUdeviceptr pointer;
    bed_context(0);
    hold_unused();
    for (int i = 0; i < 10; i++) {
        CHECK_EQ(CU(cuMemAllocAsync)(&pointer, GIB, NULL), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemFreeAsync)(pointer, NULL), CUDA_SUCCESS);
    }
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK(allocation_charged() <= 2 * GIB);
}

BED_TEST("a pool gives way to each other kind that needs the room", .limit = LIMIT)
{
    bed_context(0);
    for (unsigned k = 0; k < allocation_kind_count; k++) {
        uint64_t handle;
        hold_unused();
        if (!CHECK_EQ(allocation_kinds[k].make(GIB, &handle), CUDA_SUCCESS))
            dprintf(STDOUT_FILENO, "# %s\n", allocation_kinds[k].function);
        CHECK(allocation_charged() <= 2 * GIB);
        CHECK_EQ(allocation_kinds[k].drop(handle), CUDA_SUCCESS);
    }
}

BED_TEST("a pool gives way to a context that needs the room", .limit = LIMIT)
{
    CUcontext second;
    CUdeviceptr pointer;
    bed_context(0);
    hold_unused();
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 400 * MIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    CHECK(bed_card_bytes(0) <= 2 * GIB);
}

BED_TEST("a request beyond the slice is refused and the pool goes on", .limit = LIMIT)
{
    CUdeviceptr pointer, other;
    bed_context(0);
    CHECK_EQ(CU(cuMemAllocAsync)(&pointer, GIB, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAllocAsync)(&other, GIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemAllocAsync)(&other, 64 * MIB, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAllocAsync)(&pointer, GIB, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK(bed_card_bytes(0) <= 2 * GIB);
}

BED_TEST("small requests in a pool cannot pass the limit", .limit = "600MiB")
{
    CUdeviceptr pointer;
    unsigned count = 0;
    bed_context(0);
    while (count < 1000 && CU(cuMemAllocAsync)(&pointer, MIB, NULL) == CUDA_SUCCESS)
        count++;
    CHECK(count > 30 && count < 100);
    CHECK(allocation_charged() <= 600 * MIB);
    CHECK(bed_card_bytes(0) <= 600 * MIB);
}

BED_TEST("a pool of the program's own counts and is given back", .limit = LIMIT)
{
    CUmemoryPool pool;
    CUdeviceptr pointer;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    bed_context(0);
    uint64_t before = allocation_charged();
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(CU(cuMemPoolCreate)(&pool, &props), CUDA_SUCCESS);
        keep_all(pool);
        CHECK_EQ(CU(cuMemAllocFromPoolAsync)(&pointer, GIB, pool, NULL), CUDA_SUCCESS);
        CHECK(allocation_charged() - before >= GIB);
        CHECK_EQ(CU(cuMemFreeAsync)(pointer, NULL), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
        CHECK(allocation_charged() - before >= GIB);
        CHECK_EQ(CU(cuMemPoolDestroy)(pool), CUDA_SUCCESS);
        CHECK_EQ(allocation_charged(), before);
    }
}

static CUmemoryPool own_pool(int ordinal)
{
    CUmemoryPool pool = NULL;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal}};
    REQUIRE(CU(cuMemPoolCreate)(&pool, &props) == CUDA_SUCCESS);
    return pool;
}

BED_TEST(
    "a pool that is destroyed in use counts until its last allocation is freed", .limit = LIMIT)
{
    CUdeviceptr pointers[3];
    bed_context(0);
    uint64_t before = allocation_charged(), card = bed_card_bytes(0);
    for (int round = 0; round < 3; round++) {
        CUmemoryPool pool = own_pool(0);
        for (int i = 0; i < 3; i++)
            CHECK_EQ(
                CU(cuMemAllocFromPoolAsync)(&pointers[i], 256 * MIB, pool, NULL), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemPoolDestroy)(pool), CUDA_SUCCESS);
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(allocation_charged() - before, bed_card_bytes(0) - card);
            CHECK(allocation_charged() - before >= 256 * MIB);
            CHECK_EQ(CU(cuMemFreeAsync)(pointers[i], NULL), CUDA_SUCCESS);
        }
        CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
        CHECK_EQ(bed_card_bytes(0), card);
        CHECK_EQ(allocation_charged(), before);
    }
}

BED_TEST("a pool that is destroyed in use is given back whole also by cuMemFree", .limit = LIMIT)
{
    CUdeviceptr pointers[3];
    bed_context(0);
    uint64_t before = allocation_charged(), card = bed_card_bytes(0);
    CUmemoryPool pool = own_pool(0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(CU(cuMemAllocFromPoolAsync)(&pointers[i], 256 * MIB, pool, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemPoolDestroy)(pool), CUDA_SUCCESS);
    for (int i = 0; i < 3; i++) {
        CHECK(allocation_charged() - before >= bed_card_bytes(0) - card);
        CHECK_EQ(CU(cuMemFree_v2)(pointers[i]), CUDA_SUCCESS);
    }
    CHECK_EQ(bed_card_bytes(0), card);
    CHECK_EQ(allocation_charged(), before);
}

/* 40 chunks of 32 MiB with 12 MiB left in each: none of them serves 24 MiB. */
BED_TEST("a pool whose unused memory lies in pieces does not grow past the limit", .limit = LIMIT)
{
    CUdeviceptr pointer;
    bed_context(0);
    while (CU(cuMemAllocAsync)(&pointer, 20 * MIB, NULL) == CUDA_SUCCESS)
        CHECK(bed_card_bytes(0) <= 2 * GIB);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(CU(cuMemAllocAsync)(&pointer, 24 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK(bed_card_bytes(0) <= 2 * GIB);
        CHECK(allocation_charged() <= 2 * GIB);
    }
    CHECK_EQ(CU(cuMemAllocAsync)(&pointer, 4 * MIB, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, NULL), CUDA_SUCCESS);
}

BED_TEST("each of many pools counts", .limit = "40GiB")
{
    CUdeviceptr pointer;
    bed_context(0);
    uint64_t before = allocation_charged(), card = bed_card_bytes(0);
    for (int i = 0; i < 600; i++)
        CHECK_EQ(CU(cuMemAllocFromPoolAsync)(&pointer, MIB, own_pool(0), NULL), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged() - before, 600 * 32 * MIB);
    CHECK_EQ(bed_card_bytes(0) - card, 600 * 32 * MIB);
}

BED_TEST("a pool of another device is trimmed there", .limit = LIMIT, .sim = "2xh200")
{
    CUdeviceptr pointer;
    cuuint64_t all = UINT64_MAX;
    bed_context(0);
    bed_context(1);
    bed_context(0);
    CUmemoryPool pool = own_pool(1);
    CHECK_EQ(
        CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all), CUDA_SUCCESS);
    uint64_t before = bed_region_bytes(1);
    CHECK_EQ(CU(cuMemAllocFromPoolAsync)(&pointer, 64 * MIB, pool, NULL), CUDA_SUCCESS);
    CHECK_EQ(bed_region_bytes(1) - before, 64 * MIB);
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemPoolTrimTo)(pool, 0), CUDA_SUCCESS);
    CHECK_EQ(bed_region_bytes(1), before);
}

BED_TEST("the default pool of another device counts there", .limit = LIMIT, .sim = "2xh200")
{
    CUmemoryPool pool;
    CUdeviceptr pointer;
    bed_context(0);
    bed_context(1);
    bed_context(0);
    CHECK_EQ(CU(cuDeviceGetDefaultMemPool)(&pool, 1), CUDA_SUCCESS);
    uint64_t first = bed_region_bytes(0), second = bed_region_bytes(1);
    CHECK_EQ(CU(cuMemAllocFromPoolAsync)(&pointer, 64 * MIB, pool, NULL), CUDA_SUCCESS);
    CHECK_EQ(bed_region_bytes(0), first);
    CHECK_EQ(bed_region_bytes(1) - second, 64 * MIB);
    CHECK_EQ(CU(cuMemAllocFromPoolAsync)(&pointer, 2 * GIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
}

BED_TEST("memory that a captured allocation takes counts", .limit = "4GiB")
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr pointer;
    bed_context(0);
    CHECK_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAllocAsync)(&pointer, GIB, stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    CHECK(allocation_charged() - before >= GIB);
    CHECK(bed_card_bytes(0) >= GIB);
    CHECK_EQ(CU(cuGraphExecDestroy)(exec), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphDestroy)(graph), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDeviceGraphMemTrim)(0), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("a graph whose memory does not fit is refused", .limit = LIMIT)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = 4 * GIB};
    bed_context(0);
    CHECK_EQ(CU(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
    CUresult result = CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &params);
    if (result == CUDA_SUCCESS)
        result = CU(cuGraphInstantiateWithFlags)(
            &exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    if (result == CUDA_SUCCESS)
        result = CU(cuGraphLaunch)(exec, NULL);
    CHECK_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(bed_card_bytes(0) <= 2 * GIB);
}

BED_TEST("a view and a refusal do not disturb a capture", .limit = LIMIT)
{
    CUstream stream;
    CUgraph graph;
    CUdeviceptr pointer;
    size_t free, total;
    bed_context(0);
    hold_unused();
    CHECK_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
    CHECK(CU(cuMemAlloc_v2)(&pointer, 8 * GIB) != CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
}

static bool pools_are_over;

/* Refusals, before which pools are trimmed, and looks at what they hold. */
static void *be_refused(void *context)
{
    CUdeviceptr pointer;
    CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
    while (!__atomic_load_n(&pools_are_over, __ATOMIC_RELAXED)) {
        CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 8 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    }
    return NULL;
}

BED_TEST(
    "pools come and go while other threads are refused, and leave nothing behind", .limit = LIMIT)
{
    pthread_t threads[2];
    CUcontext context;
    CUdeviceptr pointer;
    bed_context(0);
    REQUIRE(CU(cuCtxGetCurrent)(&context) == CUDA_SUCCESS);
    (void)own_pool(0);
    uint64_t before = allocation_charged();
    for (int i = 0; i < 2; i++)
        REQUIRE(pthread_create(&threads[i], NULL, be_refused, context) == 0);
    for (int i = 0; i < 3000; i++) {
        CUmemoryPool pool = own_pool(0);
        keep_all(pool);
        CHECK_EQ(CU(cuMemAllocFromPoolAsync)(&pointer, 64 * MIB, pool, NULL), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemFreeAsync)(pointer, NULL), CUDA_SUCCESS);
        CHECK_EQ(CU(cuStreamSynchronize)(NULL), CUDA_SUCCESS);
        if (!CHECK_EQ(CU(cuMemPoolDestroy)(pool), CUDA_SUCCESS))
            break;
    }
    __atomic_store_n(&pools_are_over, true, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(allocation_charged(), before);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
