/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: made, destroyed, and the limits that size their heaps. With the API ledger a context
 * counts as CONTEXT_BYTES, and what its limits take (memory/context_memory.h). */
#include "memory/context_attach.h"
#include "memory/context_make.h"
#include "memory/context_memory.h"
#include "hook/hook.h"
#include "pace/pace.h"
#include "hook/primary.h"
#include "vmem/vmem.h"
#include "vmem/world.h"

static uint64_t handle_of(const CUcontext *pctx)
{
    return pctx ? (uintptr_t)*pctx : 0;
}

CUresult hook_cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    hook_enter();
    struct context_make context = context_make_on(dev, CONTEXT_BYTES);
    while (context_make_begin(&context)) {
        context.result = cuda.cuCtxCreate(pctx, flags, dev);
        context_make_end(&context, MEMORY_CONTEXT, handle_of(pctx));
    }
    return world_context_changed(pace_context_changed(context.result));
}

CUresult hook_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    hook_enter();
    struct context_make context = context_make_on(dev, CONTEXT_BYTES);
    while (context_make_begin(&context)) {
        context.result = cuda.cuCtxCreate_v2(pctx, flags, dev);
        context_make_end(&context, MEMORY_CONTEXT, handle_of(pctx));
    }
    return world_context_changed(pace_context_changed(context.result));
}

CUresult hook_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
    unsigned int flags, CUdevice dev)
{
    hook_enter();
    struct context_make context = context_make_on(dev, CONTEXT_BYTES);
    while (context_make_begin(&context)) {
        context.result = cuda.cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev);
        context_make_end(&context, MEMORY_CONTEXT, handle_of(pctx));
    }
    return world_context_changed(pace_context_changed(context.result));
}

CUresult hook_cuCtxCreate_v4(
    CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
    hook_enter();
    struct context_make context = context_make_on(dev, CONTEXT_BYTES);
    while (context_make_begin(&context)) {
        context.result = cuda.cuCtxCreate_v4(pctx, ctxCreateParams, flags, dev);
        context_make_end(&context, MEMORY_CONTEXT, handle_of(pctx));
    }
    return world_context_changed(pace_context_changed(context.result));
}

/* Those that graphics APIs share are contexts like others (deprecated since CUDA 5.0). */
CUresult hook_cuGLCtxCreate(CUcontext *pCtx, unsigned int Flags, CUdevice device)
{
    hook_enter();
    struct context_make context = context_make_on(device, CONTEXT_BYTES);
    while (context_make_begin(&context)) {
        context.result = cuda.cuGLCtxCreate(pCtx, Flags, device);
        context_make_end(&context, MEMORY_CONTEXT, handle_of(pCtx));
    }
    return world_context_changed(pace_context_changed(context.result));
}

CUresult hook_cuGLCtxCreate_v2(CUcontext *pCtx, unsigned int Flags, CUdevice device)
{
    hook_enter();
    struct context_make context = context_make_on(device, CONTEXT_BYTES);
    while (context_make_begin(&context)) {
        context.result = cuda.cuGLCtxCreate_v2(pCtx, Flags, device);
        context_make_end(&context, MEMORY_CONTEXT, handle_of(pCtx));
    }
    return world_context_changed(pace_context_changed(context.result));
}

CUresult hook_cuVDPAUCtxCreate(CUcontext *pCtx, unsigned int flags, CUdevice device,
    cuuint32_t vdpDevice, void *vdpGetProcAddress)
{
    hook_enter();
    struct context_make context = context_make_on(device, CONTEXT_BYTES);
    while (context_make_begin(&context)) {
        context.result = cuda.cuVDPAUCtxCreate(pCtx, flags, device, vdpDevice, vdpGetProcAddress);
        context_make_end(&context, MEMORY_CONTEXT, handle_of(pCtx));
    }
    return world_context_changed(pace_context_changed(context.result));
}

CUresult hook_cuVDPAUCtxCreate_v2(CUcontext *pCtx, unsigned int flags, CUdevice device,
    cuuint32_t vdpDevice, void *vdpGetProcAddress)
{
    hook_enter();
    struct context_make context = context_make_on(device, CONTEXT_BYTES);
    while (context_make_begin(&context)) {
        context.result =
            cuda.cuVDPAUCtxCreate_v2(pCtx, flags, device, vdpDevice, vdpGetProcAddress);
        context_make_end(&context, MEMORY_CONTEXT, handle_of(pCtx));
    }
    return world_context_changed(pace_context_changed(context.result));
}

/* An error may be that of work before, and the context ended all the same. Of those that are no
 * more the driver refuses to tell the version; it pushes them like others (H200, 580.159.04). */
static bool is_gone(CUcontext ctx, CUresult ended)
{
    unsigned version;
    if (ended == CUDA_SUCCESS || !ctx)
        return ended == CUDA_SUCCESS;
    CUresult result = cuda.cuCtxGetApiVersion(ctx, &version);
    return result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult end(CUcontext ctx, CUresult (*driver)(CUcontext ctx))
{
    struct memory_record record = memory_take(MEMORY_CONTEXT, (uintptr_t)ctx);
    struct vmem_end ending;
    vmem_context_ends(&ending, (uintptr_t)ctx);
    pace_context_ends();
    CUresult result = pace_context_changed(driver(ctx));
    pace_context_ended();
    bool gone = is_gone(ctx, result);
    memory_taken(&record, gone, MEMORY_CONTEXT, (uintptr_t)ctx);
    vmem_context_ended(&ending, gone);
    if (gone) {
        memory_context_gone((uintptr_t)ctx, ending.recorded);
        context_attach_forget(ctx);
    }
    return result;
}

CUresult hook_cuCtxDestroy_v2(CUcontext ctx)
{
    hook_enter();
    pace_wait_while_held();
    pace_context_leaves(ctx);
    return end(ctx, cuda.cuCtxDestroy_v2);
}

CUresult hook_cuCtxDestroy(CUcontext ctx)
{
    hook_enter();
    pace_wait_while_held();
    pace_context_leaves(ctx);
    return end(ctx, cuda.cuCtxDestroy);
}

/* A primary context is retained by it (H200, driver 580.159.04). */
CUresult hook_cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
    hook_enter();
    CUresult result = cuda.cuCtxAttach(pctx, flags);
    if (result != CUDA_SUCCESS)
        return result;
    context_attach_add(*pctx);
    primary_held(primary_device(*pctx));
    return result;
}

/* One that was attached to, which goes on; or a primary one, which goes with its last holder. */
static CUresult detach_held(CUcontext ctx, bool was_attached)
{
    CUdevice dev = primary_device(ctx);
    if (was_attached)
        primary_let_go(dev);
    struct vmem_end end;
    primary_may_end(&end, dev);
    if (dev != PRIMARY_NONE)
        pace_context_ends();
    CUresult result = pace_context_changed(cuda.cuCtxDetach(ctx));
    if (dev != PRIMARY_NONE)
        pace_context_ended();
    if (was_attached && result != CUDA_SUCCESS) {
        context_attach_add(ctx);
        primary_held(dev);
    }
    primary_settle(&end, dev, false);
    return result;
}

/* The driver refuses one that is not the thread's current context: it is measured on. */
static bool may_be_current(CUcontext ctx)
{
    CUcontext current;
    return cuda.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current == ctx;
}

CUresult hook_cuCtxDetach(CUcontext ctx)
{
    hook_enter();
    pace_wait_while_held();
    bool was_attached = context_attach_take(ctx);
    if (was_attached || primary_device(ctx) != PRIMARY_NONE)
        return detach_held(ctx, was_attached);
    if (may_be_current(ctx))
        pace_context_leaves(ctx);
    return end(ctx, cuda.cuCtxDetach);
}

CUresult hook_cuCtxSetLimit(CUlimit limit, size_t value)
{
    hook_enter();
    struct context_growth growth;
    if (!context_memory_fits_limit(limit, value, &growth))
        return growth.refusal;
    CUresult result = cuda.cuCtxSetLimit(limit, value);
    context_memory_settle_limit(&growth, result == CUDA_SUCCESS);
    return result;
}
