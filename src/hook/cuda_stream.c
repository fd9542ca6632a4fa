/* SPDX-License-Identifier: Apache-2.0 */
/* What goes onto a stream beside kernels and may take long without keeping the GPU busy: waits,
 * host functions, copies that leave the card. The meter is told, so that a stretch with such a
 * thing in it is not charged from end to end. And streams and current contexts, which the meter
 * follows. */
#include "hook/hook.h"
#include "hook/pace.h"

#define LEGACY STREAM_ZERO_LEGACY
#define PER_THREAD STREAM_ZERO_PER_THREAD

/* A copy below this takes some 20 us at most: many small ones between kernels do not make the
 * stretch uncertain. */
#define LARGE_COPY_BYTES (1u << 20)

/* One hook: the stream is noted where `large`, then the call goes on. */
#define NOTED(name, zero, stream, large, parameters, arguments)                                    \
    CUresult hook_##name parameters                                                                \
    {                                                                                              \
        if (large)                                                                                 \
            pace_note_other(stream, zero);                                                         \
        return cuda.name arguments;                                                                \
    }

/* ---- waits and host functions ---- */

NOTED(cuLaunchHostFunc, LEGACY, hStream, true, (CUstream hStream, CUhostFn fn, void *userData),
    (hStream, fn, userData))
NOTED(cuLaunchHostFunc_ptsz, PER_THREAD, hStream, true,
    (CUstream hStream, CUhostFn fn, void *userData), (hStream, fn, userData))
NOTED(cuStreamAddCallback, LEGACY, hStream, true,
    (CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags),
    (hStream, callback, userData, flags))
NOTED(cuStreamAddCallback_ptsz, PER_THREAD, hStream, true,
    (CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags),
    (hStream, callback, userData, flags))
NOTED(cuStreamBatchMemOp, LEGACY, stream, true,
    (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags),
    (stream, count, paramArray, flags))
NOTED(cuStreamBatchMemOp_ptsz, PER_THREAD, stream, true,
    (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags),
    (stream, count, paramArray, flags))
NOTED(cuStreamBatchMemOp_v2, LEGACY, stream, true,
    (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags),
    (stream, count, paramArray, flags))
NOTED(cuStreamBatchMemOp_v2_ptsz, PER_THREAD, stream, true,
    (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags),
    (stream, count, paramArray, flags))
NOTED(cuStreamWaitEvent, LEGACY, hStream, true,
    (CUstream hStream, CUevent hEvent, unsigned int Flags), (hStream, hEvent, Flags))
NOTED(cuStreamWaitEvent_ptsz, PER_THREAD, hStream, true,
    (CUstream hStream, CUevent hEvent, unsigned int Flags), (hStream, hEvent, Flags))
NOTED(cuStreamWaitValue32, LEGACY, stream, true,
    (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags),
    (stream, addr, value, flags))
NOTED(cuStreamWaitValue32_ptsz, PER_THREAD, stream, true,
    (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags),
    (stream, addr, value, flags))
NOTED(cuStreamWaitValue32_v2, LEGACY, stream, true,
    (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags),
    (stream, addr, value, flags))
NOTED(cuStreamWaitValue32_v2_ptsz, PER_THREAD, stream, true,
    (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags),
    (stream, addr, value, flags))
NOTED(cuStreamWaitValue64, LEGACY, stream, true,
    (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags),
    (stream, addr, value, flags))
NOTED(cuStreamWaitValue64_ptsz, PER_THREAD, stream, true,
    (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags),
    (stream, addr, value, flags))
NOTED(cuStreamWaitValue64_v2, LEGACY, stream, true,
    (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags),
    (stream, addr, value, flags))
NOTED(cuStreamWaitValue64_v2_ptsz, PER_THREAD, stream, true,
    (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags),
    (stream, addr, value, flags))
NOTED(cuWaitExternalSemaphoresAsync, LEGACY, stream, true,
    (const CUexternalSemaphore *extSemArray, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *paramsArray,
        unsigned int numExtSems, CUstream stream),
    (extSemArray, paramsArray, numExtSems, stream))
NOTED(cuWaitExternalSemaphoresAsync_ptsz, PER_THREAD, stream, true,
    (const CUexternalSemaphore *extSemArray, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *paramsArray,
        unsigned int numExtSems, CUstream stream),
    (extSemArray, paramsArray, numExtSems, stream))

/* ---- copies ---- */

NOTED(cuMemcpyHtoDAsync_v2, LEGACY, hStream, ByteCount >= LARGE_COPY_BYTES,
    (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream),
    (dstDevice, srcHost, ByteCount, hStream))
NOTED(cuMemcpyHtoDAsync_v2_ptsz, PER_THREAD, hStream, ByteCount >= LARGE_COPY_BYTES,
    (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream),
    (dstDevice, srcHost, ByteCount, hStream))
NOTED(cuMemcpyDtoHAsync_v2, LEGACY, hStream, ByteCount >= LARGE_COPY_BYTES,
    (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
    (dstHost, srcDevice, ByteCount, hStream))
NOTED(cuMemcpyDtoHAsync_v2_ptsz, PER_THREAD, hStream, ByteCount >= LARGE_COPY_BYTES,
    (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
    (dstHost, srcDevice, ByteCount, hStream))
NOTED(cuMemcpyAsync, LEGACY, hStream, ByteCount >= LARGE_COPY_BYTES,
    (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),
    (dst, src, ByteCount, hStream))
NOTED(cuMemcpyAsync_ptsz, PER_THREAD, hStream, ByteCount >= LARGE_COPY_BYTES,
    (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),
    (dst, src, ByteCount, hStream))
NOTED(cuMemcpyPeerAsync, LEGACY, hStream, ByteCount >= LARGE_COPY_BYTES,
    (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
        size_t ByteCount, CUstream hStream),
    (dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream))
NOTED(cuMemcpyPeerAsync_ptsz, PER_THREAD, hStream, ByteCount >= LARGE_COPY_BYTES,
    (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
        size_t ByteCount, CUstream hStream),
    (dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream))
NOTED(cuMemcpy2DAsync_v2, LEGACY, hStream, true, (const CUDA_MEMCPY2D *pCopy, CUstream hStream),
    (pCopy, hStream))
NOTED(cuMemcpy2DAsync_v2_ptsz, PER_THREAD, hStream, true,
    (const CUDA_MEMCPY2D *pCopy, CUstream hStream), (pCopy, hStream))
NOTED(cuMemcpy3DAsync_v2, LEGACY, hStream, true, (const CUDA_MEMCPY3D *pCopy, CUstream hStream),
    (pCopy, hStream))
NOTED(cuMemcpy3DAsync_v2_ptsz, PER_THREAD, hStream, true,
    (const CUDA_MEMCPY3D *pCopy, CUstream hStream), (pCopy, hStream))
NOTED(cuMemcpy3DPeerAsync, LEGACY, hStream, true,
    (const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream), (pCopy, hStream))
NOTED(cuMemcpy3DPeerAsync_ptsz, PER_THREAD, hStream, true,
    (const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream), (pCopy, hStream))
NOTED(cuMemcpyHtoAAsync_v2, LEGACY, hStream, ByteCount >= LARGE_COPY_BYTES,
    (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount, CUstream hStream),
    (dstArray, dstOffset, srcHost, ByteCount, hStream))
NOTED(cuMemcpyHtoAAsync_v2_ptsz, PER_THREAD, hStream, ByteCount >= LARGE_COPY_BYTES,
    (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount, CUstream hStream),
    (dstArray, dstOffset, srcHost, ByteCount, hStream))
NOTED(cuMemcpyAtoHAsync_v2, LEGACY, hStream, ByteCount >= LARGE_COPY_BYTES,
    (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream),
    (dstHost, srcArray, srcOffset, ByteCount, hStream))
NOTED(cuMemcpyAtoHAsync_v2_ptsz, PER_THREAD, hStream, ByteCount >= LARGE_COPY_BYTES,
    (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream),
    (dstHost, srcArray, srcOffset, ByteCount, hStream))
NOTED(cuMemcpyBatchAsync, LEGACY, hStream, true,
    (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
        size_t *attrsIdxs, size_t numAttrs, size_t *failIdx, CUstream hStream),
    (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream))
NOTED(cuMemcpyBatchAsync_ptsz, PER_THREAD, hStream, true,
    (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
        size_t *attrsIdxs, size_t numAttrs, size_t *failIdx, CUstream hStream),
    (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream))
NOTED(cuMemcpyBatchAsync_v2, LEGACY, hStream, true,
    (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
        size_t *attrsIdxs, size_t numAttrs, CUstream hStream),
    (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream))
NOTED(cuMemcpyBatchAsync_v2_ptsz, PER_THREAD, hStream, true,
    (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,
        size_t *attrsIdxs, size_t numAttrs, CUstream hStream),
    (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream))
NOTED(cuMemcpy3DBatchAsync, LEGACY, hStream, true,
    (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx, unsigned long long flags,
        CUstream hStream),
    (numOps, opList, failIdx, flags, hStream))
NOTED(cuMemcpy3DBatchAsync_ptsz, PER_THREAD, hStream, true,
    (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx, unsigned long long flags,
        CUstream hStream),
    (numOps, opList, failIdx, flags, hStream))
NOTED(cuMemcpy3DBatchAsync_v2, LEGACY, hStream, true,
    (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream hStream),
    (numOps, opList, flags, hStream))
NOTED(cuMemcpy3DBatchAsync_v2_ptsz, PER_THREAD, hStream, true,
    (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags, CUstream hStream),
    (numOps, opList, flags, hStream))
NOTED(cuMemPrefetchAsync, LEGACY, hStream, count >= LARGE_COPY_BYTES,
    (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream),
    (devPtr, count, dstDevice, hStream))
NOTED(cuMemPrefetchAsync_ptsz, PER_THREAD, hStream, count >= LARGE_COPY_BYTES,
    (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream),
    (devPtr, count, dstDevice, hStream))
NOTED(cuMemPrefetchAsync_v2, LEGACY, hStream, count >= LARGE_COPY_BYTES,
    (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
        CUstream hStream),
    (devPtr, count, location, flags, hStream))
NOTED(cuMemPrefetchAsync_v2_ptsz, PER_THREAD, hStream, count >= LARGE_COPY_BYTES,
    (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
        CUstream hStream),
    (devPtr, count, location, flags, hStream))
NOTED(cuMemPrefetchBatchAsync, LEGACY, hStream, true,
    (CUdeviceptr * dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
        size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
        CUstream hStream),
    (dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream))
NOTED(cuMemPrefetchBatchAsync_ptsz, PER_THREAD, hStream, true,
    (CUdeviceptr * dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
        size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
        CUstream hStream),
    (dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream))

/* ---- streams and current contexts ---- */

CUresult hook_cuStreamDestroy(CUstream hStream)
{
    pace_stream_leaves(hStream);
    return cuda.cuStreamDestroy(hStream);
}

CUresult hook_cuStreamDestroy_v2(CUstream hStream)
{
    pace_stream_leaves(hStream);
    return cuda.cuStreamDestroy_v2(hStream);
}

CUresult hook_cuCtxSetCurrent(CUcontext ctx)
{
    pace_context_changed();
    return cuda.cuCtxSetCurrent(ctx);
}

CUresult hook_cuCtxPushCurrent(CUcontext ctx)
{
    pace_context_changed();
    return cuda.cuCtxPushCurrent(ctx);
}

CUresult hook_cuCtxPushCurrent_v2(CUcontext ctx)
{
    pace_context_changed();
    return cuda.cuCtxPushCurrent_v2(ctx);
}

CUresult hook_cuCtxPopCurrent(CUcontext *pctx)
{
    pace_context_changed();
    return cuda.cuCtxPopCurrent(pctx);
}

CUresult hook_cuCtxPopCurrent_v2(CUcontext *pctx)
{
    pace_context_changed();
    return cuda.cuCtxPopCurrent_v2(pctx);
}
