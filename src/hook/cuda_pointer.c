/* SPDX-License-Identifier: Apache-2.0 */
/* What a program is told of an address. Memory of cuMemAlloc that is made of mappings
 * (vmem/vmem.h) is told as the driver tells of its own: on the device, with the bounds, the context
 * and the number of the allocation, wherever it lies. */
#include "hook/hook.h"
#include "vmem/park.h"
#include "vmem/vmem.h"
#include "vmem/world.h"

#include <stddef.h>

CUresult hook_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    hook_enter();
    struct vmem_allocation allocation;
    if (!vmem_find(dptr, &allocation))
        return vmem_has(dptr) ? CUDA_ERROR_NOT_FOUND
                              : cuda.cuMemGetAddressRange_v2(pbase, psize, dptr);
    if (pbase)
        *pbase = allocation.address;
    if (psize)
        *psize = (size_t)allocation.bytes;
    return CUDA_SUCCESS;
}

/* False where the driver's answer is the right one. */
static bool answer(const struct vmem_allocation *allocation, CUdeviceptr address,
    CUpointer_attribute attribute, void *data, CUresult *ret_result)
{
    *ret_result = CUDA_SUCCESS;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = (CUcontext)(uintptr_t)allocation->context;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = address;
        return true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *ret_result = CUDA_ERROR_INVALID_VALUE;
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = allocation->id;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)data = 0;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = allocation->ordinal;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = allocation->address;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = (size_t)allocation->bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)data = 1;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = NULL;
        return true;
    default:
        return false;
    }
}

CUresult hook_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    hook_enter();
    struct vmem_allocation allocation;
    CUresult result;
    if (data && vmem_find(ptr, &allocation) && answer(&allocation, ptr, attribute, data, &result))
        return result;
    if (data && !vmem_find(ptr, &allocation) && vmem_has(ptr))
        return CUDA_ERROR_INVALID_VALUE;
    bool entered = world_enter_to_ask(); /* a mapping on its way is none */
    return world_left(entered, cuda.cuPointerGetAttribute(data, attribute, ptr));
}

/* What the driver says of an address that nothing has. */
static void answer_none(CUpointer_attribute attribute, void *data)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = -2;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)data = 0;
        break;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)data = NULL;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(uint64_t *)data = 0;
        break;
    default:
        break;
    }
}

/* Where one has no answer the driver writes 0 and goes on. */
CUresult hook_cuPointerGetAttributes(
    unsigned int numAttributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr)
{
    hook_enter();
    struct vmem_allocation allocation;
    bool entered = world_enter_to_ask();
    CUresult own, result = world_left(
                      entered, cuda.cuPointerGetAttributes(numAttributes, attributes, data, ptr));
    if (result != CUDA_SUCCESS)
        return result;
    bool found = vmem_find(ptr, &allocation), none = !found && vmem_has(ptr);
    for (unsigned i = 0; i < numAttributes && (found || none); i++) {
        if (found)
            (void)answer(&allocation, ptr, attributes[i], data[i], &own);
        else
            answer_none(attributes[i], data[i]);
    }
    return result;
}

/* Copies and fills of memory on the card wait as it is (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is 1 from
 * the start), and a mapping's cannot be set (H100, driver 580): to ask for what holds is no error.
 * Whoever has another device reach memory asks for it ("GPUDirect RDMA", NVIDIA), so the memory is
 * not moved from then on. */
CUresult hook_cuPointerSetAttribute(
    const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    hook_enter();
    struct vmem_allocation allocation;
    unsigned holds = 0;
    bool entered = world_enter_to_ask();
    CUresult result = cuda.cuPointerSetAttribute(value, attribute, ptr);
    bool asks = result == CUDA_ERROR_NOT_SUPPORTED &&
                attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && *(const unsigned *)value &&
                vmem_find(ptr, &allocation);
    CUresult told = asks ? cuda.cuPointerGetAttribute(&holds, attribute, ptr) : result;
    if (holds) {
        vmem_keep_in_place(ptr);
        park_forbid("the program has memory that it has prepared for RDMA");
    }
    world_leave(entered);
    return asks && told == CUDA_SUCCESS && !holds ? result : told;
}
