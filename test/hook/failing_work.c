/* SPDX-License-Identifier: Apache-2.0 */
/* The workloads, with those of failing_code.c and failing_stream.c: between them they pass every
 * function that we replace. */
#include "failing_each.h"

#include "allocate.h"

#include <fcntl.h>

#define SIZE EACH_BYTES

void each_checks_go_to(struct check_shared *shared)
{
    check_shared = shared;
}

/* ---- The way in ---- */

static void starting(void)
{
    size_t total;
    int count;
    CUcontext context;
    CUdeviceptr pointer;
    DO(cuInit, 0);
    DO(cuDeviceGetCount, &count);
    DO(cuDeviceTotalMem_v2, &total, 0);
    CHECK_EQ(total, EACH_LIMIT_BYTES);
    DO(cuDevicePrimaryCtxRetain, &context, 0);
    DO(cuCtxSetCurrent, context);
    DO(cuMemAlloc_v2, &pointer, SIZE);
    DO(cuMemFree_v2, pointer);
    DO(cuDevicePrimaryCtxRelease_v2, 0);
}
const struct each_work each_starting = {"starting", starting, .bare = true};

static void contexts(void)
{
    CUcontext context;
    CUdeviceptr pointer;
    DO(cuInit, 0);
    DO(cuCtxCreate, &context, 0, 0);
    DO(cuMemAlloc_v2, &pointer, SIZE);
    DO(cuCtxDestroy, context);
    DO(cuCtxCreate_v2, &context, 0, 0);
    DO(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 4096);
    DO(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 1024);
    DO(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 2048);
    DO(cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, SIZE);
    DO(cuCtxDestroy_v2, context);
    DO(cuCtxCreate_v3, &context, NULL, 0, 0, 0);
    DO(cuCtxDestroy_v2, context);
    DO(cuCtxCreate_v4, &context, NULL, 0, 0);
    DO(cuMemAllocManaged, &pointer, SIZE, CU_MEM_ATTACH_GLOBAL);
    DO(cuCtxDestroy_v2, context);
    DO(cuGLCtxCreate, &context, 0, 0);
    DO(cuCtxDestroy_v2, context);
    DO(cuGLCtxCreate_v2, &context, 0, 0);
    DO(cuCtxDestroy_v2, context);
    DO(cuVDPAUCtxCreate, &context, 0, 0, 1, &pointer);
    DO(cuCtxDestroy_v2, context);
    DO(cuVDPAUCtxCreate_v2, &context, 0, 0, 1, &pointer);
    DO(cuCtxDestroy_v2, context);
}
const struct each_work each_contexts = {"contexts", contexts, .bare = true};

static void detached(void)
{
    CUcontext context, same;
    CUdeviceptr pointer;
    DO(cuInit, 0);
    DO(cuCtxCreate_v2, &context, 0, 0);
    DO(cuCtxAttach, &same, 0);
    DO(cuMemAlloc_v2, &pointer, SIZE);
    DO(cuCtxDetach, context);
    DO(cuCtxDetach, context);
    DO(cuDevicePrimaryCtxRetain, &context, 0);
    DO(cuCtxSetCurrent, context);
    DO(cuCtxAttach, &same, 0);
    DO(cuDevicePrimaryCtxRelease_v2, 0);
    DO(cuMemAlloc_v2, &pointer, SIZE);
    DO(cuCtxDetach, context);
}
const struct each_work each_detached = {"detached contexts", detached, .bare = true};

/* What it allocates in one goes with the primary context, which the last one takes along. */
static void green(void)
{
    CUcontext context, popped;
    CUgreenCtx one, two;
    CUdevResource all, part;
    CUdevResourceDesc descriptor;
    CUdeviceptr pointer;
    CUevent event = NULL;
    unsigned count = 1;
    DO(cuInit, 0);
    DO(cuDeviceGetDevResource, 0, &all, CU_DEV_RESOURCE_TYPE_SM);
    DO(cuDevSmResourceSplitByCount, &part, &count, &all, NULL, 0, 8);
    DO(cuDevResourceGenerateDesc, &descriptor, &part, 1);
    DO(cuGreenCtxCreate, &one, descriptor, 0, 1);
    DO(cuGreenCtxCreate, &two, descriptor, 0, 1);
    DO(cuCtxFromGreenCtx, &context, one);
    DO(cuCtxPushCurrent_v2, context);
    DO(cuMemAlloc_v2, &pointer, SIZE);
    DO(cuEventCreate, &event, 0);
    DO(cuEventRecord, event, NULL);
    DO(cuGreenCtxWaitEvent, two, event);
    DO(cuCtxWaitEvent, context, event);
    DO(cuCtxPopCurrent_v2, &popped);
    DO(cuGreenCtxDestroy, one);
    DO(cuGreenCtxDestroy, two);
}
const struct each_work each_green = {"green contexts", green, .bare = true};

static void primary(void)
{
    CUcontext context;
    CUdeviceptr pointer;
    DO(cuInit, 0);
    DO(cuDevicePrimaryCtxRetain, &context, 0);
    DO(cuCtxSetCurrent, context);
    DO(cuMemAlloc_v2, &pointer, SIZE);
    DO(cuDevicePrimaryCtxReset_v2, 0);
    DO(cuDevicePrimaryCtxRetain, &context, 0);
    DO(cuCtxSetCurrent, context);
    DO(cuMemAllocManaged, &pointer, SIZE, CU_MEM_ATTACH_GLOBAL);
    DO(cuDevicePrimaryCtxReset, 0);
    DO(cuDevicePrimaryCtxRetain, &context, 0);
    DO(cuCtxSetCurrent, context);
    DO(cuMemAlloc_v2, &pointer, SIZE);
    DO(cuDevicePrimaryCtxRelease, 0);
    DO(cuDevicePrimaryCtxReset_v2, 0);
}
const struct each_work each_primary = {"primary", primary, .bare = true};

/* ---- Memory ---- */

static void linear(void)
{
    CUdeviceptr one, two, three, small;
    size_t pitch;
    void *host;
    DO(cuMemAlloc_v2, &one, SIZE);
    DO(cuMemAlloc_v2, &small, 1000);
    DO(cuMemAllocPitch_v2, &two, &pitch, 4000, SIZE / 4096, 4);
    DO(cuMemAllocManaged, &three, SIZE, CU_MEM_ATTACH_GLOBAL);
    DO(cuMemHostAlloc, &host, MIB, 0);
    DO(cuMemFreeHost, host);
    DO(cuMemFree_v2, two);
    DO(cuMemFree_v2, small);
    DO(cuMemFree_v2, three);
    DO(cuMemFree_v2, one);
    ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2, &one, 2 * EACH_LIMIT_BYTES);
}
const struct each_work each_linear = {"linear", linear, .bare = false};

static void pointers(void)
{
    CUdeviceptr pointer, base;
    size_t bytes;
    unsigned type;
    CUpointer_attribute name = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void *value = &type;
    DO(cuMemAlloc_v2, &pointer, SIZE);
    DO(cuMemGetAddressRange_v2, &base, &bytes, pointer + 1000);
    CHECK_EQ(base, pointer);
    CHECK_EQ(bytes, SIZE);
    DO(cuPointerGetAttribute, &type, name, pointer);
    CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
    DO(cuPointerGetAttributes, 1, &name, &value, pointer);
    CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
    type = 1;
    DO(cuPointerSetAttribute, &type, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer);
    DO(cuMemFree_v2, pointer);
}
const struct each_work each_pointers = {"pointers", pointers, .bare = false};

static void peers(void)
{
    CUcontext own, other;
    CUdeviceptr pointer;
    DO(cuCtxGetCurrent, &own);
    DO(cuMemAlloc_v2, &pointer, SIZE);
    DO(cuDevicePrimaryCtxRetain, &other, 1);
    DO(cuCtxSetCurrent, other);
    DO(cuCtxEnablePeerAccess, own, 0);
    DO(cuCtxDisablePeerAccess, own);
    DO(cuCtxSetCurrent, own);
    DO(cuDevicePrimaryCtxRelease_v2, 1);
    DO(cuMemFree_v2, pointer);
}
const struct each_work each_peers = {"peers", peers, .bare = false};

static void arrays(void)
{
    CUarray flat, deep;
    CUmipmappedArray mipmap;
    CUDA_ARRAY_DESCRIPTOR two = {
        .Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    CUDA_ARRAY3D_DESCRIPTOR three = {
        .Width = 256, .Height = 256, .Depth = 16, .Format = CU_AD_FORMAT_HALF, .NumChannels = 4};
    DO(cuArrayCreate_v2, &flat, &two);
    DO(cuArray3DCreate_v2, &deep, &three);
    DO(cuMipmappedArrayCreate, &mipmap, &three, 3);
    DO(cuMipmappedArrayDestroy, mipmap);
    DO(cuArrayDestroy, deep);
    DO(cuArrayDestroy, flat);
}
const struct each_work each_arrays = {"arrays", arrays, .bare = false};

static void async(void)
{
    CUdeviceptr one, two;
    CUmemoryPool pool;
    CUevent event;
    DO(cuDeviceGetDefaultMemPool, &pool, 0);
    DO(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    DO(cuMemAllocAsync, &one, SIZE, NULL);
    DO(cuMemAllocFromPoolAsync, &two, SIZE, pool, NULL);
    DO(cuMemFreeAsync, one, NULL);
    DO(cuEventRecord, event, NULL);
    DO(cuEventSynchronize, event);
    DO(cuEventQuery, event);
    DO(cuMemFree_v2, two);
    DO(cuStreamSynchronize, NULL);
    DO(cuStreamQuery, NULL);
    DO(cuMemAllocAsync_ptsz, &one, SIZE, NULL);
    DO(cuMemAllocFromPoolAsync_ptsz, &two, SIZE, pool, NULL);
    DO(cuMemFreeAsync_ptsz, two, NULL);
    DO(cuMemFreeAsync_ptsz, one, NULL);
    DO(cuStreamSynchronize_ptsz, NULL);
    DO(cuStreamQuery_ptsz, NULL);
    DO(cuMemAlloc_v2, &one, SIZE);
    DO(cuMemFreeAsync, one, NULL);
    DO(cuCtxSynchronize, );
    DO(cuCtxSynchronize_v2, NULL);
    DO(cuEventDestroy_v2, event);
    DO(cuMemPoolTrimTo, pool, 0);
}
const struct each_work each_async = {"async", async, .bare = false};

/* A pool that keeps what it has, and gives way to what needs the room. */
static void pools(void)
{
    CUmemoryPool pool;
    CUdeviceptr pointer;
    cuuint64_t all = UINT64_MAX;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    DO(cuMemPoolCreate, &pool, &props);
    DO(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all);
    DO(cuMemAllocFromPoolAsync, &pointer, GIB, pool, NULL);
    DO(cuMemFreeAsync, pointer, NULL);
    DO(cuCtxSynchronize, );
    DO(cuMemAlloc_v2, &pointer, GIB);
    DO(cuMemFree_v2, pointer);
    DO(cuMemAllocFromPoolAsync, &pointer, SIZE, pool, NULL);
    DO(cuMemFreeAsync, pointer, NULL);
    DO(cuCtxSynchronize, );
    DO(cuMemPoolTrimTo, pool, 0);
    DO(cuMemPoolDestroy, pool);
}
const struct each_work each_pools = {"pools", pools, .bare = false};

/* Managed memory: the default pool, one of the program's own made the current one, a graph's. */
static void managed_pools(void)
{
    CUmemLocation anywhere = {.type = CU_MEM_LOCATION_TYPE_NONE};
    CUmemoryPool pool = NULL, found = NULL;
    CUdeviceptr pointer = 0;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = anywhere};
    DO(cuMemGetDefaultMemPool, &found, &anywhere, CU_MEM_ALLOCATION_TYPE_MANAGED);
    DO(cuMemAllocFromPoolAsync, &pointer, SIZE, found, NULL);
    DO(cuMemFreeAsync, pointer, NULL);
    DO(cuMemPoolCreate, &pool, &props);
    DO(cuMemSetMemPool, &anywhere, CU_MEM_ALLOCATION_TYPE_MANAGED, pool);
    DO(cuMemGetMemPool, &found, &anywhere, CU_MEM_ALLOCATION_TYPE_MANAGED);
    DO(cuMemAllocFromPoolAsync, &pointer, SIZE, found, NULL);
    DO(cuCtxSynchronize, );
    DO(cuMemFree_v2, pointer);
    DO(cuMemPoolTrimTo, pool, 0);
    DO(cuMemPoolDestroy, pool);
}
const struct each_work each_managed_pools = {"managed pools", managed_pools, .bare = false};

/* The memory of a graph: given back with it, and what it leaves by hand. */
static void managed_graph(void)
{
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    CUgraphExec exec = NULL;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    params.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    params.alloc.bytesize = SIZE;
    CUgraphNodeParams freed = params;
    DO(cuGraphCreate, &graph, 0);
    DO(cuGraphAddNode, &node, graph, NULL, 0, &params);
    DO(cuGraphAddNode_v2, &node, graph, NULL, NULL, 0, &freed);
    DO(cuGraphAddMemFreeNode, &node, graph, &node, 1, freed.alloc.dptr);
    DO(cuGraphInstantiateWithFlags, &exec, graph, 0);
    DO(cuGraphLaunch, exec, NULL);
    DO(cuCtxSynchronize, );
    DO(cuGraphExecDestroy, exec);
    DO(cuMemFree_v2, params.alloc.dptr);
    DO(cuGraphDestroy, graph);
}
const struct each_work each_managed_graph = {"managed graph", managed_graph, .bare = false};

static void mapping(void)
{
    CUmemAllocationProp property = allocation_property(0);
    CUmemGenericAllocationHandle handle, again;
    CUmemAccessDesc access = {
        .location = property.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    DO(cuMemCreate, &handle, SIZE, &property, 0);
    DO(cuMemAddressReserve, &address, 2 * SIZE, 0, 0, 0);
    DO(cuMemMap, address, SIZE, 0, handle, 0);
    DO(cuMemMap, address + SIZE, SIZE, 0, handle, 0);
    DO(cuMemSetAccess, address, SIZE, &access, 1);
    DO(cuMemRetainAllocationHandle, &again, (void *)(uintptr_t)address);
    DO(cuMemRelease, handle);
    DO(cuMemUnmap, address, 2 * SIZE);
    DO(cuMemRelease, again);
    DO(cuMemAddressFree, address, 2 * SIZE);
}
const struct each_work each_mapping = {"mapping", mapping, .bare = false};

static void sharing(void)
{
    CUmemAllocationProp property = allocation_property(0);
    CUmemGenericAllocationHandle handle, imported;
    CUdeviceptr address;
    int fd;
    DO(cuMemCreate, &handle, SIZE, &property, 0);
    DO(cuMemExportToShareableHandle, &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    DO(cuMemImportFromShareableHandle, &imported, (void *)(intptr_t)fd,
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    DO(cuMemRelease, imported);
    DO(cuMemRelease, handle);
    DO(cuMemAlloc_v2, &address, SIZE);
    DO(cuMemGetHandleForAddressRange, &fd, address, SIZE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    close(fd);
    DO(cuMemFree_v2, address);
    /* What was kept for the descriptor is given back when it is looked for: by a refusal at the
     * latest. */
    ANSWERS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate, &handle, 2 * EACH_LIMIT_BYTES, &property, 0);
}
const struct each_work each_sharing = {"sharing", sharing, .bare = false};

/* ---- What is told ---- */

static void cuda_views(uint64_t used)
{
    size_t free, total;
    unsigned narrow_free, narrow_total;
    DO(cuMemGetInfo_v2, &free, &total);
    CHECK_EQ(total, EACH_LIMIT_BYTES);
    CHECK_EQ(free, EACH_LIMIT_BYTES - used);
    DO(cuMemGetInfo_v2, NULL, &total);
    CHECK_EQ(total, EACH_LIMIT_BYTES);
    ANSWERS(CUDA_ERROR_INVALID_CONTEXT, cuMemGetInfo, &narrow_free, &narrow_total);
    DO(cuDeviceTotalMem_v2, &total, 0);
    CHECK_EQ(total, EACH_LIMIT_BYTES);
    DO(cuDeviceTotalMem, &narrow_total, 0);
    CHECK_EQ(narrow_total, EACH_LIMIT_BYTES);
}

static void memory_views(nvmlDevice_t device, uint64_t used)
{
    nvmlMemory_t first;
    nvmlMemory_v2_t second = {.version = nvmlMemory_v2};
    DO_NVML(nvmlDeviceGetMemoryInfo, device, &first);
    CHECK_EQ(first.total, EACH_LIMIT_BYTES);
    CHECK_EQ(first.used, used);
    DO_NVML(nvmlDeviceGetMemoryInfo_v2, device, &second);
    CHECK_EQ(second.total, EACH_LIMIT_BYTES);
    CHECK_EQ(second.used, used);
}

#define ROOM 128

/* One list of processes in each of its forms. */
#define LISTS(kind, expected)                                                                      \
    do {                                                                                           \
        nvmlProcessInfo_v1_t first[ROOM];                                                          \
        nvmlProcessInfo_v2_t second[ROOM];                                                         \
        nvmlProcessInfo_t third[ROOM];                                                             \
        unsigned listed = ROOM;                                                                    \
        DO_NVML(nvmlDeviceGet##kind##RunningProcesses, device, &listed, first);                    \
        CHECK_EQ(listed, expected);                                                                \
        listed = ROOM;                                                                             \
        DO_NVML(nvmlDeviceGet##kind##RunningProcesses_v2, device, &listed, second);                \
        CHECK_EQ(listed, expected);                                                                \
        listed = ROOM;                                                                             \
        DO_NVML(nvmlDeviceGet##kind##RunningProcesses_v3, device, &listed, third);                 \
        CHECK_EQ(listed, expected);                                                                \
    } while (0)

static void process_views(nvmlDevice_t device)
{
    nvmlProcessDetail_v1_t details[ROOM];
    nvmlProcessDetailList_t list = {
        .version = nvmlProcessDetailList_v1, .numProcArrayEntries = ROOM, .procArray = details};
    nvmlProcessUtilizationSample_t samples[ROOM];
    nvmlProcessesUtilizationInfo_t infos = {.version = nvmlProcessesUtilizationInfo_v1};
    unsigned count = ROOM;
    LISTS(Compute, 1);
    LISTS(Graphics, 0);
    LISTS(MPSCompute, 0);
    DO_NVML(nvmlDeviceGetRunningProcessDetailList, device, &list);
    CHECK_EQ(list.numProcArrayEntries, 1);
    CHECK_EQ(details[0].pid, getpid());
    ANSWERS_NVML(
        NVML_ERROR_NOT_FOUND, nvmlDeviceGetProcessUtilization, device, samples, &count, 0ull);
    ANSWERS_NVML(NVML_ERROR_NOT_FOUND, nvmlDeviceGetProcessesUtilizationInfo, device, &infos);
}

static void record_views(nvmlDevice_t device)
{
    nvmlEncoderSessionInfo_t encoders[ROOM];
    nvmlFBCSessionInfo_t captures[ROOM];
    nvmlAccountingStats_t first;
    nvmlAccountingStats_v2_t second = {.pid = (unsigned)getpid()};
    unsigned pids[ROOM], count = ROOM;
    DO_NVML(nvmlDeviceGetEncoderSessions, device, &count, encoders);
    CHECK_EQ(count, 1);
    count = ROOM;
    DO_NVML(nvmlDeviceGetFBCSessions, device, &count, captures);
    CHECK_EQ(count, 1);
    count = ROOM;
    DO_NVML(nvmlDeviceGetAccountingPids, device, &count, pids);
    CHECK_EQ(count, 1);
    DO_NVML(nvmlDeviceGetAccountingStats, device, (unsigned)getpid(), &first);
    CHECK(first.isRunning);
    DO_NVML(nvmlDeviceGetAccountingStats_v2, device, &second);
    CHECK(second.isRunning);
}

static void protected_views(nvmlDevice_t device, uint64_t used)
{
    nvmlConfComputeMemSizeInfo_t sizes;
    nvmlMemory_t memory;
    DO_NVML(nvmlDeviceGetConfComputeMemSizeInfo, device, &sizes);
    CHECK_EQ(sizes.protectedMemSizeKib, EACH_LIMIT_BYTES >> 10);
    DO_NVML(nvmlDeviceGetConfComputeProtectedMemoryUsage, device, &memory);
    CHECK_EQ(memory.total, EACH_LIMIT_BYTES);
    CHECK_EQ(memory.used, used);
}

static void views(void)
{
    nvmlDevice_t device;
    uint64_t used = allocation_charged();
    cuda_views(used);
    DO_NVML(nvmlInit_v2, );
    DO_NVML(nvmlDeviceGetHandleByIndex_v2, 0u, &device);
    memory_views(device, used);
    process_views(device);
    record_views(device);
    protected_views(device, used);
    DO_NVML(nvmlShutdown, );
}
const struct each_work each_views = {"views", views, .bare = false};

/* The hook is what is found, or nothing: never the driver's own. */
static void lookups(void)
{
    void *function = NULL;
    CUdriverProcAddressQueryResult status;
    DO(cuGetProcAddress, "cuMemAlloc", &function, 12000, 0);
    CHECK(function == bed_cuda("cuMemAlloc_v2"));
    DO(cuGetProcAddress_v2, "cuMemFree", &function, 12000, 0, &status);
    CHECK(function == bed_cuda("cuMemFree_v2"));
    DO(cuGetProcAddress_v2, "cuStreamCreate", &function, 12000, 0, &status);
    CHECK(function == bed_cuda("cuStreamCreate"));
}
const struct each_work each_lookups = {"lookups", lookups, .bare = false};

/* ---- Between processes ---- */

struct peer {
    int to, from; /* pipes: a byte ends it; the handle */
    pid_t pid;
};

static void hold_shared(int ends, int handles)
{
    CUipcMemHandle handle;
    CUdeviceptr pointer;
    char end;
    bed_context(0);
    REQUIRE(CU(cuMemAlloc_v2)(&pointer, SIZE) == CUDA_SUCCESS);
    REQUIRE(CU(cuIpcGetMemHandle)(&handle, pointer) == CUDA_SUCCESS);
    REQUIRE(write(handles, &handle, sizeof(handle)) == sizeof(handle));
    (void)!read(ends, &end, 1);
    _exit(0);
}

/* Forked before this process has used the driver, and untouched by its rule. */
static struct peer peer_start(CUipcMemHandle *ret_handle)
{
    int ends[2], handles[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0 && pipe2(handles, O_CLOEXEC) == 0);
    struct peer peer = {.to = ends[1], .from = handles[0], .pid = fork()};
    if (peer.pid == 0) {
        close(ends[1]);
        setenv("VGPU_SIM", getenv("VGPU_TEST_PEER_SIM"), 1);
        dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
        hold_shared(ends[0], handles[1]);
    }
    close(handles[1]);
    REQUIRE(read(handles[0], ret_handle, sizeof(*ret_handle)) == sizeof(*ret_handle));
    return peer;
}

static void ipc(void)
{
    CUcontext context;
    CUipcMemHandle theirs, ours;
    CUdeviceptr pointer;
    size_t free, total;
    struct peer peer = peer_start(&theirs);
    each_foreign_here();
    DO(cuInit, 0);
    DO(cuDevicePrimaryCtxRetain, &context, 0);
    DO(cuCtxSetCurrent, context);
    DO(cuMemAlloc_v2, &pointer, SIZE);
    DO(cuIpcGetMemHandle, &ours, pointer);
    DO(cuMemFree_v2, pointer);
    DO(cuIpcOpenMemHandle, &pointer, theirs, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    DO(cuIpcCloseMemHandle, pointer);
    DO(cuIpcOpenMemHandle_v2, &pointer, theirs, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    DO(cuIpcCloseMemHandle, pointer);
    close(peer.to);
    CHECK(bed_ended_well(peer.pid));
    DO(cuMemGetInfo_v2, &free, &total); /* whoever looks retires the dead */
    each_foreign_gone();
    DO(cuDevicePrimaryCtxRelease_v2, 0);
}
const struct each_work each_ipc = {"ipc", ipc, .bare = true};
