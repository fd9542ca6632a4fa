/* SPDX-License-Identifier: Apache-2.0 */
/* Where pools lie: which locations there are, and each one's default and current pool. */
#include "sim/memory/pool.h"

#include <stdlib.h>

/* Pools of a NUMA node came with CUDA 12.2, of the whole host with 12.6, of managed memory with
 * 13.0. */
#define SINCE_HOST 12060
#define SINCE_HOST_NUMA 12020
#define SINCE_MANAGED 13000

/* The pretend machine has one NUMA node. */
static CUresult host_place(const CUmemLocation *location)
{
    bool node = location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;

    if (sim_cuda_version() < (node ? SINCE_HOST_NUMA : SINCE_HOST))
        return CUDA_ERROR_NOT_SUPPORTED;
    return node && location->id ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult place_of(CUmemAllocationType type, const CUmemLocation *location,
    enum memory_place *ret_place, struct device **ret_device)
{
    bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED && sim_cuda_version() >= SINCE_MANAGED;
    CUresult r = CUDA_SUCCESS;

    *ret_device = NULL;
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED && !managed)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_place = managed                                         ? PLACE_MANAGED
                 : location->type == CU_MEM_LOCATION_TYPE_DEVICE ? PLACE_DEVICE
                                                                 : PLACE_HOST;
    switch ((int)location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *ret_device = device_of(location->id);
        return *ret_device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        r = host_place(location);
        return r;
    case CU_MEM_LOCATION_TYPE_NONE:
        return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

bool place_is_same(const CUmemLocation *one, const CUmemLocation *other)
{
    bool numbered =
        one->type == CU_MEM_LOCATION_TYPE_DEVICE || one->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;

    return one->type == other->type && (!numbered || one->id == other->id);
}

/* The places beside the devices' own. */
struct place {
    struct place *next;
    struct pool *default_pool;
    struct pool *current_pool;
};

static struct place *places;

static bool pool_is_of(
    const struct pool *pool, CUmemAllocationType type, const CUmemLocation *where)
{
    return pool->type == type && place_is_same(&pool->location, where);
}

/* Made when first asked for. */
static CUresult place_find(
    CUmemAllocationType type, const CUmemLocation *location, struct place **ret_place)
{
    struct place *place = places;
    CUresult r;

    while (place && !pool_is_of(place->default_pool, type, location))
        place = place->next;
    *ret_place = place;
    if (place)
        return CUDA_SUCCESS;
    place = calloc(1, sizeof *place);
    if (!place)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = pool_create(type, location, &place->default_pool);
    if (r != CUDA_SUCCESS) {
        free(place);
        return r;
    }
    place->default_pool->is_default = true;
    place->current_pool = place->default_pool;
    place->next = places;
    places = *ret_place = place;
    return CUDA_SUCCESS;
}

/* The two pools of a location: ret_default is that which it began with. */
static CUresult place_pools(CUmemLocation *location, CUmemAllocationType type,
    struct pool **ret_default, struct pool ***ret_current)
{
    struct device *device;
    enum memory_place kind;
    struct place *place;
    CUresult r = location ? place_of(type, location, &kind, &device) : CUDA_ERROR_INVALID_VALUE;

    if (r == CUDA_SUCCESS && kind == PLACE_DEVICE) {
        *ret_default = device->default_pool;
        *ret_current = &device->current_pool;
        return CUDA_SUCCESS;
    }
    if (r == CUDA_SUCCESS)
        r = place_find(type, location, &place);
    if (r == CUDA_SUCCESS) {
        *ret_default = place->default_pool;
        *ret_current = &place->current_pool;
    }
    return r;
}

void pool_leave_places(const struct pool *pool)
{
    for (int i = 0; i < device_count(); i++) {
        struct device *device = device_of(i);

        if (device->current_pool == pool)
            device->current_pool = device->default_pool;
    }
    for (struct place *place = places; place; place = place->next) {
        if (place->current_pool == pool)
            place->current_pool = place->default_pool;
    }
}

CUresult sim_cuMemGetDefaultMemPool(
    CUmemoryPool *ret, CUmemLocation *location, CUmemAllocationType type)
{
    CUDA_LOCKED;
    struct pool *found;
    struct pool **current;
    CUresult r = ret ? place_pools(location, type, &found, &current) : CUDA_ERROR_INVALID_VALUE;

    if (r == CUDA_SUCCESS)
        *ret = (CUmemoryPool)found;
    return r;
}

CUresult sim_cuMemGetMemPool(CUmemoryPool *ret, CUmemLocation *location, CUmemAllocationType type)
{
    CUDA_LOCKED;
    struct pool *first;
    struct pool **current;
    CUresult r = ret ? place_pools(location, type, &first, &current) : CUDA_ERROR_INVALID_VALUE;

    if (r == CUDA_SUCCESS)
        *ret = (CUmemoryPool)*current;
    return r;
}

CUresult sim_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool handle)
{
    CUDA_LOCKED;
    struct pool *pool = pool_of(handle);
    struct pool *first;
    struct pool **current;
    CUresult r = place_pools(location, type, &first, &current);

    if (r == CUDA_SUCCESS && (!pool || !pool_is_of(pool, type, location)))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *current = pool;
    return r;
}

CUresult sim_cuDeviceGetDefaultMemPool(CUmemoryPool *ret, CUdevice ordinal)
{
    const struct device *device = device_of(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = (CUmemoryPool)device->default_pool;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetMemPool(CUmemoryPool *ret, CUdevice ordinal)
{
    CUDA_LOCKED;
    const struct device *device = device_of(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = (CUmemoryPool)device->current_pool;
    return CUDA_SUCCESS;
}

/* "Must be local to the specified device": of managed memory that prefers it, too. Whether a driver
 * takes such a pool here was not seen. */
CUresult sim_cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle)
{
    CUDA_LOCKED;
    struct device *device = device_of(ordinal);
    struct pool *pool = pool_of(handle);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!pool || pool->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    device->current_pool = pool;
    return CUDA_SUCCESS;
}

/* Each reaches its own memory, and managed memory is reached from everywhere. */
CUresult sim_cuMemPoolGetAccess(
    CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location)
{
    CUDA_LOCKED;
    const struct pool *pool = pool_of(handle);
    bool host = location && location->type != CU_MEM_LOCATION_TYPE_DEVICE;
    bool reached;

    if (!flags || !pool || !location)
        return CUDA_ERROR_INVALID_VALUE;
    reached = pool->place == PLACE_HOST ? host : !host && pool->device == device_of(location->id);
    *flags = reached || pool->place == PLACE_MANAGED ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                     : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
