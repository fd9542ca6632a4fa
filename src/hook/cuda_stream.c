/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and current contexts, which the meter follows. */
#include "hook/green.h"
#include "hook/hook.h"
#include "pace/pace.h"
#include "vmem/vmem.h"

/* All streams of the context wait. */
CUresult hook_cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
    pace_note_context_waits(hCtx, green_home(hCtx));
    return cuda.cuCtxWaitEvent(hCtx, hEvent);
}

/* Whether a capture ends with the stream. */
static bool is_capturing(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return load_relaxed(&vmem_is_asked_for) && stream && cuda.cuStreamIsCapturing &&
           cuda.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult destroy_stream(CUstream stream, CUresult (*driver)(CUstream stream))
{
    bool captures = is_capturing(stream);
    pace_stream_leaves(stream);
    capture_list_ends(stream, STREAM_ZERO_LEGACY);
    CUresult result = driver(stream);
    if (captures && result == CUDA_SUCCESS)
        vmem_capture_ends();
    return result;
}

CUresult hook_cuStreamDestroy(CUstream hStream)
{
    return destroy_stream(hStream, cuda.cuStreamDestroy);
}

CUresult hook_cuStreamDestroy_v2(CUstream hStream)
{
    return destroy_stream(hStream, cuda.cuStreamDestroy_v2);
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

static CUresult capture_begun(CUresult result)
{
    if (load_relaxed(&vmem_is_asked_for) && result == CUDA_SUCCESS)
        vmem_capture_begins();
    return result;
}

/* Also one that was spoilt, or not joined. In a forked child no call gets so far. */
static CUresult capture_ended(CUresult result)
{
    bool ends = result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
                result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (load_relaxed(&vmem_is_asked_for) && ends)
        vmem_capture_ends();
    return result;
}

#define TWINS "hook/cuda_stream.def"
#include "hook/twins.h"
