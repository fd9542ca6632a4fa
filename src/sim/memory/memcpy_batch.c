/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of odd forms, each put as plain ones: between peers, of one-dimensional arrays, and lists
 * of copies and prefetches. */
#include <time.h>

#include "sim/work/stream.h"

#include <string.h>

_Static_assert(sizeof(CUDA_MEMCPY3D_PEER) == sizeof(CUDA_MEMCPY3D), "the same but for contexts");

static CUDA_MEMCPY3D copy_between(const CUDA_MEMCPY3D_PEER *peer)
{
    CUDA_MEMCPY3D copy;

    memcpy(&copy, peer, sizeof copy);
    copy.reserved0 = NULL;
    copy.reserved1 = NULL;
    return copy;
}

CUresult sim_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *peer, CUstream stream)
{
    CUDA_MEMCPY3D copy;

    if (!peer)
        return CUDA_ERROR_INVALID_VALUE;
    copy = copy_between(peer);
    return sim_cuMemcpy3DAsync_v2(&copy, stream);
}

CUresult sim_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *peer)
{
    CUDA_MEMCPY3D copy;

    if (!peer)
        return CUDA_ERROR_INVALID_VALUE;
    copy = copy_between(peer);
    return sim_cuMemcpy3D_v2(&copy);
}

/* ---- linear copies of arrays ---- */

static CUDA_MEMCPY3D copy_line(size_t from_offset, size_t to_offset, size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcXInBytes = from_offset,
        .dstXInBytes = to_offset,
        .WidthInBytes = bytes,
        .Height = 1,
        .Depth = 1};
}

CUresult sim_cuMemcpyAtoA_v2(
    CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes)
{
    CUDA_MEMCPY3D copy = copy_line(from_offset, to_offset, bytes);

    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = from;
    copy.dstArray = to;
    return sim_cuMemcpy3D_v2(&copy);
}

CUresult sim_cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes)
{
    CUDA_MEMCPY3D copy = copy_line(offset, 0, bytes);

    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = from;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = to;
    return sim_cuMemcpy3D_v2(&copy);
}

CUresult sim_cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes)
{
    CUDA_MEMCPY3D copy = copy_line(0, offset, bytes);

    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = to;
    return sim_cuMemcpy3D_v2(&copy);
}

CUresult sim_cuMemcpyAtoHAsync_v2(
    void *to, CUarray from, size_t offset, size_t bytes, CUstream stream)
{
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
        .srcArray = from,
        .srcXInBytes = offset,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = to,
        .WidthInBytes = bytes,
        .Height = 1,
        .Depth = 1};

    return sim_cuMemcpy3DAsync_v2(&copy, stream);
}

CUresult sim_cuMemcpyHtoAAsync_v2(
    CUarray to, size_t offset, const void *from, size_t bytes, CUstream stream)
{
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = from,
        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
        .dstArray = to,
        .dstXInBytes = offset,
        .WidthInBytes = bytes,
        .Height = 1,
        .Depth = 1};

    return sim_cuMemcpy3DAsync_v2(&copy, stream);
}

/* Lists are for streams of one's own, and have no form in a graph. */
static CUresult batch_begin(CUstream handle)
{
    CUDA_LOCKED;
    struct stream *stream;
    CUresult r = stream_get(handle, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (stream == stream_default(stream))
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream->capture)
        return CUDA_SUCCESS;
    capture_invalidate(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult sim_cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
    CUmemcpyAttributes *attributes, size_t *attributes_from, size_t attributes_count,
    CUstream stream)
{
    CUresult r = batch_begin(stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!count || !to || !from || !bytes || !attributes || !attributes_count ||
        attributes_count > count || attributes_from[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
        r = sim_cuMemcpyAsync(to[i], from[i], bytes[i], stream);
    return r;
}

/* *fail_index is never told of one copy: as allowed, SIZE_MAX says that it is none in particular.
 */
CUresult sim_cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
    CUmemcpyAttributes *attributes, size_t *attributes_from, size_t attributes_count,
    size_t *fail_index, CUstream stream)
{
    CUresult r = sim_cuMemcpyBatchAsync_v2(
        to, from, bytes, count, attributes, attributes_from, attributes_count, stream);

    if (r != CUDA_SUCCESS && fail_index)
        *fail_index = SIZE_MAX;
    return r;
}

static CUresult batch_op_run(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream)
{
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = op->src.op.ptr.ptr,
        .srcPitch = op->src.op.ptr.rowLength,
        .srcHeight = op->src.op.ptr.layerHeight,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = op->dst.op.ptr.ptr,
        .dstPitch = op->dst.op.ptr.rowLength,
        .dstHeight = op->dst.op.ptr.layerHeight,
        .WidthInBytes = op->extent.width,
        .Height = op->extent.height,
        .Depth = op->extent.depth};

    if (op->src.type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
        op->dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
        return CUDA_ERROR_NOT_SUPPORTED; /* arrays are not simulated here */
    return sim_cuMemcpy3DAsync_v2(&copy, stream);
}

CUresult sim_cuMemcpy3DBatchAsync_v2(
    size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream stream)
{
    CUresult r = batch_begin(stream);

    if (r == CUDA_SUCCESS && (!count || !ops || flags))
        r = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
        r = batch_op_run(&ops[i], stream);
    return r;
}

CUresult sim_cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *fail_index,
    unsigned long long flags, CUstream stream)
{
    CUresult r = sim_cuMemcpy3DBatchAsync_v2(count, ops, flags, stream);

    if (r != CUDA_SUCCESS && fail_index)
        *fail_index = SIZE_MAX;
    return r;
}

CUresult sim_cuMemPrefetchBatchAsync(CUdeviceptr *addresses, size_t *bytes, size_t count,
    CUmemLocation *locations, size_t *locations_from, size_t locations_count,
    unsigned long long flags, CUstream stream)
{
    CUresult r = batch_begin(stream);

    if (r == CUDA_SUCCESS && (!count || !addresses || !bytes || !locations || !locations_count ||
                                 locations_count > count || locations_from[0] != 0 || flags))
        r = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
        r = sim_cuMemPrefetchAsync(addresses[i], bytes[i], 0, stream);
    return r;
}

static CUresult attributes_check(const CUmemcpyAttributes *attributes)
{
    return attributes && attributes->srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_INVALID
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemcpyWithAttributesAsync(
    CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes *attributes, CUstream stream)
{
    CUresult r = attributes_check(attributes);

    return r == CUDA_SUCCESS ? sim_cuMemcpyAsync(to, from, bytes, stream) : r;
}

CUresult sim_cuMemcpy3DWithAttributesAsync(
    CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream stream)
{
    return op && !flags ? batch_op_run(op, stream) : CUDA_ERROR_INVALID_VALUE;
}

/* There is no fabric: between pointers alone. */
CUresult sim_cuFabricCpyBatchAsync(
    size_t count, CUDA_FABRIC_COPY_BATCH_OP *ops, unsigned long long flags, CUstream stream)
{
    CUresult r = batch_begin(stream);

    if (r == CUDA_SUCCESS && (!count || !ops || flags))
        r = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++) {
        if (ops[i].src.type != CU_FABRIC_COPY_OPERAND_TYPE_POINTER ||
            ops[i].dst.type != CU_FABRIC_COPY_OPERAND_TYPE_POINTER)
            r = CUDA_ERROR_NOT_SUPPORTED;
        else if (ops[i].size)
            r = sim_cuMemcpyAsync(
                ops[i].dst.op.ptr.ptr, ops[i].src.op.ptr.ptr, ops[i].size, stream);
    }
    return r;
}

/* Nothing is unpacked: what it would write is filled, which takes the machine its time. */
CUresult sim_cuMemBatchDecompressAsync(
    CUmemDecompressParams *list, size_t count, unsigned flags, size_t *error_index, CUstream stream)
{
    CUresult r = list && count && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    size_t i = 0;

    for (; i < count && r == CUDA_SUCCESS; i++)
        r = list[i].dst && list[i].src && list[i].algo != CU_MEM_DECOMPRESS_UNSUPPORTED
                ? sim_cuMemsetD8Async((uintptr_t)list[i].dst, 0, list[i].dstNumBytes, stream)
                : CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS && error_index)
        *error_index = i ? i - 1 : SIZE_MAX;
    return r;
}

/* It is the processor that discards, page by page; how long that takes is assumed. */
#define DISCARD_PAGE_BYTES (64u << 10)
#define DISCARD_PAGE_NS 1000u

static void discard_pages(void *pages)
{
    uint64_t ns = (uintptr_t)pages * (uint64_t)DISCARD_PAGE_NS;
    struct timespec left = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    while (nanosleep(&left, &left) != 0)
        continue;
}

/* Contents stay: nothing is said of what is read then. */
static CUresult discard(const CUdeviceptr *addresses, const size_t *bytes, size_t count,
    unsigned long long flags, CUstream handle)
{
    CUDA_LOCKED;
    struct work work = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {discard_pages, NULL}};
    struct stream *stream;
    uint64_t pages = 0;
    CUresult r = stream_get(handle, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!count || !addresses || !bytes || flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        const struct allocation *allocation = allocation_find(addresses[i]);

        if (!allocation || allocation->kind != ALLOCATION_MANAGED ||
            bytes[i] > allocation->bytes - (addresses[i] - allocation->address))
            return CUDA_ERROR_INVALID_VALUE;
        pages += bytes[i] / DISCARD_PAGE_BYTES;
    }
    work.host.userData = (void *)(uintptr_t)pages;
    return stream_run(stream, &work);
}

CUresult sim_cuMemDiscardBatchAsync(
    CUdeviceptr *addresses, size_t *bytes, size_t count, unsigned long long flags, CUstream stream)
{
    CUresult r = batch_begin(stream);

    return r == CUDA_SUCCESS ? discard(addresses, bytes, count, flags, stream) : r;
}

CUresult sim_cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *addresses, size_t *bytes, size_t count,
    CUmemLocation *locations, size_t *locations_from, size_t locations_count,
    unsigned long long flags, CUstream stream)
{
    CUresult r = sim_cuMemDiscardBatchAsync(addresses, bytes, count, flags, stream);

    return r == CUDA_SUCCESS ? sim_cuMemPrefetchBatchAsync(addresses, bytes, count, locations,
                                   locations_from, locations_count, flags, stream)
                             : r;
}
