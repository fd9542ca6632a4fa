/* SPDX-License-Identifier: Apache-2.0 */
/* What a program waits by: what it launched before is measured from what it sees then
 * (pace/wait.c), and a pool gives memory back (its release threshold says how much). */
#include "hook/hook.h"
#include "pace/pace.h"
#include "memory/pools.h"
#include "vmem/vmem.h"

#include <stdbool.h>

static inline CUresult synchronised(CUresult result)
{
    pace_note_wait();
    if (pools_count())
        pools_refresh_current();
    vmem_look();
    return result;
}

/* ---- contexts ---- */

static CUresult context_awaited(CUresult result, bool noted)
{
    if (result == CUDA_SUCCESS && noted)
        pace_context_awaited();
    return synchronised(result);
}

CUresult hook_cuCtxSynchronize(void)
{
    HALT_GUARD();
    pace_before_wait();
    bool noted = pace_wait_begins(false);
    return context_awaited(cuda.cuCtxSynchronize(), noted);
}

/* NULL stands for the current one. */
CUresult hook_cuCtxSynchronize_v2(CUcontext ctx)
{
    CUcontext current = NULL;
    HALT_GUARD();
    pace_before_wait();
    bool own = !ctx || (cuda.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == ctx);
    bool noted = own && pace_wait_begins(false);
    return context_awaited(cuda.cuCtxSynchronize_v2(ctx), noted);
}

/* ---- streams ---- */

static CUresult synchronise(
    CUresult (*driver)(CUstream stream), CUstream stream, enum stream_zero zero)
{
    HALT_GUARD();
    pace_before_wait();
    bool noted = pace_stream_wait_begins(stream, zero);
    CUresult result = driver(stream);
    if (result == CUDA_SUCCESS && noted)
        pace_stream_awaited(stream, zero);
    return synchronised(result);
}

CUresult hook_cuStreamSynchronize(CUstream hStream)
{
    return synchronise(cuda.cuStreamSynchronize, hStream, STREAM_ZERO_LEGACY);
}

CUresult hook_cuStreamSynchronize_ptsz(CUstream hStream)
{
    return synchronise(cuda.cuStreamSynchronize_ptsz, hStream, STREAM_ZERO_PER_THREAD);
}

static CUresult ask(CUresult (*driver)(CUstream stream), CUstream stream, enum stream_zero zero)
{
    HALT_GUARD();
    pace_before_wait();
    bool noted = pace_stream_asked(stream, zero);
    CUresult result = driver(stream);
    if (result == CUDA_SUCCESS)
        pace_note_wait();
    if (noted && result == CUDA_SUCCESS)
        pace_stream_awaited(stream, zero);
    else if (noted && result == CUDA_ERROR_NOT_READY)
        pace_stream_works(stream, zero);
    return result;
}

CUresult hook_cuStreamQuery(CUstream hStream)
{
    return ask(cuda.cuStreamQuery, hStream, STREAM_ZERO_LEGACY);
}

CUresult hook_cuStreamQuery_ptsz(CUstream hStream)
{
    return ask(cuda.cuStreamQuery_ptsz, hStream, STREAM_ZERO_PER_THREAD);
}

/* ---- events ---- */

CUresult hook_cuEventSynchronize(CUevent hEvent)
{
    HALT_GUARD();
    pace_before_wait();
    bool noted = pace_wait_begins(false);
    CUresult result = cuda.cuEventSynchronize(hEvent);
    if (result == CUDA_SUCCESS && noted)
        pace_event_awaited();
    return synchronised(result);
}

CUresult hook_cuEventQuery(CUevent hEvent)
{
    HALT_GUARD();
    pace_before_wait();
    bool noted = pace_wait_begins(true);
    CUresult result = cuda.cuEventQuery(hEvent);
    if (result == CUDA_SUCCESS)
        pace_note_wait();
    if (noted && result == CUDA_SUCCESS)
        pace_event_awaited();
    else if (noted && result == CUDA_ERROR_NOT_READY)
        pace_works();
    return result;
}
