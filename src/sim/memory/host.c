/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the host can touch: pinned, registered and managed. None of it is device memory. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/mman.h>

#include "sim/cuda/cuda_sim.h"

static CUresult host_create(
    uint64_t bytes, enum allocation_kind kind, unsigned flags, uint64_t *ret_address)
{
    struct context *context = context_current();
    struct allocation *allocation;
    void *mapped;
    CUresult r;

    if (bytes > UINT64_MAX / 4)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapped = mmap(NULL, round_up(bytes, 4096), PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = allocation_add((struct allocation){.address = (uintptr_t)mapped,
                           .bytes = bytes,
                           .kind = kind,
                           .context = context,
                           .device = context->device,
                           .host_flags = flags},
        &allocation);
    if (r != CUDA_SUCCESS)
        munmap(mapped, round_up(bytes, 4096));
    else
        *ret_address = allocation->address;
    return r;
}

CUresult sim_cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    CUDA_LOCKED;
    uint64_t got;
    CUresult r;

    if (!address || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    r = host_create(bytes, ALLOCATION_MANAGED, flags, &got);
    if (r == CUDA_SUCCESS)
        *address = got;
    return r;
}

CUresult sim_cuMemHostAlloc(void **address, size_t bytes, unsigned int flags)
{
    CUDA_LOCKED;
    uint64_t got;
    CUresult r;

    if (!address || !bytes || flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    r = host_create(bytes, ALLOCATION_HOST, flags, &got);
    if (r == CUDA_SUCCESS)
        *address = (void *)(uintptr_t)got;
    return r;
}

CUresult sim_cuMemAllocHost_v2(void **address, size_t bytes)
{
    return sim_cuMemHostAlloc(address, bytes, 0);
}

CUresult sim_cuMemFreeHost(void *address)
{
    CUDA_LOCKED;
    struct allocation *allocation = allocation_at((uintptr_t)address);

    if (!allocation || allocation->kind != ALLOCATION_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    memory_destroy(allocation);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemHostRegister_v2(void *address, size_t bytes, unsigned int flags)
{
    CUDA_LOCKED;
    CUresult r;

    if (!address || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    r = allocation_add((struct allocation){.address = (uintptr_t)address,
                           .bytes = bytes,
                           .kind = ALLOCATION_REGISTERED,
                           .context = context_current(),
                           .device = context_current()->device,
                           .host_flags = flags},
        NULL);
    return r == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : r;
}

CUresult sim_cuMemHostUnregister(void *address)
{
    CUDA_LOCKED;
    struct allocation *allocation = allocation_at((uintptr_t)address);

    if (!allocation || allocation->kind != ALLOCATION_REGISTERED)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    allocation_forget(allocation);
    return CUDA_SUCCESS;
}

static const struct allocation *host_find(const void *address)
{
    const struct allocation *allocation = allocation_find((uintptr_t)address);

    return allocation && (allocation->kind == ALLOCATION_HOST ||
                             allocation->kind == ALLOCATION_REGISTERED)
               ? allocation
               : NULL;
}

CUresult sim_cuMemHostGetDevicePointer_v2(CUdeviceptr *ret, void *address, unsigned int flags)
{
    CUDA_LOCKED;

    if (!ret || flags || !host_find(address))
        return CUDA_ERROR_INVALID_VALUE;
    *ret = (uintptr_t)address;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemHostGetFlags(unsigned int *flags, void *address)
{
    CUDA_LOCKED;
    const struct allocation *allocation = host_find(address);

    if (!flags || !allocation)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = allocation->host_flags;
    return CUDA_SUCCESS;
}

static CUresult managed_check(CUdeviceptr address, size_t bytes)
{
    const struct allocation *allocation = allocation_find(address);

    bool managed = allocation &&
                   (allocation->kind == ALLOCATION_MANAGED || allocation->place == PLACE_MANAGED);

    return bytes && managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)
{
    CUDA_LOCKED;

    (void)advice;
    (void)device;
    return managed_check(address, bytes);
}

CUresult sim_cuMemAdvise_v2(
    CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
    CUDA_LOCKED;

    (void)advice;
    (void)location;
    return managed_check(address, bytes);
}

CUresult sim_cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream)
{
    CUDA_LOCKED;

    (void)device;
    (void)stream;
    return managed_check(address, bytes);
}

CUresult sim_cuMemPrefetchAsync_v2(
    CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream)
{
    CUDA_LOCKED;

    (void)location;
    (void)flags;
    (void)stream;
    return managed_check(address, bytes);
}
