/* SPDX-License-Identifier: Apache-2.0 */
/* The future's functions do what today's do. */
#include "sim/cuda/future.h"

#include "sim/cuda/cuda_sim.h"

CUresult cuMemAlloc_v3(size_t bytes, unsigned long long flags, CUdeviceptr *address)
{
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    return context_current() ? sim_cuMemAlloc_v2(address, bytes) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxCreate_v5(CUdevice device, unsigned flags, CUcontext *context)
{
    return cuda_initialised() ? sim_cuCtxCreate_v2(context, flags, device)
                              : CUDA_ERROR_NOT_INITIALIZED;
}
