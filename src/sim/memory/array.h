/* SPDX-License-Identifier: Apache-2.0 */
/* Where an array's elements lie, for copies. */
#ifndef VGPU_SIM_MEMORY_ARRAY_H
#define VGPU_SIM_MEMORY_ARRAY_H

#include "sim/cuda/cuda_sim.h"

struct array_facts {
    uint64_t address;
    uint64_t row_bytes;
    uint64_t height;
};

bool array_facts_of(CUarray handle, struct array_facts *ret_facts);

#endif
