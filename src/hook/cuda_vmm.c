/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: a handle's memory lives until its last reference and mapping are gone.
 */
#include "hook/hook.h"
#include "memory/allocation.h"
#include "memory/mappings.h"
#include "memory/pools.h"
#include "rm/rm_export.h"
#include "vmem/park.h"
#include "vmem/vmem.h"
#include "vmem/world.h"

#include <stddef.h>

/* Memory of the host, and of other devices than the current one, goes by its property. A kind of
 * location that we do not know is taken for the current device. */
static CUresult identify_property(const CUmemAllocationProp *prop, int *ret_device)
{
    *ret_device = CONTAINER_DEVICE_UNKNOWN;
    if (!prop || pools_kind(prop->type, &prop->location) == POOL_HOST)
        return CUDA_SUCCESS;
    return prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE
               ? device_identify(prop->location.id, ret_device)
               : device_identify_current(ret_device);
}

CUresult hook_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
    const CUmemAllocationProp *prop, unsigned long long flags)
{
    hook_enter();
    int device;
    CUresult identified = identify_property(prop, &device);
    struct allocation memory = allocation_on(identified, device, size, ACCOUNT_BUFFER);
    while (allocation_begin(&memory)) {
        memory.result = cuda.cuMemCreate(handle, size, prop, flags);
        allocation_end(&memory, MEMORY_VMM, handle ? *handle : 0);
    }
    if (memory.result == CUDA_SUCCESS && pools_kind(prop->type, &prop->location) == POOL_HOST)
        park_forbid("the program has made host memory by cuMemCreate");
    return memory.result;
}

CUresult hook_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_VMM, handle);
    CUresult result = cuda.cuMemRelease(handle);
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_VMM, handle);
    return result;
}

CUresult hook_cuMemExportToShareableHandle(void *shareableHandle,
    CUmemGenericAllocationHandle handle, CUmemAllocationHandleType handleType,
    unsigned long long flags)
{
    hook_enter();
    CUresult result = cuda.cuMemExportToShareableHandle(shareableHandle, handle, handleType, flags);
    if (result == CUDA_SUCCESS && memory_ledger() == MEMORY_LEDGER_API)
        memory_mark_exported(MEMORY_VMM, handle,
            rm_export_to(handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                             ? *(int *)shareableHandle
                             : -1));
    return result;
}

CUresult hook_cuMemImportFromShareableHandle(
    CUmemGenericAllocationHandle *handle, void *osHandle, CUmemAllocationHandleType shHandleType)
{
    hook_enter();
    int device = CONTAINER_DEVICE_UNKNOWN;
    bool counted = memory_ledger() == MEMORY_LEDGER_API;
    CUresult result = counted ? device_identify_current(&device) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = cuda.cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
    if (result == CUDA_SUCCESS)
        park_forbid("the program has imported memory, which may be the host's");
    if (result == CUDA_SUCCESS && counted)
        memory_add_import(MEMORY_VMM, *handle, device);
    return result;
}

CUresult hook_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    hook_enter();
    struct vmem_allocation allocation; /* cuMemAlloc's memory has no handle */
    if (vmem_find((uintptr_t)addr, &allocation))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuda.cuMemRetainAllocationHandle(handle, addr);
    if (result == CUDA_SUCCESS)
        memory_retain(MEMORY_VMM, *handle);
    return result;
}

CUresult hook_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    hook_enter();
    CUresult result = cuda.cuMemMap(ptr, size, offset, handle, flags);
    if (result == CUDA_SUCCESS && memory_ledger() == MEMORY_LEDGER_API) {
        memory_retain(MEMORY_VMM, handle);
        mappings_add(&(struct mapping){ptr, size, handle});
    }
    return result;
}

/* cuMemAlloc's memory is not unmapped, as it is natively none of cuMemMap's. */
CUresult hook_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    hook_enter();
    struct vmem_allocation allocation;
    if (vmem_find(ptr, &allocation) || vmem_has(ptr))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuda.cuMemUnmap(ptr, size);
    struct mapping mapping;
    for (CUdeviceptr at = ptr;
         result == CUDA_SUCCESS && at - ptr < size && mappings_take(at, &mapping);
         at += mapping.bytes) {
        struct memory_record record = memory_take(MEMORY_VMM, mapping.handle);
        memory_taken(&record, true, MEMORY_VMM, mapping.handle);
    }
    return result;
}

/* base: of the allocation that the range lies in, where it is not one of mappings. */
static void mark_range(CUdeviceptr address, size_t bytes, CUdeviceptr base, int fd)
{
    struct rm_export_fd to = rm_export_to(fd);
    to.is_dmabuf = true;
    CUdeviceptr end = address;
    struct mapping mapping;
    for (; end - address < bytes && mappings_find(end, &mapping);
         end = mapping.address + mapping.bytes)
        memory_mark_exported(MEMORY_VMM, mapping.handle, to);
    if (end == address && !vmem_mark_exported(address, to))
        memory_mark_exported(MEMORY_POINTER, base, to);
}

/* The driver finds no range of an address in memory of the host, which is not counted. */
static CUresult find_base(CUdeviceptr address, CUdeviceptr *ret_base)
{
    *ret_base = address;
    if (memory_ledger() != MEMORY_LEDGER_API)
        return CUDA_SUCCESS;
    CUresult result = cuda.cuMemGetAddressRange_v2(ret_base, NULL, address);
    bool is_none = result == CUDA_ERROR_NOT_FOUND || result == CUDA_ERROR_INVALID_VALUE;
    return is_none ? CUDA_SUCCESS : result;
}

/* A dma-buf keeps the memory when all else has let go of it. */
CUresult hook_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
    CUmemRangeHandleType handleType, unsigned long long flags)
{
    hook_enter();
    CUdeviceptr base;
    bool entered = world_enter(); /* no memory moves between the export and the note of it */
    CUresult result = find_base(dptr, &base);
    if (result == CUDA_SUCCESS)
        result = cuda.cuMemGetHandleForAddressRange(handle, dptr, size, handleType, flags);
    if (result == CUDA_SUCCESS && handleType == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) {
        if (memory_ledger() == MEMORY_LEDGER_API)
            mark_range(dptr, size, base, *(int *)handle);
        else
            vmem_keep_in_place(dptr);
    }
    return world_left(entered, result);
}
