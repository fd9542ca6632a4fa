/* SPDX-License-Identifier: Apache-2.0 */
/* What is done before and after the driver makes a context. */
#include "memory/context_make.h"

#include "container/device.h"
#include "memory/pools.h"
#include "rm/rm_memory.h"

struct context_make context_make_on(CUdevice dev, uint64_t bytes)
{
    return (struct context_make){.dev = dev, .bytes = bytes};
}

/* Not CUDA_SUCCESS: the program's answer, without asking the driver. */
static CUresult attempt(struct context_make *make)
{
    int device;
    CUresult result = device_identify(make->dev, &device);
    /* With a device that is there but not told, memory_begin refuses where any limit is set. */
    if (result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_NOT_INITIALIZED)
        return result;
    memory_choose_ledger(false);
    make->counted = memory_ledger() == MEMORY_LEDGER_API;
    make->refusals = rm_memory_thread_refusals();
    return memory_begin(&make->memory, device, make->counted ? make->bytes : 0, ACCOUNT_CONTEXT) ==
                   0
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

bool context_make_begin(struct context_make *make)
{
    while (pools_allow_attempt(&make->attempts, make->result, make->dev)) {
        make->result = attempt(make);
        if (make->result == CUDA_SUCCESS)
            return true;
    }
    return false;
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
    const struct context_make *make, enum memory_handle type, uint64_t handle)
{
    int device = make->memory.device;
    struct memory_request late;
    memory_choose_ledger(true);
    if (make->counted || memory_ledger() != MEMORY_LEDGER_API)
        return CUDA_SUCCESS;
    if (memory_begin(&late, device, make->bytes, ACCOUNT_CONTEXT) == 0)
        memory_end(&late, true, type, handle);
    else if (unmake(type, handle) == CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    else
        memory_set(type, handle, device, make->bytes, ACCOUNT_CONTEXT);
    return CUDA_SUCCESS;
}

/* A context that failed because memory was refused failed for want of memory. The driver says
 * "unknown" where it is the 11th of a context's allocations that is refused (H200, driver
 * 580.159.04). */
void context_make_end(struct context_make *make, enum memory_handle type, uint64_t handle)
{
    bool made = make->result == CUDA_SUCCESS;
    memory_end(&make->memory, made, type, made ? handle : 0);
    if (made)
        make->result = choose_ledger(make, type, handle);
    else if (make->result == CUDA_ERROR_UNKNOWN && rm_memory_thread_refusals() != make->refusals)
        make->result = CUDA_ERROR_OUT_OF_MEMORY;
}
