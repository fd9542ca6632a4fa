/* SPDX-License-Identifier: Apache-2.0 */
/* What a program is told of its device's memory: the slice. */
#include "hook/hook.h"
#include "memory/pools.h"
#include "vmem/vmem.h"

#include <limits.h>
#include <stddef.h>

static unsigned int narrow(uint64_t bytes)
{
    return bytes > UINT_MAX ? UINT_MAX : (unsigned int)bytes;
}

/* The slice's share of the card's figures, which the driver has just told. */
static CUresult view_current(size_t *free, size_t *total)
{
    uint64_t shown_total, shown_used, shown_free;
    int device;
    CUresult result = device_identify_current(&device);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t card_free = *free;
    vmem_look();
    pools_refresh_current();
    /* Asked first: whether the limit may exceed the card. */
    bool spills = load_relaxed(&vmem_is_asked_for) && vmem_room_slow(card_free, 0, &shown_free);
    if (container_memory_view(device, *total, *free, &shown_total, &shown_used, &shown_free)) {
        *total = (size_t)shown_total;
        if (spills)
            (void)vmem_room_slow(card_free, shown_free, &shown_free);
        *free = (size_t)shown_free;
    }
    return CUDA_SUCCESS;
}

CUresult hook_cuMemGetInfo_v2(size_t *free, size_t *total)
{
    hook_enter();
    size_t card_free, card_total;
    /* A missing argument is the driver's to judge. */
    CUresult result = cuda.cuMemGetInfo_v2(free ? &card_free : NULL, total ? &card_total : NULL);
    if (result == CUDA_SUCCESS && (!free || !total))
        result = cuda.cuMemGetInfo_v2(&card_free, &card_total);
    if (result == CUDA_SUCCESS)
        result = view_current(&card_free, &card_total);
    if (result != CUDA_SUCCESS)
        return result;
    if (free)
        *free = card_free;
    if (total)
        *total = card_total;
    return CUDA_SUCCESS;
}

CUresult hook_cuMemGetInfo(unsigned int *free, unsigned int *total)
{
    hook_enter();
    CUresult result = cuda.cuMemGetInfo(free, total);
    size_t card_free, card_total;
    if (result == CUDA_SUCCESS)
        result = cuda.cuMemGetInfo_v2(&card_free, &card_total);
    if (result == CUDA_SUCCESS)
        result = view_current(&card_free, &card_total);
    if (result != CUDA_SUCCESS)
        return result;
    if (free)
        *free = narrow(card_free);
    if (total)
        *total = narrow(card_total);
    return CUDA_SUCCESS;
}

static CUresult view_total(CUdevice dev, uint64_t card_total, uint64_t *ret_total)
{
    uint64_t total, used, free;
    int device;
    CUresult result = device_identify(dev, &device);
    if (result == CUDA_SUCCESS)
        *ret_total = container_memory_view(device, card_total, card_total, &total, &used, &free)
                         ? total
                         : card_total;
    return result;
}

CUresult hook_cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    hook_enter();
    uint64_t shown;
    CUresult result = cuda.cuDeviceTotalMem_v2(bytes, dev);
    if (result == CUDA_SUCCESS)
        result = view_total(dev, *bytes, &shown);
    if (result == CUDA_SUCCESS)
        *bytes = (size_t)shown;
    return result;
}

CUresult hook_cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
    hook_enter();
    uint64_t shown;
    size_t card_total;
    CUresult result = cuda.cuDeviceTotalMem(bytes, dev);
    if (result == CUDA_SUCCESS)
        result = cuda.cuDeviceTotalMem_v2(&card_total, dev);
    if (result == CUDA_SUCCESS)
        result = view_total(dev, card_total, &shown);
    if (result == CUDA_SUCCESS)
        *bytes = narrow(shown);
    return result;
}
