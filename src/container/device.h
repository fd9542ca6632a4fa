/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the container's devices a CUDA ordinal or an NVML handle means. */
#ifndef VGPU_CONTAINER_DEVICE_H
#define VGPU_CONTAINER_DEVICE_H

#include "driver/cuda.h"
#include "driver/nvml.h"

/* The region's index of a CUDA ordinal, of the current context's device, and of an NVML handle
 * (CONTAINER_DEVICE_...). Where the driver does not tell and a limit is set, its code: the
 * program's own call would get the same, and nothing may be taken on a device that is not known.
 * Where it is too old for the question, success, and the device is closed. Any thread. */
CUresult device_identify(CUdevice ordinal, int *ret_device) __attribute__((warn_unused_result));
CUresult device_identify_current(int *ret_device) __attribute__((warn_unused_result));
nvmlReturn_t device_identify_nvml(nvmlDevice_t handle, int *ret_device)
    __attribute__((warn_unused_result));

/* For what exists already: CONTAINER_DEVICE_UNKNOWN where there is no such device, closed where it
 * is not told and any limit is set. */
int device_index(CUdevice ordinal);

#endif
