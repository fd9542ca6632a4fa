/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's calls that undo. Each is asked twice where it fails: the program does not know of
 * what it is to undo, and would not ask again. */
#ifndef VGPU_VMEM_UNDO_H
#define VGPU_VMEM_UNDO_H

#include "driver/cuda.h"

#include <stdint.h>

/* 0 bytes: there is nothing to unmap. */
static inline CUresult undo_map(CUdeviceptr address, uint64_t bytes)
{
    CUresult result = bytes ? cuda.cuMemUnmap(address, bytes) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS ? result : cuda.cuMemUnmap(address, bytes);
}

static inline CUresult undo_create(CUmemGenericAllocationHandle handle)
{
    CUresult result = cuda.cuMemRelease(handle);
    return result == CUDA_SUCCESS ? result : cuda.cuMemRelease(handle);
}

/* Addresses that are not given back are lost, and nothing else. */
static inline void undo_reserve(CUdeviceptr address, uint64_t bytes)
{
    if (cuda.cuMemAddressFree(address, bytes) != CUDA_SUCCESS)
        (void)cuda.cuMemAddressFree(address, bytes);
}

#endif
