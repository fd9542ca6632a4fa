/* SPDX-License-Identifier: Apache-2.0 */
/* What green contexts are made of: a device's multiprocessors, shared out in groups. */
#ifndef VGPU_SIM_CUDA_RESOURCE_H
#define VGPU_SIM_CUDA_RESOURCE_H

#include "sim/cuda/cuda_sim.h"

/* What the driver keeps in a resource's padding; all of it is ours to check. */
struct resource_origin {
    uint32_t magic;
    CUdevice ordinal;
    unsigned split; /* the call that it came of; 0: of none */
};

/* All multiprocessors of the device. */
CUdevResource resource_whole(const struct device *device);
/* Of a descriptor that the program was given, the sum of its groups; false for anything else. */
bool resource_of_descriptor(CUdevResourceDesc descriptor, CUdevResource *ret_resource);
struct resource_origin resource_origin(const CUdevResource *resource);

#endif
