/* SPDX-License-Identifier: Apache-2.0 */
/* What is done before and after the driver makes a context. */
#include "memory/context_make.h"

#include "container/device.h"
#include "rm/rm_memory.h"

CUresult context_begin(struct context_request *request, CUdevice dev, uint64_t bytes)
{
    int device;
    CUresult result = device_identify(dev, &device);
    /* With a device that is there but not told, memory_begin refuses where any limit is set. */
    if (result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_NOT_INITIALIZED)
        return result;
    memory_choose_ledger(false);
    request->counted = memory_ledger() == MEMORY_LEDGER_API;
    request->bytes = bytes;
    request->refusals = rm_memory_thread_refusals();
    return memory_begin(&request->memory, device, request->counted ? bytes : 0, ACCOUNT_CONTEXT) ==
                   0
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult unmake(enum memory_handle type, uint64_t handle)
{
    if (type == MEMORY_CONTEXT)
        return cuda.cuCtxDestroy_v2((CUcontext)(uintptr_t)handle);
    CUresult result = cuda.cuDevicePrimaryCtxRelease_v2((CUdevice)handle);
    return result == CUDA_ERROR_NOT_SUPPORTED ? cuda.cuDevicePrimaryCtxRelease((CUdevice)handle)
                                              : result;
}

/* The first context shows which ledger counts; if it is the API's, this context was not reserved.
 * Returns out of memory where it does not fit, and is gone again. */
static CUresult choose_ledger(
    const struct context_request *request, enum memory_handle type, uint64_t handle)
{
    int device = request->memory.device;
    struct memory_request late;
    memory_choose_ledger(true);
    if (request->counted || memory_ledger() != MEMORY_LEDGER_API)
        return CUDA_SUCCESS;
    if (memory_begin(&late, device, request->bytes, ACCOUNT_CONTEXT) == 0)
        memory_end(&late, true, type, handle);
    else if (unmake(type, handle) == CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    else
        memory_set(type, handle, device, request->bytes, ACCOUNT_CONTEXT);
    return CUDA_SUCCESS;
}

/* Returns what the program is told: a context that failed because memory was refused failed for
 * want of memory. The driver says "unknown" where it is the 11th of a context's allocations that
 * is refused (H200, driver 580.159.04). */
CUresult context_end(
    struct context_request *request, CUresult result, enum memory_handle type, uint64_t handle)
{
    bool made = result == CUDA_SUCCESS;
    memory_end(&request->memory, made, type, made ? handle : 0);
    if (made)
        return choose_ledger(request, type, handle);
    bool refused = rm_memory_thread_refusals() != request->refusals;
    return result == CUDA_ERROR_UNKNOWN && refused ? CUDA_ERROR_OUT_OF_MEMORY : result;
}
