/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: made, destroyed, and the limits that size their heaps. With the API ledger a context
 * counts as CONTEXT_BYTES, and local memory by its formula (hook/local_memory.h). */
#include "hook/hook.h"
#include "hook/local_memory.h"
#include "hook/pools.h"

#include <stddef.h>

/* 518 to 522 MiB were seen on an H200 (driver 580.159.04); smaller GPUs take less. */
#define CONTEXT_BYTES (520ull << 20)

static int begin_context(struct memory_request *request, int device)
{
    uint64_t bytes = memory_ledger() == MEMORY_LEDGER_API ? CONTEXT_BYTES : 0;
    return memory_begin(request, device, bytes, ACCOUNT_CONTEXT);
}

/* The first context shows which ledger counts; if it is the API's, this context was not reserved.
 */
static void end_context(
    struct memory_request *request, bool made, enum memory_handle type, uint64_t handle)
{
    memory_end(request, made, type, handle);
    if (!made || memory_ledger() != MEMORY_LEDGER_UNDECIDED) {
        if (made)
            memory_choose_ledger();
        return;
    }
    memory_choose_ledger();
    memory_set(type, handle, request->device, CONTEXT_BYTES, ACCOUNT_CONTEXT);
}

CUresult hook_cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    hook_enter();
    struct memory_request request;
    if (begin_context(&request, hook_device(dev)) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuda.cuCtxCreate(pctx, flags, dev);
    end_context(&request, result == CUDA_SUCCESS, MEMORY_CONTEXT, pctx ? (uintptr_t)*pctx : 0);
    return result;
}

CUresult hook_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    hook_enter();
    struct memory_request request;
    if (begin_context(&request, hook_device(dev)) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuda.cuCtxCreate_v2(pctx, flags, dev);
    end_context(&request, result == CUDA_SUCCESS, MEMORY_CONTEXT, pctx ? (uintptr_t)*pctx : 0);
    return result;
}

CUresult hook_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
    unsigned int flags, CUdevice dev)
{
    hook_enter();
    struct memory_request request;
    if (begin_context(&request, hook_device(dev)) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuda.cuCtxCreate_v3(pctx, paramsArray, numParams, flags, dev);
    end_context(&request, result == CUDA_SUCCESS, MEMORY_CONTEXT, pctx ? (uintptr_t)*pctx : 0);
    return result;
}

CUresult hook_cuCtxCreate_v4(
    CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
    hook_enter();
    struct memory_request request;
    if (begin_context(&request, hook_device(dev)) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuda.cuCtxCreate_v4(pctx, ctxCreateParams, flags, dev);
    end_context(&request, result == CUDA_SUCCESS, MEMORY_CONTEXT, pctx ? (uintptr_t)*pctx : 0);
    return result;
}

/* What the context held goes with it; the API ledger knows its own size and local memory only. */
CUresult hook_cuCtxDestroy_v2(CUcontext ctx)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_CONTEXT, (uintptr_t)ctx);
    CUresult result = cuda.cuCtxDestroy_v2(ctx);
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_CONTEXT, (uintptr_t)ctx);
    return result;
}

CUresult hook_cuCtxDestroy(CUcontext ctx)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_CONTEXT, (uintptr_t)ctx);
    CUresult result = cuda.cuCtxDestroy(ctx);
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_CONTEXT, (uintptr_t)ctx);
    return result;
}

static bool primary_is_active(CUdevice dev)
{
    unsigned int flags;
    int active = 0;
    return cuda.cuDevicePrimaryCtxGetState(dev, &flags, &active) == CUDA_SUCCESS && active;
}

CUresult hook_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    hook_enter();
    if (memory_ledger() != MEMORY_LEDGER_UNDECIDED && primary_is_active(dev))
        return cuda.cuDevicePrimaryCtxRetain(pctx, dev);
    struct memory_request request;
    if (begin_context(&request, hook_device(dev)) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuda.cuDevicePrimaryCtxRetain(pctx, dev);
    end_context(&request, result == CUDA_SUCCESS, MEMORY_PRIMARY, (uint64_t)dev);
    return result;
}

/* After a release or reset the primary context may be gone. */
static void settle_primary(CUdevice dev)
{
    if (memory_ledger() != MEMORY_LEDGER_API || primary_is_active(dev))
        return;
    struct memory_record record = memory_take(MEMORY_PRIMARY, (uint64_t)dev);
    memory_taken(&record, true, MEMORY_PRIMARY, (uint64_t)dev);
    local_memory_forget(dev);
}

CUresult hook_cuDevicePrimaryCtxRelease(CUdevice dev)
{
    hook_enter();
    CUresult result = cuda.cuDevicePrimaryCtxRelease(dev);
    settle_primary(dev);
    return result;
}

CUresult hook_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    hook_enter();
    CUresult result = cuda.cuDevicePrimaryCtxRelease_v2(dev);
    settle_primary(dev);
    return result;
}

CUresult hook_cuDevicePrimaryCtxReset(CUdevice dev)
{
    hook_enter();
    CUresult result = cuda.cuDevicePrimaryCtxReset(dev);
    settle_primary(dev);
    return result;
}

CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    hook_enter();
    CUresult result = cuda.cuDevicePrimaryCtxReset_v2(dev);
    settle_primary(dev);
    return result;
}

CUresult hook_cuCtxSetLimit(CUlimit limit, size_t value)
{
    hook_enter();
    if (limit == CU_LIMIT_STACK_SIZE && !local_memory_fits(value))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return cuda.cuCtxSetLimit(limit, value);
}
