/* SPDX-License-Identifier: Apache-2.0 */
/* An allocation from a pool, by a loop as in memory/allocation.h. The pool's growth is charged
 * below the API; under the API ledger a reservation stands for it until the pool tells its size. A
 * request that is served costs no further driver call. Any thread. */
#ifndef VGPU_MEMORY_POOLED_H
#define VGPU_MEMORY_POOLED_H

#include "driver/cuda.h"
#include "memory/memory.h"
#include "memory/pools.h"
#include "pace/capture.h"

#include <stdbool.h>
#include <stddef.h>

struct pooled {
    CUresult result; /* the program's answer */
    unsigned attempts;
    size_t bytes;
    CUmemoryPool named; /* NULL: the current pool of the current device */
    CUstream stream;
    enum stream_zero zero;
    /* Of the last attempt: */
    struct memory_request request;
    enum account_kind former_kind;
    CUmemoryPool pool;
    struct pool_place place; /* where it is counted, or of host memory */
    struct pool_growth growth;
    bool counted;
};

/* True where the driver is to be called, and pooled_end to follow. False at the end: `result` is
 * final. */
bool pooled_begin(struct pooled *pooled) __attribute__((warn_unused_result));

/* The driver has answered `result`. `undo` frees what it allocated. */
void pooled_end(
    struct pooled *pooled, const CUdeviceptr *dptr, __typeof__(cuda.cuMemFreeAsync) undo);

#endif
