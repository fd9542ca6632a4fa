/* SPDX-License-Identifier: Apache-2.0 */
/* The attempts of an allocation. */
#include "memory/allocation.h"

#include "container/container.h"
#include "container/device.h"
#include "memory/pools.h"

struct allocation allocation_here(uint64_t bytes, enum account_kind kind)
{
    int device = CONTAINER_DEVICE_UNKNOWN;
    CUresult identified = device_identify_current(&device);
    return allocation_on(identified, device, bytes, kind);
}

struct allocation allocation_on(
    CUresult identified, int device, uint64_t bytes, enum account_kind kind)
{
    return (struct allocation){
        .result = identified, .device = device, .bytes = bytes, .kind = kind};
}

/* Pools release nothing for a module. */
static bool may_attempt(struct allocation *allocation)
{
    return !(allocation->kind == ACCOUNT_MODULE && allocation->attempts) &&
           pools_allow_attempt(&allocation->attempts, allocation->result, -1);
}

bool allocation_begin(struct allocation *allocation)
{
    while (may_attempt(allocation)) {
        if (memory_begin(
                &allocation->request, allocation->device, allocation->bytes, allocation->kind) == 0)
            return true;
        allocation->result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return false;
}

void allocation_end(struct allocation *allocation, enum memory_handle type, uint64_t handle)
{
    memory_end(&allocation->request, allocation->result == CUDA_SUCCESS, type, handle);
}
