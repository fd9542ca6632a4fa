/* SPDX-License-Identifier: Apache-2.0 */
/* The loop around a driver call that allocates device memory:
 *
 *     struct allocation allocation = allocation_here(bytes, ACCOUNT_BUFFER);
 *     while (allocation_begin(&allocation)) {
 *         allocation.result = cuda.cuMemAlloc_v2(&pointer, bytes);
 *         allocation_end(&allocation, MEMORY_POINTER, pointer);
 *     }
 *     return allocation.result;
 *
 * The request is judged and reserved before the call, and recorded or given back after it. If there
 * is no room, the pools of the current device release what they hold unused, and the loop goes
 * round a second time. Any thread. */
#ifndef VGPU_MEMORY_ALLOCATION_H
#define VGPU_MEMORY_ALLOCATION_H

#include "abi/cuda.h"
#include "memory/memory.h"

#include <stdbool.h>
#include <stdint.h>

struct allocation {
    CUresult result; /* the program's answer */
    int device;      /* the region's index, or CONTAINER_DEVICE_UNKNOWN */
    uint64_t bytes;  /* what the driver takes at least; 0: not known */
    enum account_kind kind;
    unsigned attempts;
    struct memory_request request; /* of the last attempt */
};

/* On the current device. */
struct allocation allocation_here(uint64_t bytes, enum account_kind kind);

/* On `device`. `identified` is the answer to the question which one that is; if it is not
 * CUDA_SUCCESS, it is the program's too, and the driver is not called. */
struct allocation allocation_on(
    CUresult identified, int device, uint64_t bytes, enum account_kind kind);

/* True where the driver is to be called, and allocation_end to follow. False at the end: `result`
 * is final. */
bool allocation_begin(struct allocation *allocation) __attribute__((warn_unused_result));

/* The driver has answered `result`; after CUDA_SUCCESS `handle` stands for the memory. */
void allocation_end(struct allocation *allocation, enum memory_handle type, uint64_t handle);

#endif
