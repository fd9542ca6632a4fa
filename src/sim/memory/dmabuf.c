/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory as a dma-buf: the kernel holds the memory itself until the last descriptor of the
 * dma-buf is closed. What the driver asks the kernel for, by objects and their parts, is as in the
 * open kernel modules 580.95.05; by which calls libcuda prepares it was not looked into.
 */
#include "abi/rm.h"
#include "sim/cuda/cuda_sim.h"

#define PAGE_BYTES 4096u /* of the host */

/* The object and the place in it where the address lies; bytes that follow it there. */
static uint64_t object_at(uint64_t address, struct rm_export_dmabuf *params, unsigned at)
{
    const struct allocation *allocation = allocation_find(address);
    struct rm_object object;
    uint64_t base;

    if (!allocation)
        return 0;
    base = allocation->address;
    switch (allocation->kind) {
    case ALLOCATION_DEVICE:
        object = allocation->rm;
        break;
    case ALLOCATION_BLOCK:
        object = memory_block_object(allocation->block, &base);
        break;
    case ALLOCATION_MAPPING:
        object = vmm_object(allocation->vmm);
        break;
    default:
        return 0;
    }
    params->objects[at] = object.handle;
    params->offsets[at] = address - base;
    return allocation->address + allocation->bytes - address;
}

/* One allocation, or mappings that follow each other without a hole. */
static CUresult list_objects(uint64_t address, uint64_t bytes, struct rm_export_dmabuf *params)
{
    while (bytes) {
        uint64_t there =
            params->count < RM_DMABUF_OBJECTS_MAX ? object_at(address, params, params->count) : 0;

        if (!there)
            return CUDA_ERROR_INVALID_VALUE;
        there = there < bytes ? there : bytes;
        params->sizes[params->count++] = there;
        address += there;
        bytes -= there;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuMemGetHandleForAddressRange(void *ret, CUdeviceptr address, size_t bytes,
    CUmemRangeHandleType type, unsigned long long flags)
{
    CUDA_LOCKED;
    struct rm_export_dmabuf params = {.fd = -1, .client = rm_client(), .total_bytes = bytes};
    CUresult r;

    if (!ret || !bytes || (address | bytes) % PAGE_BYTES || flags > 1 ||
        type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
        return CUDA_ERROR_INVALID_VALUE;
    r = list_objects(address, bytes, &params);
    params.total_objects = params.count;
    if (r == CUDA_SUCCESS)
        r = rm_dmabuf(&params);
    if (r == CUDA_SUCCESS)
        *(int *)ret = params.fd;
    return r;
}
