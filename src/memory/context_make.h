/* SPDX-License-Identifier: Apache-2.0 */
/* Making a context, by a loop as in memory/allocation.h. With the API ledger it is counted for what
 * it takes by itself. With any ledger a failure for want of memory is reported as one, and pools of
 * the device release what they hold unused for it. */
#ifndef VGPU_MEMORY_CONTEXT_MAKE_H
#define VGPU_MEMORY_CONTEXT_MAKE_H

#include "driver/cuda.h"
#include "memory/memory.h"

/* 518 to 522 MiB were seen on an H200 (driver 580.159.04); smaller GPUs take less. */
#define CONTEXT_BYTES (520ull << 20)

struct context_make {
    CUresult result; /* the program's answer */
    CUdevice dev;
    uint64_t bytes; /* that it takes by itself */
    unsigned attempts;
    struct memory_request memory;
    bool counted; /* by the API ledger, from the start */
    unsigned refusals;
};

struct context_make context_make_on(CUdevice dev, uint64_t bytes);

/* True where the driver is to be called, and context_make_end to follow. False at the end: `result`
 * is final. */
bool context_make_begin(struct context_make *make) __attribute__((warn_unused_result));

/* The driver has answered `result`; after CUDA_SUCCESS `handle` stands for what was made. The first
 * context shows which ledger counts: one that turns out not to fit is gone again. */
void context_make_end(struct context_make *make, enum memory_handle type, uint64_t handle);

#endif
