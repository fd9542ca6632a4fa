/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of a driver to come (CUDA 14.0 here), made up: versions of functions that exist today,
 * with other prototypes. */
#ifndef VGPU_SIM_CUDA_FUTURE_H
#define VGPU_SIM_CUDA_FUTURE_H

#include "abi/cuda.h"

#define SIM_CUDA_FUTURE 14000

#define SIM_EXPORTED __attribute__((visibility("default")))

SIM_EXPORTED CUresult cuMemAlloc_v3(size_t bytes, unsigned long long flags, CUdeviceptr *address);
SIM_EXPORTED CUresult cuCtxCreate_v5(CUdevice device, unsigned flags, CUcontext *context);

#endif
