/* SPDX-License-Identifier: Apache-2.0 */
/* API ledger: what a context takes beyond its own size: local memory (for as many threads as the
 * device can hold, silently, at the first launch of a kernel that needs more than before) and the
 * heaps that cuCtxSetLimit sizes. Without the API ledger these say yes and do nothing. */
#ifndef VGPU_MEMORY_CONTEXT_MEMORY_H
#define VGPU_MEMORY_CONTEXT_MEMORY_H

#include "abi/cuda.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growth that is charged before the driver is asked. */
struct context_growth {
    CUdevice ordinal;
    uint64_t context;
    CUlimit limit;
    uint64_t bytes, former_bytes;
    bool charged;     /* from former_bytes to bytes */
    bool told;        /* bytes and former_bytes are known */
    CUresult refusal; /* what the program is told where it does not fit */
};

/* Charges the growth that a limit of the current context means; true where it fits. */
bool context_memory_fits_limit(CUlimit limit, size_t value, struct context_growth *ret_growth);

/* Charges the growth of local memory that the kernel about to be launched means; true where it
 * fits. */
bool context_memory_fits_function(CUfunction function, struct context_growth *ret_growth);

/* The driver has answered: a growth that did not come to be is given back. */
void context_memory_settle(const struct context_growth *growth, bool grown);

/* The same for a limit that was set, which may also have become smaller. A launch never makes local
 * memory smaller. */
void context_memory_settle_limit(const struct context_growth *growth, bool set);

#endif
