/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes kept for allocations that were written. */
#include "sim/cuda/cuda_sim.h"

#include <sys/mman.h>

static char *contents_map(uint64_t bytes)
{
    void *mapped = mmap(
        NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return mapped == MAP_FAILED ? NULL : mapped;
}

char *contents_get(char **contents, uint64_t bytes)
{
    if (!*contents)
        *contents = contents_map(bytes);
    return *contents;
}

void contents_drop(char *contents, uint64_t bytes)
{
    if (contents)
        munmap(contents, bytes);
}

CUresult contents_of(uint64_t address, uint64_t bytes, char **ret_host)
{
    struct allocation *allocation = allocation_find(address);
    char *base;

    *ret_host = NULL;
    if (!allocation) {
        if (address_is_device(address) || !address)
            return CUDA_ERROR_INVALID_VALUE;
        *ret_host = (char *)(uintptr_t)address;
        return CUDA_SUCCESS;
    }
    if (allocation->vmm)
        return vmm_contents(address, bytes, ret_host);
    if (!address_is_device(address)) {
        *ret_host = (char *)(uintptr_t)address;
        return CUDA_SUCCESS;
    }
    if (bytes > allocation->bytes - (address - allocation->address))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > CONTENTS_KEPT_BYTES)
        return CUDA_SUCCESS;
    base = contents_get(&allocation->contents, allocation->bytes);
    *ret_host = base ? base + (address - allocation->address) : NULL;
    return CUDA_SUCCESS;
}
