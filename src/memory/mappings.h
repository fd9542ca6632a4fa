/* SPDX-License-Identifier: Apache-2.0 */
/* Which handle of virtual memory management is mapped where; only the API ledger needs it. Any
 * thread. */
#ifndef VGPU_MEMORY_MAPPINGS_H
#define VGPU_MEMORY_MAPPINGS_H

#include "abi/cuda.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mapping {
    CUdeviceptr address;
    uint64_t bytes;
    CUmemGenericAllocationHandle handle;
};

void mappings_add(const struct mapping *mapping);

/* The mapping that begins at the address, taken out; false where none does. */
bool mappings_take(CUdeviceptr address, struct mapping *ret_mapping);

/* The mapping that the address lies in; false where it lies in none. */
bool mappings_find(CUdeviceptr address, struct mapping *ret_mapping);

/* In a forked child. */
void mappings_reset(void);

#endif
