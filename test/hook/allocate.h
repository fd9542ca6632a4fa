/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of device memory that a program asks for by its size, as one table. */
#ifndef VGPU_TEST_ALLOCATE_H
#define VGPU_TEST_ALLOCATE_H

#include "abi/cuda.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct allocation_kind {
    const char *function; /* that takes it */
    const char *release;  /* that gives it back */
    CUresult (*make)(uint64_t bytes, uint64_t *ret_handle);
    CUresult (*drop)(uint64_t handle);
};

extern const struct allocation_kind allocation_kinds[];
extern const unsigned allocation_kind_count;

/* Whether the driver has the function. */
bool allocation_kind_exists(const struct allocation_kind *kind);

/* Device memory of the ordinal that can be exported by descriptor. */
CUmemAllocationProp allocation_property(int ordinal);

/* What this process is charged on the region's first device. */
uint64_t allocation_charged(void);

#endif
