/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharing between processes by cuIpc handles, as the driver does it (seen on H200, driver
 * 580.159.04): the exporter shares its object, the importer duplicates it, no new memory is taken.
 * Contents are not shared.
 */
#include <string.h>
#include <unistd.h>

#include "sim/cuda/cuda_sim.h"

#define HANDLE_MAGIC 0x3143504955504756u

struct ipc_handle {
    uint64_t magic;
    uint64_t bytes;
    uint64_t offset; /* of a small allocation in its block */
    uint64_t object_bytes;
    uint32_t client;
    uint32_t object;
    uint32_t device;
    int32_t pid;
};

_Static_assert(sizeof(struct ipc_handle) <= sizeof(CUipcMemHandle), "fits the program's handle");

CUresult sim_cuIpcGetMemHandle(CUipcMemHandle *ret, CUdeviceptr address)
{
    CUDA_LOCKED;
    const struct allocation *allocation = allocation_find(address);
    struct ipc_handle handle = {.magic = HANDLE_MAGIC, .client = rm_client(), .pid = getpid()};
    struct rm_object object;
    uint64_t base = 0;
    CUresult r;

    if (!ret || !allocation ||
        (allocation->kind != ALLOCATION_DEVICE && allocation->kind != ALLOCATION_BLOCK))
        return CUDA_ERROR_INVALID_VALUE;
    object = allocation->block ? memory_block_object(allocation->block, &base) : allocation->rm;
    r = rm_memory_share(&object);
    if (r != CUDA_SUCCESS)
        return r;
    handle.offset = allocation->block ? allocation->address - base : 0;
    handle.object = object.handle;
    handle.object_bytes = object.bytes;
    handle.bytes = allocation->bytes;
    handle.device = allocation->device->index;
    memset(ret, 0, sizeof *ret);
    memcpy(ret, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

static struct device *device_by_index(unsigned index)
{
    for (int i = 0; i < device_count(); i++) {
        if (device_of(i)->index == index)
            return device_of(i);
    }
    return NULL;
}

CUresult sim_cuIpcOpenMemHandle_v2(CUdeviceptr *ret, CUipcMemHandle raw, unsigned int flags)
{
    CUDA_LOCKED;
    struct ipc_handle handle;
    struct allocation allocation = {
        .kind = ALLOCATION_IPC, .context = context_current(), .refs = 1};
    uint64_t base;
    CUresult r;

    memcpy(&handle, &raw, sizeof handle);
    if (!ret || handle.magic != HANDLE_MAGIC || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (handle.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    allocation.device = device_by_index(handle.device);
    if (!allocation.device)
        return CUDA_ERROR_INVALID_DEVICE;
    r = rm_memory_dup(
        allocation.device, handle.client, handle.object, handle.object_bytes, &allocation.rm);
    if (r != CUDA_SUCCESS)
        return r == CUDA_ERROR_OUT_OF_MEMORY ? r : CUDA_ERROR_INVALID_HANDLE;
    base = address_take(handle.object_bytes, MEMORY_PAGE_BYTES);
    allocation.address = base + handle.offset;
    allocation.bytes = handle.bytes;
    r = base ? allocation_add(allocation, NULL) : CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
        rm_memory_destroy(allocation.device, &allocation.rm);
        return r;
    }
    *ret = allocation.address;
    return CUDA_SUCCESS;
}

CUresult sim_cuIpcOpenMemHandle(CUdeviceptr *ret, CUipcMemHandle handle, unsigned int flags)
{
    return sim_cuIpcOpenMemHandle_v2(ret, handle, flags);
}

CUresult sim_cuIpcCloseMemHandle(CUdeviceptr address)
{
    CUDA_LOCKED;
    struct allocation *allocation = allocation_at(address);

    if (!allocation || allocation->kind != ALLOCATION_IPC)
        return CUDA_ERROR_INVALID_VALUE;
    memory_destroy(allocation);
    return CUDA_SUCCESS;
}
