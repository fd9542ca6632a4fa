/* SPDX-License-Identifier: Apache-2.0 */
/* Workloads of streams: copies, prefetches, waits, host functions, current contexts. Whatever is
 * copied is looked at afterwards, so that no argument is lost on the way. */
#include "failing_each.h"

#include <stdatomic.h>

#define SIZE EACH_BYTES
#define BYTES 4096
/* Above what the library takes for a small copy. */
#define LARGE_BYTES (2 * MIB)

#define WORDS (LARGE_BYTES / sizeof(uint32_t))
static uint32_t sent[WORDS], received[WORDS];

static uint32_t *next_sent(void)
{
    static uint32_t seed;
    seed++;
    for (size_t i = 0; i < WORDS; i++)
        sent[i] = (uint32_t)i * 2654435761u + seed;
    memset(received, 0, sizeof(received));
    return sent;
}

#define CAME_BACK(bytes) CHECK(memcmp(sent, received, bytes) == 0)
#define IN(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

/* ---- Copies ---- */

/* There, across the card and back: in one form of the functions, `suffix` of their names. */
#define COPY_FLAT(suffix, bytes, stream)                                                           \
    do {                                                                                           \
        DO(cuMemcpyHtoDAsync_v2##suffix, one, next_sent(), bytes, stream);                         \
        DO(cuMemcpyAsync##suffix, two, one, bytes, stream);                                        \
        DO(cuMemcpyPeerAsync##suffix, one, context, two, context, bytes, stream);                  \
        DO(cuMemcpyDtoHAsync_v2##suffix, received, one, bytes, stream);                            \
        DO(cuStreamSynchronize##suffix, stream);                                                   \
        CAME_BACK(bytes);                                                                          \
    } while (0)

static void copies(void)
{
    CUcontext context;
    CUstream stream;
    CUdeviceptr one, two;
    DO(cuCtxGetCurrent, &context);
    DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    DO(cuMemAlloc_v2, &one, SIZE);
    DO(cuMemAlloc_v2, &two, SIZE);
    COPY_FLAT(, BYTES, NULL);
    COPY_FLAT(_ptsz, BYTES, NULL);
    COPY_FLAT(, LARGE_BYTES, stream);
    COPY_FLAT(_ptsz, LARGE_BYTES, stream);
    DO(cuMemFree_v2, two);
    DO(cuMemFree_v2, one);
    DO(cuStreamDestroy, stream);
}
const struct each_work each_copies = {"copies", copies, .bare = false};

#define COPY_SHAPED(suffix)                                                                        \
    do {                                                                                           \
        struct shapes to = shapes_of(IN(next_sent()), device);                                     \
        struct shapes from = shapes_of(device, IN(received));                                      \
        DO(cuMemcpy2DAsync_v2##suffix, &to.flat, stream);                                          \
        DO(cuMemcpy3DAsync_v2##suffix, &from.deep, stream);                                        \
        DO(cuStreamSynchronize##suffix, stream);                                                   \
        CAME_BACK(BYTES);                                                                          \
        to = shapes_of(IN(next_sent()), device);                                                   \
        DO(cuMemcpy3DPeerAsync##suffix, &to.peer, stream);                                         \
        DO(cuMemcpy2DAsync_v2##suffix, &from.flat, stream);                                        \
        DO(cuStreamSynchronize##suffix, stream);                                                   \
        CAME_BACK(BYTES);                                                                          \
        DO(cuMemcpyHtoAAsync_v2##suffix, array, 0, next_sent(), BYTES, stream);                    \
        DO(cuMemcpyAtoHAsync_v2##suffix, received, array, 0, BYTES, stream);                       \
        DO(cuStreamSynchronize##suffix, stream);                                                   \
        CAME_BACK(BYTES);                                                                          \
    } while (0)

/* One copy of BYTES as it is described to each of the functions. */
struct shapes {
    CUDA_MEMCPY2D flat;
    CUDA_MEMCPY3D deep;
    CUDA_MEMCPY3D_PEER peer;
};

static struct shapes shapes_of(CUdeviceptr from, CUdeviceptr to)
{
    struct shapes shapes;
    shapes.flat = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = from,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = to,
        .WidthInBytes = BYTES / 16,
        .Height = 16};
    shapes.deep = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = from,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = to,
        .WidthInBytes = BYTES / 16,
        .Height = 4,
        .Depth = 4};
    shapes.peer = (CUDA_MEMCPY3D_PEER){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = from,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = to,
        .WidthInBytes = BYTES / 16,
        .Height = 4,
        .Depth = 4};
    return shapes;
}

static void shaped_copies(void)
{
    CUstream stream;
    CUdeviceptr device;
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR line = {
        .Width = BYTES, .Height = 0, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
    DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    DO(cuMemAlloc_v2, &device, SIZE);
    DO(cuArrayCreate_v2, &array, &line);
    COPY_SHAPED();
    COPY_SHAPED(_ptsz);
    DO(cuArrayDestroy, array);
    DO(cuMemFree_v2, device);
    DO(cuStreamDestroy_v2, stream);
}
const struct each_work each_shaped_copies = {"shaped copies", shaped_copies, .bare = false};

#define COPY_LISTED(suffix)                                                                        \
    do {                                                                                           \
        from[0] = IN(next_sent()), to[0] = device;                                                 \
        from[1] = from[0] + BYTES, to[1] = device + BYTES;                                         \
        DO(cuMemcpyBatchAsync##suffix, to, from, sizes, 2, &attributes, &first, 1, &failed,        \
            stream);                                                                               \
        back.src.op.ptr.ptr = device, back.dst.op.ptr.ptr = IN(received);                          \
        DO(cuMemcpy3DBatchAsync_v2##suffix, 1, &back, 0, stream);                                  \
        DO(cuStreamSynchronize##suffix, stream);                                                   \
        CAME_BACK(2 * BYTES);                                                                      \
        from[0] = device, to[0] = IN(received);                                                    \
        from[1] = device + BYTES, to[1] = to[0] + BYTES;                                           \
        back.src.op.ptr.ptr = IN(next_sent()), back.dst.op.ptr.ptr = device;                       \
        DO(cuMemcpy3DBatchAsync##suffix, 1, &back, &failed, 0, stream);                            \
        DO(cuMemcpyBatchAsync_v2##suffix, to, from, sizes, 2, &attributes, &first, 1, stream);     \
        DO(cuStreamSynchronize##suffix, stream);                                                   \
        CAME_BACK(2 * BYTES);                                                                      \
    } while (0)

static void listed_copies(void)
{
    CUstream stream;
    CUdeviceptr device, from[2], to[2];
    size_t sizes[2] = {BYTES, BYTES}, first = 0, failed;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUDA_MEMCPY3D_BATCH_OP back = {.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER},
        .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER},
        .extent = {2 * BYTES, 1, 1},
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    DO(cuMemAlloc_v2, &device, SIZE);
    COPY_LISTED();
    COPY_LISTED(_ptsz);
    DO(cuMemFree_v2, device);
    DO(cuStreamDestroy_v2, stream);
}
const struct each_work each_listed_copies = {"listed copies", listed_copies, .bare = false};

#define PREFETCH(suffix)                                                                           \
    do {                                                                                           \
        DO(cuMemPrefetchAsync##suffix, managed, bytes, 0, stream);                                 \
        DO(cuMemPrefetchAsync_v2##suffix, managed, bytes, here, 0, stream);                        \
        DO(cuMemPrefetchBatchAsync##suffix, &managed, &bytes, 1, &here, &first, 1, 0ull, stream);  \
        DO(cuMemDiscardBatchAsync##suffix, &managed, &bytes, 1, 0ull, stream);                     \
        DO(cuMemDiscardAndPrefetchBatchAsync##suffix, &managed, &bytes, 1, &here, &first, 1, 0ull, \
            stream);                                                                               \
        DO(cuStreamSynchronize##suffix, stream);                                                   \
    } while (0)

static void prefetches(void)
{
    CUstream stream;
    CUdeviceptr managed;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    size_t bytes = SIZE, first = 0;
    DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    DO(cuMemAllocManaged, &managed, SIZE, CU_MEM_ATTACH_GLOBAL);
    DO(cuMemAdvise, managed, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0);
    DO(cuMemAdvise_v2, managed, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here);
    PREFETCH();
    PREFETCH(_ptsz);
    DO(cuMemFree_v2, managed);
    DO(cuStreamDestroy_v2, stream);
}
const struct each_work each_prefetches = {"prefetches", prefetches, .bare = false};

/* ---- Waits and host functions ---- */

static void count_up(void *data)
{
    atomic_fetch_add((atomic_int *)data, 1);
}

static void count_callback(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    if (status == CUDA_SUCCESS)
        count_up(data);
}

#define WAIT(suffix, stream)                                                                       \
    do {                                                                                           \
        DO(cuEventRecord##suffix, event, stream);                                                  \
        DO(cuStreamWaitEvent##suffix, stream, event, 0);                                           \
        DO(cuLaunchHostFunc##suffix, stream, count_up, &count);                                    \
        DO(cuStreamAddCallback##suffix, stream, count_callback, &count, 0);                        \
        DO(cuStreamBatchMemOp_v2##suffix, stream, 2, operations, 0);                               \
        DO(cuStreamWaitValue32_v2##suffix, stream, word, 7, CU_STREAM_WAIT_VALUE_EQ);              \
        DO(cuStreamWaitValue64_v2##suffix, stream, word, 7, CU_STREAM_WAIT_VALUE_EQ);              \
        DO(cuStreamSynchronize##suffix, stream);                                                   \
        DO(cuStreamWaitValue32##suffix, stream, word, 7, 0);                                       \
        DO(cuStreamWaitValue64##suffix, stream, word, 7, 0);                                       \
        DO(cuStreamBatchMemOp##suffix, stream, 2, operations, 0);                                  \
        DO(cuStreamWriteValue32##suffix, stream, word, 7, 0);                                      \
        DO(cuStreamWriteValue32_v2##suffix, stream, word, 7, 0);                                   \
        DO(cuStreamWriteValue64##suffix, stream, word, 7, 0);                                      \
        DO(cuStreamWriteValue64_v2##suffix, stream, word, 7, 0);                                   \
    } while (0)

static void waits(void)
{
    static atomic_int count;
    CUstream stream;
    CUevent event;
    CUdeviceptr word;
    CUstreamBatchMemOpParams operations[2] = {
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64, .value64 = 7}},
        {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64,
             .value64 = 5,
             .flags = CU_STREAM_WAIT_VALUE_GEQ}}};
    DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    DO(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    DO(cuMemAlloc_v2, &word, SIZE);
    operations[0].writeValue.address = operations[1].waitValue.address = word;
    WAIT(, stream);
    WAIT(_ptsz, stream);
    WAIT(, NULL);
    WAIT(_ptsz, NULL);
    CHECK_EQ(atomic_load(&count), 8);
    DO(cuMemFree_v2, word);
    DO(cuEventDestroy_v2, event);
    DO(cuStreamDestroy_v2, stream);
}
const struct each_work each_waits = {"waits", waits, .bare = false};

/* ---- What is rare, and what is new ---- */

#define NEWER(suffix)                                                                              \
    do {                                                                                           \
        DO(cuLaunchHostFunc_v2##suffix, stream, count_up, &count, 1);                              \
        DO(cuMemcpyWithAttributesAsync##suffix, device, IN(next_sent()), 2 * BYTES, &attributes,   \
            stream);                                                                               \
        DO(cuMemcpy3DWithAttributesAsync##suffix, &back, 0, stream);                               \
        DO(cuStreamSynchronize##suffix, stream);                                                   \
        CAME_BACK(2 * BYTES);                                                                      \
        DO(cuFabricCpyBatchAsync##suffix, 1, &across, 0, stream);                                  \
        DO(cuMemBatchDecompressAsync##suffix, &packed, 1, 0, NULL, stream);                        \
        DO(cuGraphicsMapResources##suffix, 1, &resource, stream);                                  \
        DO(cuStreamBeginCaptureToCig##suffix, stream, &list);                                      \
        DO(cuStreamEndCaptureToCig##suffix, stream);                                               \
        DO(cuStreamSynchronize##suffix, stream);                                                   \
    } while (0)

static void newer(void)
{
    static atomic_int count;
    CUstream stream;
    CUdeviceptr device;
    CUgraphicsResource resource = (void *)1;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUstreamCigParam list_params = {STREAM_CIG_DATA_TYPE_VULKAN_COMMAND_BUFFER_HANDLE_NV, &count};
    CUstreamCigCaptureParams list = {&list_params};
    DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    DO(cuMemAlloc_v2, &device, SIZE);
    CUDA_MEMCPY3D_BATCH_OP back = {
        .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = device},
        .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = IN(received)},
        .extent = {2 * BYTES, 1, 1},
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUDA_FABRIC_COPY_BATCH_OP across = {
        .src = {.type = CU_FABRIC_COPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = device},
        .dst = {.type = CU_FABRIC_COPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = device + BYTES},
        .size = BYTES};
    CUmemDecompressParams packed = {.srcNumBytes = BYTES,
        .dstNumBytes = BYTES,
        .src = (void *)(uintptr_t)device,
        .dst = (void *)(uintptr_t)(device + BYTES),
        .algo = CU_MEM_DECOMPRESS_ALGORITHM_LZ4};
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    CUgraphNodeParams taking = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    taking.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    taking.alloc.bytesize = SIZE;
    NEWER();
    NEWER(_ptsz);
    DO(cuGraphCreate, &graph, 0);
    DO(cuGraphAddNode_v3, &node, graph, NULL, NULL, 0, &taking);
    DO(cuGraphDestroy, graph);
    CHECK_EQ(atomic_load(&count), 2);
    DO(cuMemFree_v2, device);
    DO(cuStreamDestroy_v2, stream);
}
const struct each_work each_newer = {"newer", newer, .bare = false};

/* ---- Captures ---- */

#define CAPTURED(begin, suffix, stream, ...)                                                       \
    do {                                                                                           \
        DO(begin##suffix, stream, __VA_ARGS__);                                                    \
        DO(cuLaunchHostFunc##suffix, stream, count_up, &count);                                    \
        DO(cuStreamEndCapture##suffix, stream, &graph);                                            \
    } while (0)

#define CAPTURE(suffix, stream)                                                                    \
    do {                                                                                           \
        CAPTURED(cuStreamBeginCapture_v2, suffix, stream, CU_STREAM_CAPTURE_MODE_RELAXED);         \
        DO(cuGraphDestroy, graph);                                                                 \
        DO(cuStreamBeginCapture##suffix, stream);                                                  \
        DO(cuStreamEndCapture##suffix, stream, &graph);                                            \
        DO(cuGraphDestroy, graph);                                                                 \
        DO(cuGraphCreate, &graph, 0);                                                              \
        CAPTURED(cuStreamBeginCaptureToGraph, suffix, stream, graph, NULL, NULL, 0,                \
            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);                                                  \
        DO(cuGraphDestroy, graph);                                                                 \
    } while (0)

static void captures(void)
{
    static atomic_int count;
    CUstream stream;
    CUgraph graph;
    DO(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CAPTURE(, stream);
    CAPTURE(_ptsz, stream);
    CHECK_EQ(atomic_load(&count), 0);
    DO(cuStreamDestroy_v2, stream);
}
const struct each_work each_captures = {"captures", captures, .bare = false};

/* ---- Current contexts ---- */

static void current_is(CUcontext wanted)
{
    CUcontext current = NULL;
    DO(cuCtxGetCurrent, &current);
    CHECK(current == wanted);
}

static void currents(void)
{
    CUcontext first, second, popped = NULL;
    CUdeviceptr pointer;
    DO(cuCtxGetCurrent, &first);
    DO(cuCtxCreate_v2, &second, 0, 0);
    DO(cuCtxPopCurrent, &popped);
    CHECK(popped == second);
    current_is(first);
    DO(cuCtxPushCurrent, second);
    current_is(second);
    DO(cuMemAlloc_v2, &pointer, SIZE);
    DO(cuCtxPopCurrent_v2, &popped);
    CHECK(popped == second);
    DO(cuCtxPushCurrent_v2, second);
    DO(cuMemFree_v2, pointer);
    DO(cuCtxSetCurrent, first);
    DO(cuCtxDestroy_v2, second);
    DO(cuCtxSetCurrent, first);
    current_is(first);
}
const struct each_work each_currents = {"current contexts", currents, .bare = false};
