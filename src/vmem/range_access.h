/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices reach a range's memory. */
#ifndef VGPU_VMEM_RANGE_ACCESS_H
#define VGPU_VMEM_RANGE_ACCESS_H

#include "vmem/range.h"

#define RANGE_ACCESSORS_MAX 64

struct range_access {
    CUdevice devices[RANGE_ACCESSORS_MAX];
    unsigned count;
};

/* The device of the range, and those that reach its context's memory (cuCtxEnablePeerAccess). */
struct range_access range_access_of(const struct range *range);

/* That device alone. */
struct range_access range_access_own(const struct range *range);

/* Lets them read and write what is mapped there. */
CUresult range_access_let(const struct range_access *access, CUdeviceptr address, uint64_t bytes)
    __attribute__((warn_unused_result));

#endif
