/* SPDX-License-Identifier: Apache-2.0 */
/* Green contexts. With the API ledger each counts as GREEN_BYTES. What is launched on the streams
 * of one is measured as its primary context's, also after it is gone: the driver lets it run on. */
#include "memory/context_make.h"
#include "hook/green.h"
#include "hook/hook.h"
#include "pace/pace.h"
#include "hook/primary.h"

#include <stddef.h>

/* Bytes that a green context takes at most: on an H200 (driver 580.159.04) 4 and 6 MiB in turns. */
#define GREEN_BYTES (6ull << 20)

/* The CUcontext that stands for it. */
static CUcontext context_of(CUgreenCtx green)
{
    CUcontext context = NULL;
    CUresult result = cuda.cuCtxFromGreenCtx(&context, green);
    return result == CUDA_SUCCESS ? context : (CUcontext)(void *)green;
}

static uint64_t handle_of(const CUgreenCtx *green)
{
    return green ? (uintptr_t)*green : 0;
}

/* Held meanwhile, the primary context is made and counted as any. */
CUresult hook_cuGreenCtxCreate(
    CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
    hook_enter();
    CUcontext primary;
    CUresult result = primary_retain(&primary, dev);
    if (result != CUDA_SUCCESS)
        return result;
    struct context_make green = context_make_on(dev, GREEN_BYTES);
    while (context_make_begin(&green)) {
        green.result = cuda.cuGreenCtxCreate(phCtx, desc, dev, flags);
        context_make_end(&green, MEMORY_CONTEXT, handle_of(phCtx));
    }
    if (green.result == CUDA_SUCCESS) {
        green_note(context_of(*phCtx), dev);
        primary_held(dev);
    } else {
        pace_wait_while_held(); /* what fails can be tried for ever */
    }
    primary_drop(dev);
    return green.result;
}

CUresult hook_cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    HALT_GUARD();
    CUcontext context = context_of(hCtx);
    pace_note_context_waits(context, green_home(context));
    return cuda.cuGreenCtxWaitEvent(hCtx, hEvent);
}

CUresult hook_cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    hook_enter();
    pace_wait_while_held();
    CUcontext context = context_of(hCtx);
    CUdevice dev = green_forget(context);
    struct memory_record record = memory_take(MEMORY_CONTEXT, (uintptr_t)hCtx);
    pace_context_leaves(context); /* its default stream, which was measured in its name */
    struct vmem_end end;
    primary_let_go(dev);
    primary_may_end(&end, dev);
    pace_context_ends();
    CUresult result = cuda.cuGreenCtxDestroy(hCtx);
    pace_context_ended();
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_CONTEXT, (uintptr_t)hCtx);
    if (result != CUDA_SUCCESS && dev != PRIMARY_NONE) {
        green_note(context, dev);
        primary_held(dev);
    }
    primary_settle(&end, dev, false);
    return result;
}
