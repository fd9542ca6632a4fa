/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of copies and prefetches, and of what is like them. A list of which all copies are on the
 * card passes the gate as one launch; of any other the meter is told that it may take long without
 * keeping the GPU busy. */
#include "hook/card.h"
#include "hook/hook.h"

#include <stddef.h>

static struct pace_launch *begin_slow(struct pace_launch *copies, bool on_card, uint64_t bytes,
    size_t count, CUstream stream, enum stream_zero zero)
{
    if (on_card)
        return card_begin_slow(copies, CARD_COPY_LIST, bytes, count, stream, zero);
    pace_note_other(stream, zero);
    return NULL;
}

__attribute__((noinline)) static struct pace_launch *asked(struct pace_launch *copies,
    const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes, size_t count,
    CUstream stream, enum stream_zero zero)
{
    uint64_t bytes = 0;
    bool on_card = true;
    if (!to || !from || !sizes || !card_asks(stream, zero))
        return NULL;
    for (size_t i = 0; i < count && on_card; i++) {
        on_card = card_is_same(card_of(to[i]), card_of(from[i]));
        bytes += sizes[i];
    }
    return begin_slow(copies, on_card, bytes, count, stream, zero);
}

static inline struct pace_launch *begin(struct pace_launch *copies, const CUdeviceptr *to,
    const CUdeviceptr *from, const size_t *sizes, size_t count, CUstream stream,
    enum stream_zero zero)
{
    return pace_passes() ? NULL : asked(copies, to, from, sizes, count, stream, zero);
}

static int card_of_operand(const CUmemcpy3DOperand *operand)
{
    bool is_pointer = operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER;
    return is_pointer ? card_of(operand->op.ptr.ptr) : CARD_ANY;
}

__attribute__((noinline)) static struct pace_launch *asked_shaped(struct pace_launch *copies,
    const CUDA_MEMCPY3D_BATCH_OP *list, size_t count, CUstream stream, enum stream_zero zero)
{
    uint64_t bytes = 0;
    bool on_card = true;
    if (!list || !card_asks(stream, zero))
        return NULL;
    for (size_t i = 0; i < count && on_card; i++) {
        const CUextent3D *extent = &list[i].extent;
        on_card = card_is_same(card_of_operand(&list[i].dst), card_of_operand(&list[i].src));
        bytes += extent->width * extent->height * extent->depth;
    }
    return begin_slow(copies, on_card, bytes, count, stream, zero);
}

static inline struct pace_launch *begin_shaped(struct pace_launch *copies,
    const CUDA_MEMCPY3D_BATCH_OP *list, size_t count, CUstream stream, enum stream_zero zero)
{
    return pace_passes() ? NULL : asked_shaped(copies, list, count, stream, zero);
}

/* An endpoint is elsewhere on the fabric. */
static int card_of_fabric(const CUfabricCpyOperand *operand)
{
    bool is_pointer = operand->type == CU_FABRIC_COPY_OPERAND_TYPE_POINTER;
    return is_pointer ? card_of(operand->op.ptr.ptr) : CARD_NONE;
}

__attribute__((noinline)) static struct pace_launch *asked_fabric(struct pace_launch *copies,
    const CUDA_FABRIC_COPY_BATCH_OP *list, size_t count, CUstream stream, enum stream_zero zero)
{
    uint64_t bytes = 0;
    bool on_card = true;
    if (!list || !card_asks(stream, zero))
        return NULL;
    for (size_t i = 0; i < count && on_card; i++) {
        on_card = card_is_same(card_of_fabric(&list[i].dst), card_of_fabric(&list[i].src));
        bytes += list[i].size;
    }
    return begin_slow(copies, on_card, bytes, count, stream, zero);
}

static inline struct pace_launch *begin_fabric(struct pace_launch *copies,
    const CUDA_FABRIC_COPY_BATCH_OP *list, size_t count, CUstream stream, enum stream_zero zero)
{
    return pace_passes() ? NULL : asked_fabric(copies, list, count, stream, zero);
}

/* What is unpacked is on the card, by its engine or by its processors: by its size it is known. */
__attribute__((noinline)) static struct pace_launch *asked_decompression(struct pace_launch *work,
    const CUmemDecompressParams *list, size_t count, CUstream stream, enum stream_zero zero)
{
    uint64_t bytes = 0;
    for (size_t i = 0; list && i < count; i++)
        bytes += list[i].dstNumBytes;
    return card_begin_slow(work, CARD_DECOMPRESSION, bytes, count, stream, zero);
}

static inline struct pace_launch *begin_decompression(struct pace_launch *work,
    const CUmemDecompressParams *list, size_t count, CUstream stream, enum stream_zero zero)
{
    return pace_passes() ? NULL : asked_decompression(work, list, count, stream, zero);
}

CUresult hook_cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
    CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
    CUstream hStream)
{
    struct pace_launch copies,
        *begun = begin(&copies, dsts, srcs, sizes, count, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun, cuda.cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs,
                               numAttrs, failIdx, hStream));
}

CUresult hook_cuMemcpyBatchAsync_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
    size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
    CUstream hStream)
{
    struct pace_launch copies,
        *begun = begin(&copies, dsts, srcs, sizes, count, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(begun, cuda.cuMemcpyBatchAsync_ptsz(dsts, srcs, sizes, count, attrs, attrsIdxs,
                               numAttrs, failIdx, hStream));
}

CUresult hook_cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
    size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
    struct pace_launch copies,
        *begun = begin(&copies, dsts, srcs, sizes, count, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun,
        cuda.cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream));
}

CUresult hook_cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
    size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
    struct pace_launch copies,
        *begun = begin(&copies, dsts, srcs, sizes, count, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(begun, cuda.cuMemcpyBatchAsync_v2_ptsz(
                               dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream));
}

CUresult hook_cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
    unsigned long long flags, CUstream hStream)
{
    struct pace_launch copies,
        *begun = begin_shaped(&copies, opList, numOps, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun, cuda.cuMemcpy3DBatchAsync(numOps, opList, failIdx, flags, hStream));
}

CUresult hook_cuMemcpy3DBatchAsync_ptsz(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
    size_t *failIdx, unsigned long long flags, CUstream hStream)
{
    struct pace_launch copies,
        *begun = begin_shaped(&copies, opList, numOps, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(begun, cuda.cuMemcpy3DBatchAsync_ptsz(numOps, opList, failIdx, flags, hStream));
}

CUresult hook_cuMemcpy3DBatchAsync_v2(
    size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream hStream)
{
    struct pace_launch copies,
        *begun = begin_shaped(&copies, opList, numOps, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun, cuda.cuMemcpy3DBatchAsync_v2(numOps, opList, flags, hStream));
}

CUresult hook_cuMemcpy3DBatchAsync_v2_ptsz(
    size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream hStream)
{
    struct pace_launch copies,
        *begun = begin_shaped(&copies, opList, numOps, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(begun, cuda.cuMemcpy3DBatchAsync_v2_ptsz(numOps, opList, flags, hStream));
}

CUresult hook_cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
    CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs, size_t numPrefetchLocs,
    unsigned long long flags, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemPrefetchBatchAsync(
        dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}

CUresult hook_cuMemPrefetchBatchAsync_ptsz(CUdeviceptr *dptrs, size_t *sizes, size_t count,
    CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs, size_t numPrefetchLocs,
    unsigned long long flags, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemPrefetchBatchAsync_ptsz(
        dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}

CUresult hook_cuMemcpy3DWithAttributesAsync(
    CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream hStream)
{
    struct pace_launch copy, *begun = begin_shaped(&copy, op, 1, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun, cuda.cuMemcpy3DWithAttributesAsync(op, flags, hStream));
}

CUresult hook_cuFabricCpyBatchAsync(
    size_t numOps, CUDA_FABRIC_COPY_BATCH_OP *opList, unsigned long long flags, CUstream hStream)
{
    struct pace_launch copies,
        *begun = begin_fabric(&copies, opList, numOps, hStream, STREAM_ZERO_LEGACY);
    return card_end(begun, cuda.cuFabricCpyBatchAsync(numOps, opList, flags, hStream));
}

CUresult hook_cuMemBatchDecompressAsync(CUmemDecompressParams *paramsArray, size_t count,
    unsigned int flags, size_t *errorIndex, CUstream stream)
{
    struct pace_launch work,
        *begun = begin_decompression(&work, paramsArray, count, stream, STREAM_ZERO_LEGACY);
    return card_end(
        begun, cuda.cuMemBatchDecompressAsync(paramsArray, count, flags, errorIndex, stream));
}

CUresult hook_cuMemDiscardBatchAsync(
    CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemDiscardBatchAsync(dptrs, sizes, count, flags, hStream);
}

CUresult hook_cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
    CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs, size_t numPrefetchLocs,
    unsigned long long flags, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemDiscardAndPrefetchBatchAsync(
        dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}

CUresult hook_cuMemcpy3DWithAttributesAsync_ptsz(
    CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags, CUstream hStream)
{
    struct pace_launch copy, *begun = begin_shaped(&copy, op, 1, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(begun, cuda.cuMemcpy3DWithAttributesAsync_ptsz(op, flags, hStream));
}

CUresult hook_cuFabricCpyBatchAsync_ptsz(
    size_t numOps, CUDA_FABRIC_COPY_BATCH_OP *opList, unsigned long long flags, CUstream hStream)
{
    struct pace_launch copies,
        *begun = begin_fabric(&copies, opList, numOps, hStream, STREAM_ZERO_PER_THREAD);
    return card_end(begun, cuda.cuFabricCpyBatchAsync_ptsz(numOps, opList, flags, hStream));
}

CUresult hook_cuMemBatchDecompressAsync_ptsz(CUmemDecompressParams *paramsArray, size_t count,
    unsigned int flags, size_t *errorIndex, CUstream stream)
{
    struct pace_launch work,
        *begun = begin_decompression(&work, paramsArray, count, stream, STREAM_ZERO_PER_THREAD);
    return card_end(
        begun, cuda.cuMemBatchDecompressAsync_ptsz(paramsArray, count, flags, errorIndex, stream));
}

CUresult hook_cuMemDiscardBatchAsync_ptsz(
    CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemDiscardBatchAsync_ptsz(dptrs, sizes, count, flags, hStream);
}

CUresult hook_cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr *dptrs, size_t *sizes,
    size_t count, CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs, size_t numPrefetchLocs,
    unsigned long long flags, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemDiscardAndPrefetchBatchAsync_ptsz(
        dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}
