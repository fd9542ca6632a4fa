/* SPDX-License-Identifier: Apache-2.0 */
/* What goes onto a stream and may take long without keeping the GPU busy: waits and host functions.
 * The meter is told, so that an interval with one in it is not charged from end to end. And streams
 * and current contexts, which the meter follows. */
#include "hook/green.h"
#include "hook/hook.h"
#include "pace/pace.h"

/* ---- waits and host functions ---- */

CUresult hook_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    pace_note_other(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuLaunchHostFunc(hStream, fn, userData);
}

CUresult hook_cuLaunchHostFunc_ptsz(CUstream hStream, CUhostFn fn, void *userData)
{
    pace_note_other(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuLaunchHostFunc_ptsz(hStream, fn, userData);
}

CUresult hook_cuLaunchHostFunc_v2(
    CUstream hStream, CUhostFn fn, void *userData, unsigned int syncMode)
{
    pace_note_other(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuLaunchHostFunc_v2(hStream, fn, userData, syncMode);
}

CUresult hook_cuLaunchHostFunc_v2_ptsz(
    CUstream hStream, CUhostFn fn, void *userData, unsigned int syncMode)
{
    pace_note_other(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuLaunchHostFunc_v2_ptsz(hStream, fn, userData, syncMode);
}

CUresult hook_cuStreamAddCallback(
    CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
    pace_note_other(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuStreamAddCallback(hStream, callback, userData, flags);
}

CUresult hook_cuStreamAddCallback_ptsz(
    CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
    pace_note_other(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuStreamAddCallback_ptsz(hStream, callback, userData, flags);
}

CUresult hook_cuStreamBatchMemOp(
    CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
    pace_note_other(stream, STREAM_ZERO_LEGACY);
    return cuda.cuStreamBatchMemOp(stream, count, paramArray, flags);
}

CUresult hook_cuStreamBatchMemOp_ptsz(
    CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
    pace_note_other(stream, STREAM_ZERO_PER_THREAD);
    return cuda.cuStreamBatchMemOp_ptsz(stream, count, paramArray, flags);
}

CUresult hook_cuStreamBatchMemOp_v2(
    CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
    pace_note_other(stream, STREAM_ZERO_LEGACY);
    return cuda.cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
}

CUresult hook_cuStreamBatchMemOp_v2_ptsz(
    CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
    pace_note_other(stream, STREAM_ZERO_PER_THREAD);
    return cuda.cuStreamBatchMemOp_v2_ptsz(stream, count, paramArray, flags);
}

CUresult hook_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    pace_note_other(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuStreamWaitEvent(hStream, hEvent, Flags);
}

CUresult hook_cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    pace_note_other(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuStreamWaitEvent_ptsz(hStream, hEvent, Flags);
}

CUresult hook_cuStreamWaitValue32(
    CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    pace_note_other(stream, STREAM_ZERO_LEGACY);
    return cuda.cuStreamWaitValue32(stream, addr, value, flags);
}

CUresult hook_cuStreamWaitValue32_ptsz(
    CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    pace_note_other(stream, STREAM_ZERO_PER_THREAD);
    return cuda.cuStreamWaitValue32_ptsz(stream, addr, value, flags);
}

CUresult hook_cuStreamWaitValue32_v2(
    CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    pace_note_other(stream, STREAM_ZERO_LEGACY);
    return cuda.cuStreamWaitValue32_v2(stream, addr, value, flags);
}

CUresult hook_cuStreamWaitValue32_v2_ptsz(
    CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
    pace_note_other(stream, STREAM_ZERO_PER_THREAD);
    return cuda.cuStreamWaitValue32_v2_ptsz(stream, addr, value, flags);
}

CUresult hook_cuStreamWaitValue64(
    CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    pace_note_other(stream, STREAM_ZERO_LEGACY);
    return cuda.cuStreamWaitValue64(stream, addr, value, flags);
}

CUresult hook_cuStreamWaitValue64_ptsz(
    CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    pace_note_other(stream, STREAM_ZERO_PER_THREAD);
    return cuda.cuStreamWaitValue64_ptsz(stream, addr, value, flags);
}

CUresult hook_cuStreamWaitValue64_v2(
    CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    pace_note_other(stream, STREAM_ZERO_LEGACY);
    return cuda.cuStreamWaitValue64_v2(stream, addr, value, flags);
}

CUresult hook_cuStreamWaitValue64_v2_ptsz(
    CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
    pace_note_other(stream, STREAM_ZERO_PER_THREAD);
    return cuda.cuStreamWaitValue64_v2_ptsz(stream, addr, value, flags);
}

CUresult hook_cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *extSemArray,
    const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *paramsArray, unsigned int numExtSems,
    CUstream stream)
{
    pace_note_other(stream, STREAM_ZERO_LEGACY);
    return cuda.cuWaitExternalSemaphoresAsync(extSemArray, paramsArray, numExtSems, stream);
}

CUresult hook_cuWaitExternalSemaphoresAsync_ptsz(const CUexternalSemaphore *extSemArray,
    const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *paramsArray, unsigned int numExtSems,
    CUstream stream)
{
    pace_note_other(stream, STREAM_ZERO_PER_THREAD);
    return cuda.cuWaitExternalSemaphoresAsync_ptsz(extSemArray, paramsArray, numExtSems, stream);
}

/* The stream waits for what the graphics API does with them. */
CUresult hook_cuGraphicsMapResources(
    unsigned int count, CUgraphicsResource *resources, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuGraphicsMapResources(count, resources, hStream);
}

CUresult hook_cuGraphicsMapResources_ptsz(
    unsigned int count, CUgraphicsResource *resources, CUstream hStream)
{
    pace_note_other(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuGraphicsMapResources_ptsz(count, resources, hStream);
}

/* All streams of the context wait. */
CUresult hook_cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
    pace_note_context_waits(hCtx, green_home(hCtx));
    return cuda.cuCtxWaitEvent(hCtx, hEvent);
}

/* ---- captures ---- */

CUresult hook_cuStreamBeginCapture(CUstream hStream)
{
    pace_capture_begins(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuStreamBeginCapture(hStream);
}

CUresult hook_cuStreamBeginCapture_ptsz(CUstream hStream)
{
    pace_capture_begins(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuStreamBeginCapture_ptsz(hStream);
}

CUresult hook_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    pace_capture_begins(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuStreamBeginCapture_v2(hStream, mode);
}

CUresult hook_cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
    pace_capture_begins(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuStreamBeginCapture_v2_ptsz(hStream, mode);
}

CUresult hook_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
    const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData, size_t numDependencies,
    CUstreamCaptureMode mode)
{
    pace_capture_begins(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuStreamBeginCaptureToGraph(
        hStream, hGraph, dependencies, dependencyData, numDependencies, mode);
}

CUresult hook_cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
    const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData, size_t numDependencies,
    CUstreamCaptureMode mode)
{
    pace_capture_begins(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuStreamBeginCaptureToGraph_ptsz(
        hStream, hGraph, dependencies, dependencyData, numDependencies, mode);
}

CUresult hook_cuStreamBeginRecaptureToGraph(CUstream hStream, CUstreamCaptureMode mode,
    CUgraph hGraph, CUgraphRecaptureCallback callbackFunc, void *userData)
{
    pace_capture_begins(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuStreamBeginRecaptureToGraph(hStream, mode, hGraph, callbackFunc, userData);
}

CUresult hook_cuStreamBeginRecaptureToGraph_ptsz(CUstream hStream, CUstreamCaptureMode mode,
    CUgraph hGraph, CUgraphRecaptureCallback callbackFunc, void *userData)
{
    pace_capture_begins(hStream, STREAM_ZERO_PER_THREAD);
    return cuda.cuStreamBeginRecaptureToGraph_ptsz(hStream, mode, hGraph, callbackFunc, userData);
}

/* Into a command list of a graphics API, which runs it later, where nothing measures it. The driver
 * is not asked for it: cuStreamIsCapturing is about graphs. */
static CUresult begin_cig(CUstream stream, enum stream_zero zero, CUstreamCigCaptureParams *params,
    __typeof__(cuda.cuStreamBeginCaptureToCig) real)
{
    hook_enter();
    pace_capture_begins(stream, zero);
    bool newly = capture_list_begins(stream, zero);
    CUresult result = real(stream, params);
    if (newly && result != CUDA_SUCCESS)
        capture_list_ends(stream, zero);
    return result;
}

/* A capture that the program has spoilt ends with an error. */
static CUresult end_cig(CUstream stream, enum stream_zero zero, CUresult result)
{
    if (result != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
        capture_list_ends(stream, zero);
    return result;
}

CUresult hook_cuStreamBeginCaptureToCig(
    CUstream hStream, CUstreamCigCaptureParams *streamCigCaptureParams)
{
    return begin_cig(
        hStream, STREAM_ZERO_LEGACY, streamCigCaptureParams, cuda.cuStreamBeginCaptureToCig);
}

CUresult hook_cuStreamEndCaptureToCig(CUstream hStream)
{
    return end_cig(hStream, STREAM_ZERO_LEGACY, cuda.cuStreamEndCaptureToCig(hStream));
}

CUresult hook_cuStreamBeginCaptureToCig_ptsz(
    CUstream hStream, CUstreamCigCaptureParams *streamCigCaptureParams)
{
    return begin_cig(hStream, STREAM_ZERO_PER_THREAD, streamCigCaptureParams,
        cuda.cuStreamBeginCaptureToCig_ptsz);
}

CUresult hook_cuStreamEndCaptureToCig_ptsz(CUstream hStream)
{
    return end_cig(hStream, STREAM_ZERO_PER_THREAD, cuda.cuStreamEndCaptureToCig_ptsz(hStream));
}

/* ---- streams and current contexts ---- */

CUresult hook_cuStreamDestroy(CUstream hStream)
{
    pace_stream_leaves(hStream);
    capture_list_ends(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuStreamDestroy(hStream);
}

CUresult hook_cuStreamDestroy_v2(CUstream hStream)
{
    pace_stream_leaves(hStream);
    capture_list_ends(hStream, STREAM_ZERO_LEGACY);
    return cuda.cuStreamDestroy_v2(hStream);
}

CUresult hook_cuCtxSetCurrent(CUcontext ctx)
{
    return pace_context_changed(cuda.cuCtxSetCurrent(ctx));
}

CUresult hook_cuCtxPushCurrent(CUcontext ctx)
{
    return pace_context_changed(cuda.cuCtxPushCurrent(ctx));
}

CUresult hook_cuCtxPushCurrent_v2(CUcontext ctx)
{
    return pace_context_changed(cuda.cuCtxPushCurrent_v2(ctx));
}

CUresult hook_cuCtxPopCurrent(CUcontext *pctx)
{
    return pace_context_changed(cuda.cuCtxPopCurrent(pctx));
}

CUresult hook_cuCtxPopCurrent_v2(CUcontext *pctx)
{
    return pace_context_changed(cuda.cuCtxPopCurrent_v2(pctx));
}
