/* SPDX-License-Identifier: Apache-2.0 */
/* What a program may ask of an address: cuPointerGetAttribute and its plural. */
#include <string.h>

#include "sim/cuda/cuda_sim.h"

static bool on_host(const struct allocation *allocation)
{
    return allocation->kind == ALLOCATION_HOST || allocation->kind == ALLOCATION_REGISTERED ||
           allocation->place == PLACE_HOST;
}

/* A mapping on the card says yes, and cannot be told otherwise (H100, driver 580). */
static bool syncs_memops(const struct allocation *allocation)
{
    bool on_card = allocation->kind == ALLOCATION_MAPPING && allocation->place == PLACE_DEVICE;

    return on_card || allocation->sync_memops;
}

/* A mapping's is the range that was reserved (H100, driver 580). */
static struct vmm_range range_of(const struct allocation *allocation)
{
    if (allocation->kind == ALLOCATION_MAPPING)
        return vmm_reserved(allocation->address);
    return (struct vmm_range){allocation->address, allocation->bytes};
}

static CUresult pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address,
    const struct allocation *allocation)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = (CUcontext)allocation->context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = on_host(allocation) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (address_is_device(address))
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)(uintptr_t)address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)data = syncs_memops(allocation);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = allocation->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data =
            allocation->kind == ALLOCATION_MANAGED || allocation->place == PLACE_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = allocation->device->ordinal;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)data =
            allocation->kind == ALLOCATION_DEVICE || allocation->kind == ALLOCATION_BLOCK;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = range_of(allocation).address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = range_of(allocation).bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = (CUmemoryPool)allocation->pool;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult sim_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    CUDA_LOCKED;
    const struct allocation *allocation = allocation_find(address);

    if (!data || !allocation)
        return CUDA_ERROR_INVALID_VALUE;
    return pointer_attribute(data, attribute, address, allocation);
}

CUresult sim_cuPointerGetAttributes(
    unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address)
{
    CUDA_LOCKED;
    const struct allocation *allocation = allocation_find(address);

    if (!count || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        CUresult r;

        if (!allocation) {
            /* An unknown address is no error here: each answer is its kind of nothing. */
            if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
                *(int *)data[i] = -2;
            else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
                     attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED)
                *(unsigned *)data[i] = 0;
            else if (attributes[i] == CU_POINTER_ATTRIBUTE_CONTEXT ||
                     attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
                     attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER)
                *(void **)data[i] = NULL;
            continue;
        }
        r = pointer_attribute(data[i], attributes[i], address, allocation);
        if (r != CUDA_SUCCESS && r != CUDA_ERROR_INVALID_VALUE)
            return r;
        if (r == CUDA_ERROR_INVALID_VALUE)
            *(void **)data[i] = NULL;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuPointerSetAttribute(
    const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    CUDA_LOCKED;
    struct allocation *allocation = allocation_find(address);

    if (!value || !allocation || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    if (allocation->kind == ALLOCATION_MAPPING)
        return CUDA_ERROR_NOT_SUPPORTED;
    allocation->sync_memops = *(const unsigned *)value != 0;
    return CUDA_SUCCESS;
}
