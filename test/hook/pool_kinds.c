/* SPDX-License-Identifier: Apache-2.0 */
/* Pools by what they hand out: managed memory is limited as cuMemAllocManaged is, wherever it
 * prefers to lie, and memory of the host counts nowhere. */
#include "allocate.h"
#include "bed.h"

#define LIMIT "2GiB"
#define STEP (128 * MIB)
#define STEPS 64

static const CUmemLocation locations[] = {
    {CU_MEM_LOCATION_TYPE_DEVICE, 0},
    {CU_MEM_LOCATION_TYPE_NONE, 0},
    {CU_MEM_LOCATION_TYPE_HOST, 0},
    {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
};
#define LOCATIONS (sizeof(locations) / sizeof(locations[0]))
#define NO_DEVICE 1
#define OF_HOST 2 /* and those behind */

/* Ends the test where the driver has no such pools. */
static CUmemoryPool make(CUmemAllocationType type, CUmemLocation location)
{
    CUmemPoolProps props = {.allocType = type, .location = location};
    CUmemoryPool pool = NULL;
    CUresult result = CU(cuMemPoolCreate)(&pool, &props);
    if (result == CUDA_ERROR_NOT_SUPPORTED ||
        (type == CU_MEM_ALLOCATION_TYPE_MANAGED && !bed_cuda("cuMemGetDefaultMemPool")))
        (void)CU(cuMemGetDefaultMemPool);
    REQUIRE(result == CUDA_SUCCESS);
    return pool;
}

static CUmemoryPool make_managed(size_t location)
{
    return make(CU_MEM_ALLOCATION_TYPE_MANAGED, locations[location]);
}

static void keep_all(CUmemoryPool pool)
{
    cuuint64_t all = UINT64_MAX;
    CHECK_EQ(
        CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all), CUDA_SUCCESS);
}

static CUresult take(CUdeviceptr *pointer, uint64_t bytes, CUmemoryPool pool)
{
    return CU(cuMemAllocFromPoolAsync)(pointer, bytes, pool, NULL);
}

static CUresult give(CUdeviceptr pointer)
{
    return CU(cuMemFreeAsync)(pointer, NULL);
}

/* Takes steps until one is refused, or all; gives them back, and returns how many they were. */
static unsigned fill(CUmemoryPool pool, uint64_t *ret_charged)
{
    CUdeviceptr pointers[STEPS];
    unsigned count = 0;
    CUresult result = CUDA_SUCCESS;
    uint64_t before = allocation_charged();
    while (count < STEPS && (result = take(&pointers[count], STEP, pool)) == CUDA_SUCCESS)
        count++;
    CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
    *ret_charged = allocation_charged() - before;
    for (unsigned i = 0; i < count; i++)
        CHECK_EQ(i % 2 ? give(pointers[i]) : CU(cuMemFree_v2)(pointers[i]), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamSynchronize)(NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemPoolTrimTo)(pool, 0), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
    return count;
}

/* 2 GiB less a context of 520 MiB, in steps of 128 MiB. */
static void check_limited(CUmemoryPool pool)
{
    uint64_t charged;
    unsigned count = fill(pool, &charged);
    CHECK(count >= 11 && count < 16);
    CHECK_EQ(charged, count * STEP);
}

static void check_unlimited(CUmemoryPool pool)
{
    uint64_t charged;
    CHECK_EQ(fill(pool, &charged), STEPS);
    CHECK_EQ(charged, 0);
}

static CUmemoryPool default_of(CUmemAllocationType type, CUmemLocation location)
{
    CUmemoryPool pool = NULL;
    CHECK_EQ(CU(cuMemGetDefaultMemPool)(&pool, &location, type), CUDA_SUCCESS);
    return pool;
}

BED_TEST("a pool of managed memory is limited, whichever its location", .limit = LIMIT)
{
    bed_context(0);
    for (size_t i = 0; i < LOCATIONS; i++) {
        CUmemoryPool pool = make_managed(i);
        check_limited(pool);
        CHECK_EQ(CU(cuMemPoolDestroy)(pool), CUDA_SUCCESS);
    }
}

BED_TEST("the default pools of managed memory are limited", .limit = LIMIT)
{
    bed_context(0);
    for (size_t i = 0; i < LOCATIONS; i++)
        check_limited(default_of(CU_MEM_ALLOCATION_TYPE_MANAGED, locations[i]));
}

BED_TEST("a location's current pool of managed memory is limited", .limit = LIMIT)
{
    bed_context(0);
    for (size_t i = 0; i < LOCATIONS; i++) {
        CUmemLocation location = locations[i];
        CUmemoryPool found = NULL, pool = make_managed(i);
        CHECK_EQ(
            CU(cuMemSetMemPool)(&location, CU_MEM_ALLOCATION_TYPE_MANAGED, pool), CUDA_SUCCESS);
        CHECK_EQ(
            CU(cuMemGetMemPool)(&found, &location, CU_MEM_ALLOCATION_TYPE_MANAGED), CUDA_SUCCESS);
        CHECK_EQ((uintptr_t)found, (uintptr_t)pool);
        check_limited(found);
    }
}

BED_TEST("managed memory of a device's current pool is limited", .limit = LIMIT)
{
    CUdeviceptr pointer, other;
    bed_context(0);
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuDeviceSetMemPool)(0, make_managed(0)), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAllocAsync)(&pointer, GIB, NULL), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged() - before, GIB);
    CHECK_EQ(CU(cuMemAllocAsync)(&other, GIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(give(pointer), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("a pool of host memory counts nowhere and is not limited", .limit = LIMIT)
{
    bed_context(0);
    for (size_t i = OF_HOST; i < LOCATIONS; i++)
        check_unlimited(make(CU_MEM_ALLOCATION_TYPE_PINNED, locations[i]));
}

BED_TEST("the default pools of host memory count nowhere", .limit = LIMIT)
{
    bed_context(0);
    for (size_t i = OF_HOST; i < LOCATIONS; i++)
        check_unlimited(default_of(CU_MEM_ALLOCATION_TYPE_PINNED, locations[i]));
}

BED_TEST("what a pool of host memory keeps counts nowhere, nor what it leaves", .limit = LIMIT)
{
    CUdeviceptr pointer;
    size_t free_bytes, total;
    bed_context(0);
    uint64_t before = allocation_charged();
    CUmemoryPool pool = make(CU_MEM_ALLOCATION_TYPE_PINNED, locations[OF_HOST + 1]);
    keep_all(pool);
    CHECK_EQ(take(&pointer, 4 * GIB, pool), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free_bytes, &total), CUDA_SUCCESS);
    CHECK_EQ(total - free_bytes, before);
    CHECK_EQ(CU(cuMemPoolDestroy)(pool), CUDA_SUCCESS);
    CHECK_EQ(give(pointer), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("access of a device to a pool of host memory charges it nothing", .limit = LIMIT)
{
    CUdeviceptr pointer;
    CUmemAccessDesc access = {
        .location = locations[0], .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    bed_context(0);
    uint64_t before = allocation_charged();
    CUmemoryPool pool = make(CU_MEM_ALLOCATION_TYPE_PINNED, locations[OF_HOST]);
    CHECK_EQ(CU(cuMemPoolSetAccess)(pool, &access, 1), CUDA_SUCCESS);
    CHECK_EQ(take(&pointer, 4 * GIB, pool), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
    CHECK_EQ(give(pointer), CUDA_SUCCESS);
}

BED_TEST("managed pools, managed memory and device memory share the limit", .limit = LIMIT)
{
    CUdeviceptr pooled, other;
    bed_context(0);
    CUmemoryPool pool = make_managed(NO_DEVICE);
    CHECK_EQ(take(&pooled, GIB, pool), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&other, GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemAllocManaged)(&other, GIB, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(take(&other, GIB, make_managed(0)), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(give(pooled), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&other, GIB), CUDA_SUCCESS);
    CHECK_EQ(take(&pooled, GIB, pool), CUDA_ERROR_OUT_OF_MEMORY);
}

BED_TEST("what a managed pool keeps counts, serves it again and gives way", .limit = LIMIT)
{
    CUdeviceptr pointer;
    bed_context(0);
    uint64_t before = allocation_charged();
    CUmemoryPool pool = make_managed(NO_DEVICE);
    keep_all(pool);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(take(&pointer, GIB, pool), CUDA_SUCCESS);
        CHECK_EQ(give(pointer), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
        CHECK_EQ(allocation_charged() - before, GIB);
    }
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged() - before, GIB);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("a managed pool that is destroyed in use counts until its last allocation is freed",
    .limit = LIMIT)
{
    CUdeviceptr pointers[3];
    bed_context(0);
    uint64_t before = allocation_charged();
    for (size_t location = 0; location < LOCATIONS; location++) {
        CUmemoryPool pool = make_managed(location);
        for (int i = 0; i < 3; i++)
            CHECK_EQ(take(&pointers[i], 256 * MIB, pool), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemPoolDestroy)(pool), CUDA_SUCCESS);
        for (int i = 0; i < 3; i++) {
            CHECK(allocation_charged() - before >= (uint64_t)(3 - i) * 256 * MIB);
            CHECK_EQ(i % 2 ? CU(cuMemFree_v2)(pointers[i]) : give(pointers[i]), CUDA_SUCCESS);
        }
        CHECK_EQ(allocation_charged(), before);
    }
}

BED_TEST("small requests in a managed pool cannot pass the limit", .limit = "600MiB")
{
    CUdeviceptr pointer;
    unsigned count = 0;
    bed_context(0);
    CUmemoryPool pool = make_managed(NO_DEVICE);
    while (count < 1000 && take(&pointer, MIB, pool) == CUDA_SUCCESS)
        count++;
    CHECK(count > 30 && count < 100);
    CHECK(allocation_charged() <= 600 * MIB);
}

BED_TEST("a managed pool counts where the driver does not tell what it holds", .limit = LIMIT,
    .sim = "fail=cuMemPoolGetAttribute:0:1")
{
    bed_context(0);
    for (size_t i = 0; i < LOCATIONS; i++)
        check_limited(make_managed(i));
}

BED_TEST("a managed pool of another device counts there", .limit = LIMIT, .sim = "2xh200")
{
    CUdeviceptr pointer, other;
    bed_context(0);
    bed_context(1);
    bed_context(0);
    uint64_t first = bed_region_bytes(0), second = bed_region_bytes(1);
    CUmemoryPool pool =
        make(CU_MEM_ALLOCATION_TYPE_MANAGED, (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 1});
    CHECK_EQ(take(&pointer, GIB, pool), CUDA_SUCCESS);
    CHECK_EQ(bed_region_bytes(0), first);
    CHECK_EQ(bed_region_bytes(1) - second, GIB);
    CHECK_EQ(take(&other, GIB, pool), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(give(pointer), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemPoolTrimTo)(pool, 0), CUDA_SUCCESS);
    CHECK_EQ(bed_region_bytes(1), second);
}

BED_TEST("a managed pool without a device counts on the stream's, and while it holds nothing on "
         "the next one's",
    .limit = LIMIT, .sim = "2xh200")
{
    CUdeviceptr pointer;
    CUstream streams[2];
    bed_context(0);
    CHECK_EQ(CU(cuStreamCreate)(&streams[0], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    bed_context(1);
    CHECK_EQ(CU(cuStreamCreate)(&streams[1], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    bed_context(0);
    uint64_t before[] = {bed_region_bytes(0), bed_region_bytes(1)};
    CUmemoryPool pool = make_managed(NO_DEVICE);
    for (unsigned i = 0; i < 4; i++) {
        unsigned here = (i + 1) % 2;
        CHECK_EQ(CU(cuMemAllocFromPoolAsync)(&pointer, GIB, pool, streams[here]), CUDA_SUCCESS);
        CHECK_EQ(bed_region_bytes(here) - before[here], GIB);
        CHECK_EQ(bed_region_bytes(1 - here), before[1 - here]);
        CHECK_EQ(CU(cuMemFreeAsync)(pointer, streams[here]), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemPoolTrimTo)(pool, 0), CUDA_SUCCESS);
        CHECK_EQ(bed_region_bytes(here), before[here]);
    }
}

/* The other process holds its share until it is told to end. */
static void hold(void *argument)
{
    const int *pipes = argument;
    CUdeviceptr pointer;
    char byte = 0;
    bed_context(0);
    CHECK_EQ(take(&pointer, 512 * MIB, make_managed(NO_DEVICE)), CUDA_SUCCESS);
    CHECK_EQ(write(pipes[1], &byte, 1), 1);
    CHECK_EQ(read(pipes[2], &byte, 1), 1);
}

BED_TEST("managed pools of two processes share the limit, and death gives back", .limit = LIMIT)
{
    int pipes[4];
    char byte = 0;
    CUdeviceptr pointer;
    REQUIRE(pipe(pipes) == 0 && pipe(pipes + 2) == 0);
    pid_t child = bed_fork(hold, pipes);
    bed_context(0);
    CUmemoryPool pool = make_managed(0);
    REQUIRE(read(pipes[0], &byte, 1) == 1);
    CHECK_EQ(take(&pointer, 640 * MIB, pool), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(write(pipes[3], &byte, 1), 1);
    CHECK(bed_ended_well(child));
    CHECK_EQ(take(&pointer, 640 * MIB, pool), CUDA_SUCCESS);
}

static CUgraphExec graph_of(
    CUmemAllocationType type, CUmemLocation location, uint64_t bytes, bool freed, CUdeviceptr *ret)
{
    CUgraph graph;
    CUgraphNode node, end;
    CUgraphExec exec = NULL;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    params.alloc.poolProps = (CUmemPoolProps){.allocType = type, .location = location};
    params.alloc.bytesize = bytes;
    (void)CU(cuMemGetDefaultMemPool); /* a driver that is older knows no such nodes */
    CHECK_EQ(CU(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphAddNode)(&node, graph, NULL, 0, &params), CUDA_SUCCESS);
    *ret = params.alloc.dptr;
    if (freed)
        CHECK_EQ(CU(cuGraphAddMemFreeNode)(&end, graph, &node, 1, *ret), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphDestroy)(graph), CUDA_SUCCESS);
    return exec;
}

/* By each version of the call that a driver may have. */
BED_TEST("a node of managed memory is known by each version of the call", .limit = LIMIT,
    .sim = "cuda=13050")
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    params.alloc.poolProps =
        (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = locations[0]};
    params.alloc.bytesize = 4 * GIB;
    bed_context(0);
    for (int version = 1; version <= 3; version++) {
        CUgraph graph;
        CUgraphNode node;
        CUgraphExec exec = NULL;
        CHECK_EQ(CU(cuGraphCreate)(&graph, 0), CUDA_SUCCESS);
        CUresult added = version == 1 ? CU(cuGraphAddNode)(&node, graph, NULL, 0, &params)
                         : version == 2
                             ? CU(cuGraphAddNode_v2)(&node, graph, NULL, NULL, 0, &params)
                             : CU(cuGraphAddNode_v3)(&node, graph, NULL, NULL, 0, &params);
        CHECK_EQ(added, CUDA_SUCCESS);
        CHECK_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
        CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQ(CU(cuGraphExecDestroy)(exec), CUDA_SUCCESS);
        CHECK_EQ(CU(cuGraphDestroy)(graph), CUDA_SUCCESS);
    }
}

BED_TEST("managed memory of graphs is limited, and host memory is not", .limit = LIMIT)
{
    CUdeviceptr pointer;
    bed_context(0);
    uint64_t before = allocation_charged();
    for (size_t i = 0; i < LOCATIONS; i++) {
        CUgraphExec large =
            graph_of(CU_MEM_ALLOCATION_TYPE_MANAGED, locations[i], 4 * GIB, true, &pointer);
        CHECK_EQ(CU(cuGraphLaunch)(large, NULL), CUDA_ERROR_OUT_OF_MEMORY);
        CUgraphExec one =
            graph_of(CU_MEM_ALLOCATION_TYPE_MANAGED, locations[i], GIB, true, &pointer);
        CUgraphExec two =
            graph_of(CU_MEM_ALLOCATION_TYPE_MANAGED, locations[i], GIB, true, &pointer);
        for (int round = 0; round < 3; round++) {
            CHECK_EQ(CU(cuGraphLaunch)(one, NULL), CUDA_SUCCESS);
            CHECK_EQ(allocation_charged() - before, GIB);
        }
        CHECK_EQ(CU(cuGraphLaunch)(two, NULL), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
        CHECK_EQ(CU(cuGraphExecDestroy)(one), CUDA_SUCCESS);
        CHECK_EQ(allocation_charged(), before);
        CHECK_EQ(CU(cuGraphLaunch)(two, NULL), CUDA_SUCCESS);
        CHECK_EQ(CU(cuGraphExecDestroy)(two), CUDA_SUCCESS);
        CHECK_EQ(CU(cuGraphExecDestroy)(large), CUDA_SUCCESS);
        CHECK_EQ(allocation_charged(), before);
    }
    for (size_t i = OF_HOST; i < LOCATIONS; i++) {
        CUgraphExec host =
            graph_of(CU_MEM_ALLOCATION_TYPE_PINNED, locations[i], 8 * GIB, true, &pointer);
        CHECK_EQ(CU(cuGraphLaunch)(host, NULL), CUDA_SUCCESS);
        CHECK_EQ(allocation_charged(), before);
        CHECK_EQ(CU(cuGraphExecDestroy)(host), CUDA_SUCCESS);
    }
}

BED_TEST("managed memory that a graph leaves counts until it is freed", .limit = LIMIT)
{
    CUdeviceptr pointer;
    bed_context(0);
    uint64_t before = allocation_charged();
    for (int by = 0; by < 2; by++) {
        CUgraphExec exec =
            graph_of(CU_MEM_ALLOCATION_TYPE_MANAGED, locations[NO_DEVICE], GIB, false, &pointer);
        CHECK_EQ(CU(cuGraphUpload)(exec, NULL), CUDA_SUCCESS);
        CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
        CHECK_EQ(CU(cuGraphExecDestroy)(exec), CUDA_SUCCESS);
        CHECK_EQ(allocation_charged() - before, GIB);
        CHECK_EQ(by ? CU(cuMemFree_v2)(pointer) : give(pointer), CUDA_SUCCESS);
        CHECK_EQ(allocation_charged(), before);
    }
}

BED_TEST("a captured free does not give back what a graph left", .limit = LIMIT)
{
    CUdeviceptr pointer;
    CUstream stream;
    CUgraph graph;
    bed_context(0);
    CHECK_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    uint64_t before = allocation_charged();
    CUgraphExec exec =
        graph_of(CU_MEM_ALLOCATION_TYPE_MANAGED, locations[NO_DEVICE], GIB, false, &pointer);
    CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphDestroy)(graph), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged() - before, GIB);
    CHECK_EQ(give(pointer), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphExecDestroy)(exec), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("managed memory that a graph left goes with its context", .limit = LIMIT)
{
    CUcontext context;
    CUdeviceptr pointer;
    bed_context(0);
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
    CUgraphExec exec =
        graph_of(CU_MEM_ALLOCATION_TYPE_MANAGED, locations[0], 512 * MIB, false, &pointer);
    CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxSynchronize)(), CUDA_SUCCESS);
    CHECK_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("managed memory of graphs goes with their context", .limit = LIMIT)
{
    CUcontext context;
    CUdeviceptr pointer;
    bed_context(0);
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
    CUgraphExec exec =
        graph_of(CU_MEM_ALLOCATION_TYPE_MANAGED, locations[0], 512 * MIB, true, &pointer);
    CHECK_EQ(CU(cuGraphLaunch)(exec, NULL), CUDA_SUCCESS);
    CHECK(allocation_charged() - before >= 512 * MIB);
    CHECK_EQ(CU(cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("a captured allocation of a managed pool counts when it is launched", .limit = LIMIT)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr pointer;
    bed_context(0);
    CUmemoryPool pool = make_managed(NO_DEVICE);
    CHECK_EQ(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAllocFromPoolAsync)(&pointer, GIB, pool, stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFreeAsync)(pointer, stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuStreamEndCapture)(stream, &graph), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
    CHECK_EQ(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphLaunch)(exec, stream), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged() - before, GIB);
    CHECK_EQ(CU(cuStreamSynchronize)(stream), CUDA_SUCCESS);
    CHECK_EQ(CU(cuGraphExecDestroy)(exec), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("host memory of cuMemCreate counts nowhere and is not limited", .limit = LIMIT)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    bed_context(0);
    uint64_t before = allocation_charged();
    for (size_t i = OF_HOST; i < LOCATIONS; i++) {
        CUmemAllocationProp property = {
            .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = locations[i]};
        (void)CU(cuMemGetDefaultMemPool); /* a driver that is older knows no such locations */
        CHECK_EQ(CU(cuMemCreate)(&handle, 8 * GIB, &property, 0), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemAddressReserve)(&address, 8 * GIB, 0, 0, 0), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemMap)(address, 8 * GIB, 0, handle, 0), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
        CHECK_EQ(allocation_charged(), before);
        CHECK_EQ(CU(cuMemUnmap)(address, 8 * GIB), CUDA_SUCCESS);
        CHECK_EQ(allocation_charged(), before);
    }
}

BED_TEST("pools that the driver refuses are its own refusal, and leave no charge", .limit = LIMIT)
{
    static const struct {
        CUmemPoolProps props;
        CUresult result;
    } cases[] = {
        {{.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_NONE, 0}},
            CUDA_ERROR_INVALID_VALUE},
        {{.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
             .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0}},
            CUDA_ERROR_INVALID_VALUE},
        {{.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
             .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
             .location = {CU_MEM_LOCATION_TYPE_HOST, 0}},
            CUDA_ERROR_INVALID_VALUE},
        {{.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
             .maxSize = GIB,
             .location = {CU_MEM_LOCATION_TYPE_NONE, 0}},
            CUDA_ERROR_INVALID_VALUE},
        {{.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
             .location = {CU_MEM_LOCATION_TYPE_DEVICE, 99}},
            CUDA_ERROR_INVALID_DEVICE},
    };
    bed_context(0);
    CUmemoryPool pool = make_managed(NO_DEVICE); /* or the driver is older */
    uint64_t before = allocation_charged();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CHECK_EQ(CU(cuMemPoolCreate)(&pool, &cases[i].props), cases[i].result);
    CHECK_EQ(allocation_charged(), before);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
