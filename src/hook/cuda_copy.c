/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that may leave the card: while one runs on a stream the GPU is not busy, so the meter is
 * told of the large ones. */
#include "hook/hook.h"
#include "hook/pace.h"

/* A copy below this takes some 20 us at most: many small ones between kernels do not make the
 * stretch uncertain. */
#define LARGE_COPY_BYTES (1u << 20)

static inline void note_copy(size_t bytes, CUstream stream, enum stream_zero zero)
{
    if (bytes >= LARGE_COPY_BYTES)
        pace_note_other(stream, zero);
}

CUresult hook_cuMemcpyHtoDAsync_v2(
    CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    note_copy(ByteCount, hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, hStream);
}

CUresult hook_cuMemcpyHtoDAsync_v2_ptsz(
    CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    note_copy(ByteCount, hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpyHtoDAsync_v2_ptsz(dstDevice, srcHost, ByteCount, hStream);
}

CUresult hook_cuMemcpyDtoHAsync_v2(
    void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    note_copy(ByteCount, hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, hStream);
}

CUresult hook_cuMemcpyDtoHAsync_v2_ptsz(
    void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    note_copy(ByteCount, hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpyDtoHAsync_v2_ptsz(dstHost, srcDevice, ByteCount, hStream);
}

CUresult hook_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    note_copy(ByteCount, hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpyAsync(dst, src, ByteCount, hStream);
}

CUresult hook_cuMemcpyAsync_ptsz(
    CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    note_copy(ByteCount, hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpyAsync_ptsz(dst, src, ByteCount, hStream);
}

CUresult hook_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
    CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    note_copy(ByteCount, hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
}

CUresult hook_cuMemcpyPeerAsync_ptsz(CUdeviceptr dstDevice, CUcontext dstContext,
    CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    note_copy(ByteCount, hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpyPeerAsync_ptsz(
        dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream);
}

CUresult hook_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpy2DAsync_v2(pCopy, hStream);
}

CUresult hook_cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpy2DAsync_v2_ptsz(pCopy, hStream);
}

CUresult hook_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpy3DAsync_v2(pCopy, hStream);
}

CUresult hook_cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpy3DAsync_v2_ptsz(pCopy, hStream);
}

CUresult hook_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpy3DPeerAsync(pCopy, hStream);
}

CUresult hook_cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpy3DPeerAsync_ptsz(pCopy, hStream);
}

CUresult hook_cuMemcpyHtoAAsync_v2(
    CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    note_copy(ByteCount, hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpyHtoAAsync_v2(dstArray, dstOffset, srcHost, ByteCount, hStream);
}

CUresult hook_cuMemcpyHtoAAsync_v2_ptsz(
    CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount, CUstream hStream)
{
    note_copy(ByteCount, hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpyHtoAAsync_v2_ptsz(dstArray, dstOffset, srcHost, ByteCount, hStream);
}

CUresult hook_cuMemcpyAtoHAsync_v2(
    void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream)
{
    note_copy(ByteCount, hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpyAtoHAsync_v2(dstHost, srcArray, srcOffset, ByteCount, hStream);
}

CUresult hook_cuMemcpyAtoHAsync_v2_ptsz(
    void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream)
{
    note_copy(ByteCount, hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpyAtoHAsync_v2_ptsz(dstHost, srcArray, srcOffset, ByteCount, hStream);
}

CUresult hook_cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
    CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
    CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpyBatchAsync(
        dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
}

CUresult hook_cuMemcpyBatchAsync_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
    size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
    CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpyBatchAsync_ptsz(
        dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
}

CUresult hook_cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
    size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpyBatchAsync_v2(
        dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
}

CUresult hook_cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
    size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpyBatchAsync_v2_ptsz(
        dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
}

CUresult hook_cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
    unsigned long long flags, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpy3DBatchAsync(numOps, opList, failIdx, flags, hStream);
}

CUresult hook_cuMemcpy3DBatchAsync_ptsz(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
    size_t *failIdx, unsigned long long flags, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpy3DBatchAsync_ptsz(numOps, opList, failIdx, flags, hStream);
}

CUresult hook_cuMemcpy3DBatchAsync_v2(
    size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemcpy3DBatchAsync_v2(numOps, opList, flags, hStream);
}

CUresult hook_cuMemcpy3DBatchAsync_v2_ptsz(
    size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemcpy3DBatchAsync_v2_ptsz(numOps, opList, flags, hStream);
}

CUresult hook_cuMemPrefetchAsync(
    CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    note_copy(count, hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemPrefetchAsync(devPtr, count, dstDevice, hStream);
}

CUresult hook_cuMemPrefetchAsync_ptsz(
    CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    note_copy(count, hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemPrefetchAsync_ptsz(devPtr, count, dstDevice, hStream);
}

CUresult hook_cuMemPrefetchAsync_v2(
    CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream)
{
    note_copy(count, hStream, STREAM_ZERO_LEGACY);
    return cuda.cuMemPrefetchAsync_v2(devPtr, count, location, flags, hStream);
}

CUresult hook_cuMemPrefetchAsync_v2_ptsz(
    CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream)
{
    note_copy(count, hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuMemPrefetchAsync_v2_ptsz(devPtr, count, location, flags, hStream);
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
