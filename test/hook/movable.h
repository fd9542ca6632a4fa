/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of memory that may be backed by the host share: its use of the first device, and
 * allocations that must succeed. */
#ifndef VGPU_TEST_MOVABLE_H
#define VGPU_TEST_MOVABLE_H

#include "bed.h"

#include <unistd.h>

#define PAGE (2 * MIB)

/* Of this process; zeros before it has a slot. */
static inline const struct vgpu_usage *usage(void)
{
    const struct vgpu_slot *slot = bed_region_slot(getpid());
    static const struct vgpu_usage none;
    return slot ? &slot->usage[0] : &none;
}

static inline CUdeviceptr take(uint64_t bytes)
{
    CUdeviceptr pointer = 0;
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, bytes), CUDA_SUCCESS);
    return pointer;
}

static inline void give(CUdeviceptr pointer)
{
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
}

#endif
