/* SPDX-License-Identifier: Apache-2.0 */
/* Primary contexts: one per device, counted; the handle stays the same over release and retain. */
#include "sim/cuda/context.h"

CUresult sim_cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice ordinal)
{
    CUDA_LOCKED;
    struct device *device = device_of(ordinal);
    CUresult r = CUDA_SUCCESS;

    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!device->primary)
        r = context_create(device, device->primary_flags, true, 3020, &device->primary);
    else if (!device->primary->live)
        r = context_start(device->primary);
    if (r != CUDA_SUCCESS)
        return r;
    device->primary->flags = device->primary_flags;
    device->primary_refs++;
    *ret = (CUcontext)device->primary;
    return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    CUDA_LOCKED;
    struct device *device = device_of(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (device->primary_refs == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (--device->primary_refs == 0)
        context_stop(device->primary);
    return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    return sim_cuDevicePrimaryCtxRelease_v2(ordinal);
}

CUresult sim_cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    CUDA_LOCKED;
    struct device *device = device_of(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (device->greens)
        return CUDA_ERROR_NOT_PERMITTED;
    device->primary_refs = 0;
    if (device->primary)
        context_stop(device->primary);
    return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    return sim_cuDevicePrimaryCtxReset_v2(ordinal);
}

CUresult sim_cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags)
{
    CUDA_LOCKED;
    struct device *device = device_of(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    device->primary_flags = flags;
    return CUDA_SUCCESS;
}

CUresult sim_cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned int flags)
{
    return sim_cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}

CUresult sim_cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active)
{
    CUDA_LOCKED;
    struct device *device = device_of(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = device->primary_flags;
    *active = device->primary && device->primary->live;
    return CUDA_SUCCESS;
}
