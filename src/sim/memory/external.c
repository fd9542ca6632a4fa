/* SPDX-License-Identifier: Apache-2.0 */
/* External memory by descriptor: another handle on memory that was exported, no new memory. */
#include <stdlib.h>
#include <unistd.h>

#include "sim/cuda/cuda_sim.h"

struct external {
    struct object object;
    struct device *device;
    struct rm_object rm;
};

CUresult sim_cuImportExternalMemory(
    CUexternalMemory *ret, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
    CUDA_LOCKED;
    struct external *external;
    unsigned index;
    uint64_t bytes;
    CUresult r;

    if (!ret || !desc || !desc->size)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    r = rm_export_describe(desc->handle.fd, &index, &bytes);
    if (r != CUDA_SUCCESS || bytes < desc->size)
        return CUDA_ERROR_INVALID_VALUE;
    external = calloc(1, sizeof *external);
    if (!external)
        return CUDA_ERROR_OUT_OF_MEMORY;
    external->device = context_current()->device;
    r = index == external->device->index
            ? rm_memory_import(external->device, desc->handle.fd, bytes, &external->rm)
            : CUDA_ERROR_INVALID_DEVICE;
    if (r != CUDA_SUCCESS) {
        free(external);
        return r;
    }
    /* As the driver documents: the descriptor is its own from here on. */
    close(desc->handle.fd);
    object_add(&external->object, OBJECT_EXTERNAL_MEMORY);
    *ret = (CUexternalMemory)external;
    return CUDA_SUCCESS;
}

CUresult sim_cuExternalMemoryGetMappedBuffer(
    CUdeviceptr *ret, CUexternalMemory handle, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
    CUDA_LOCKED;
    const struct external *external = object_find(handle, OBJECT_EXTERNAL_MEMORY);
    struct allocation allocation = {.kind = ALLOCATION_EXTERNAL, .context = context_current()};
    CUresult r;

    if (!external)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ret || !desc || !desc->size || desc->offset > external->rm.bytes ||
        desc->size > external->rm.bytes - desc->offset)
        return CUDA_ERROR_INVALID_VALUE;
    allocation.device = external->device;
    allocation.bytes = desc->size;
    allocation.address = address_take(desc->size, MEMORY_PAGE_BYTES);
    r = allocation.address ? allocation_add(allocation, NULL) : CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS)
        return r;
    rm_memory_map(&external->rm, true);
    *ret = allocation.address;
    return CUDA_SUCCESS;
}

CUresult sim_cuDestroyExternalMemory(CUexternalMemory handle)
{
    CUDA_LOCKED;
    struct external *external = object_find(handle, OBJECT_EXTERNAL_MEMORY);

    if (!external)
        return CUDA_ERROR_INVALID_HANDLE;
    object_remove(&external->object);
    rm_memory_destroy(external->device, &external->rm);
    free(external);
    return CUDA_SUCCESS;
}
