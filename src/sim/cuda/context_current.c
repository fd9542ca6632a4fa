/* SPDX-License-Identifier: Apache-2.0 */
/* The thread's stack of current contexts; primary contexts; what a program may ask of a context. */
#include <stdlib.h>

#include "sim/cuda/context.h"

#define STACK_MAX 64

static _Thread_local struct context *stack[STACK_MAX];
static _Thread_local unsigned depth;

struct context *context_current_top(void)
{
    struct context *top = depth ? stack[depth - 1] : NULL;

    return top && top->live && (!top->home || top->home->live) ? top : NULL;
}

struct context *context_current(void)
{
    struct context *top = context_current_top();

    return top && top->home ? top->home : top;
}

struct context *context_current_green(void)
{
    struct context *top = context_current_top();

    return top && top->home ? top : NULL;
}

static CUresult context_push(struct context *context)
{
    if (depth == STACK_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult context_create_current(
    CUcontext *ret, unsigned flags, CUdevice ordinal, unsigned version)
{
    CUDA_LOCKED;
    struct device *device = device_of(ordinal);
    struct context *context;
    CUresult r;

    if (!ret || flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    r = context_create(device, flags, false, version, &context);
    if (r != CUDA_SUCCESS)
        return r;
    *ret = (CUcontext)context;
    return context_push(context);
}

CUresult sim_cuCtxCreate(CUcontext *ret, unsigned int flags, CUdevice ordinal)
{
    return context_create_current(ret, flags, ordinal, 3010);
}

CUresult sim_cuCtxCreate_v2(CUcontext *ret, unsigned int flags, CUdevice ordinal)
{
    return context_create_current(ret, flags, ordinal, 3020);
}

CUresult sim_cuCtxCreate_v3(CUcontext *ret, CUexecAffinityParam *params, int param_count,
    unsigned int flags, CUdevice ordinal)
{
    (void)params;
    if (param_count)
        return CUDA_ERROR_NOT_SUPPORTED;
    return context_create_current(ret, flags, ordinal, 3020);
}

CUresult sim_cuCtxCreate_v4(
    CUcontext *ret, CUctxCreateParams *params, unsigned int flags, CUdevice ordinal)
{
    if (params && params->numExecAffinityParams)
        return CUDA_ERROR_NOT_SUPPORTED;
    return context_create_current(ret, flags, ordinal, 3020);
}

CUresult sim_cuCtxDestroy_v2(CUcontext handle)
{
    CUDA_LOCKED;
    struct context *context = handle ? context_of(handle) : NULL;

    if (!context || context->primary || context->home)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context == context_current_top())
        depth--;
    object_remove(&context->object);
    context_stop(context);
    context_bury(context);
    return sim_description()->failed_work ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

CUresult sim_cuCtxDestroy(CUcontext handle)
{
    return sim_cuCtxDestroy_v2(handle);
}

CUresult sim_cuCtxAttach(CUcontext *ret, unsigned int flags)
{
    CUDA_LOCKED;
    struct context *context = context_current();

    if (!ret || flags)
        return CUDA_ERROR_INVALID_VALUE;
    context->refs++;
    if (context->primary)
        context->device->primary_refs++;
    *ret = (CUcontext)context;
    return CUDA_SUCCESS;
}

/* Of the current context alone; a primary one is retained by being attached, and detaching does
 * nothing to it otherwise (H200, driver 580.159.04). */
CUresult sim_cuCtxDetach(CUcontext handle)
{
    CUDA_LOCKED;
    struct context *context = handle ? context_of(handle) : NULL;

    if (!context || context != context_current_top() || context->home)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context->refs == 1)
        return context->primary ? CUDA_SUCCESS : sim_cuCtxDestroy_v2(handle);
    context->refs--;
    return context->primary ? sim_cuDevicePrimaryCtxRelease_v2(context->device->ordinal)
                            : CUDA_SUCCESS;
}

/* One that is destroyed, or a primary one that was released, is pushed like others; what is called
 * in it then is refused (H200, driver 580.159.04). */
CUresult sim_cuCtxPushCurrent_v2(CUcontext handle)
{
    CUDA_LOCKED;
    struct context *context = handle ? context_ever_of(handle) : NULL;

    return context ? context_push(context) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult sim_cuCtxPushCurrent(CUcontext handle)
{
    return sim_cuCtxPushCurrent_v2(handle);
}

CUresult sim_cuCtxPopCurrent_v2(CUcontext *ret)
{
    CUDA_LOCKED;

    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (ret)
        *ret = (CUcontext)stack[depth];
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxPopCurrent(CUcontext *ret)
{
    return sim_cuCtxPopCurrent_v2(ret);
}

CUresult sim_cuCtxSetCurrent(CUcontext handle)
{
    CUDA_LOCKED;
    struct context *context = NULL;

    if (handle) {
        context = context_of(handle);
        if (!context)
            return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (depth)
        depth--;
    return context ? context_push(context) : CUDA_SUCCESS;
}

CUresult sim_cuCtxGetCurrent(CUcontext *ret)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = depth ? (CUcontext)stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetDevice(CUdevice *ret)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = context_current()->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetDevice_v2(CUdevice *ret, CUcontext handle)
{
    CUDA_LOCKED;
    struct context *context = context_of(handle);

    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = context->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetFlags(unsigned int *ret)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = context_current()->flags;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetFlags(unsigned int flags)
{
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    context_current()->flags = flags;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetId(CUcontext handle, unsigned long long *ret)
{
    CUDA_LOCKED;
    struct context *context = context_of(handle);

    if (!context)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = context->id;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetApiVersion(CUcontext handle, unsigned int *ret)
{
    CUDA_LOCKED;
    struct context *context = context_of(handle);

    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = context->version;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetCacheConfig(CUfunc_cache *ret)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = context_current()->cache_config;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetCacheConfig(CUfunc_cache config)
{
    context_current()->cache_config = config;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetSharedMemConfig(CUsharedconfig *ret)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = context_current()->shared_config;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    context_current()->shared_config = config;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxResetPersistingL2Cache(void)
{
    return CUDA_SUCCESS;
}

CUresult sim_cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    CUDA_LOCKED;
    struct context *context = peer ? context_of(peer) : NULL;

    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    return context->device == context_current()->device ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult sim_cuCtxDisablePeerAccess(CUcontext peer)
{
    CUDA_LOCKED;

    return peer && context_of(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
