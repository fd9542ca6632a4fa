/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and current contexts, which the meter follows. */
#include "hook/green.h"
#include "hook/hook.h"
#include "pace/pace.h"
#include "vmem/vmem.h"
#include "vmem/world.h"

/* All streams of the context wait. */
CUresult hook_cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
    HALT_GUARD();
    pace_note_context_waits(hCtx, green_home(hCtx));
    return cuda.cuCtxWaitEvent(hCtx, hEvent);
}

static CUresult destroy_stream(CUstream stream, CUresult (*driver)(CUstream stream))
{
    HALT_GUARD();
    pace_stream_leaves(stream);
    capture_list_ends(stream, STREAM_ZERO_LEGACY);
    CUresult result = driver(stream);
    if (load_relaxed(&vmem_is_asked_for) && result == CUDA_SUCCESS)
        vmem_capture_ended_slow(stream, STREAM_ZERO_LEGACY);
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
    HALT_GUARD();
    return world_context_changed(pace_context_changed(cuda.cuCtxSetCurrent(ctx)));
}

CUresult hook_cuCtxPushCurrent(CUcontext ctx)
{
    HALT_GUARD();
    return world_context_changed(pace_context_changed(cuda.cuCtxPushCurrent(ctx)));
}

CUresult hook_cuCtxPushCurrent_v2(CUcontext ctx)
{
    HALT_GUARD();
    return world_context_changed(pace_context_changed(cuda.cuCtxPushCurrent_v2(ctx)));
}

CUresult hook_cuCtxPopCurrent(CUcontext *pctx)
{
    HALT_GUARD();
    return pace_context_changed(cuda.cuCtxPopCurrent(pctx));
}

CUresult hook_cuCtxPopCurrent_v2(CUcontext *pctx)
{
    HALT_GUARD();
    return pace_context_changed(cuda.cuCtxPopCurrent_v2(pctx));
}

static void capture_begins(CUstream stream, enum stream_zero zero)
{
    hook_begin();
    pace_capture_begins(stream, zero);
    if (load_relaxed(&vmem_is_asked_for))
        vmem_capture_begins_slow(stream, zero);
}

static CUresult capture_begun(CUstream stream, enum stream_zero zero, CUresult result)
{
    if (load_relaxed(&vmem_is_asked_for) && result != CUDA_SUCCESS)
        vmem_capture_settle_slow(stream, zero);
    return result;
}

/* An error may be that of a capture that was spoilt, and is over, or of a call that ended none. */
static CUresult capture_ended(CUstream stream, enum stream_zero zero, CUresult result)
{
    if (!load_relaxed(&vmem_is_asked_for))
        return result;
    if (result == CUDA_SUCCESS)
        vmem_capture_ended_slow(stream, zero);
    else
        vmem_capture_settle_slow(stream, zero);
    return result;
}

#define TWINS "hook/cuda_stream.def"
#include "hook/twins.h"
