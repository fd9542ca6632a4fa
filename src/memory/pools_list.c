/* SPDX-License-Identifier: Apache-2.0 */
/* The pools that the process uses, and their allocations. */
#include "memory/pools_list.h"

#include "base/clock.h"
#include "driver/cuda.h"
#include "memory/memory.h"

#include <stddef.h>

#define USED_NS 20000               /* a look at whether another thread still asks about a pool */
#define USED_MOST_NS 10000000000ull /* it is waited for 10 s at most */

struct pool_allocation {
    struct pool *pool;
    uint64_t bytes;
};

bool pools_managed_met;

struct lock pools_lock;
struct pools_list pools = {.slab = {.object_bytes = sizeof(struct pool)},
    .allocation_slab = {.object_bytes = sizeof(struct pool_allocation)}};

void pools_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&pools_lock);
    slab_finish(&pools.slab);
    slab_finish(&pools.allocation_slab);
    map_finish(&pools.list);
    map_finish(&pools.allocations);
    pools.used = false;
    pools_managed_met = false;
}

void pools_note_use(void)
{
    if (!load_relaxed(&pools.used))
        store_relaxed(&pools.used, true);
}

static bool is_host(CUmemLocationType type)
{
    return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

enum pool_kind pools_kind(CUmemAllocationType type, const CUmemLocation *location)
{
    return type == CU_MEM_ALLOCATION_TYPE_MANAGED ? POOL_MANAGED
           : is_host(location->type)              ? POOL_HOST
                                                  : POOL_DEVICE;
}

static void note(
    CUmemoryPool pool, CUmemAllocationType type, const CUmemLocation *location, bool made)
{
    bool has_device = location->type == CU_MEM_LOCATION_TYPE_DEVICE;
    struct pool start = {.pool = pool,
        .kind = pools_kind(type, location),
        .ordinal = has_device ? location->id : -1,
        .has_device = has_device};
    if (start.kind == POOL_DEVICE && !(has_device && made))
        return;
    LOCKED_TO_END(pools_lock);
    struct pool *own =
        made || !map_get(&pools.list, (uintptr_t)pool) ? slab_take(&pools.slab) : NULL;
    if (own) {
        *own = start;
        if (map_put(&pools.list, (uintptr_t)pool, own) != 0)
            slab_give(&pools.slab, own);
    }
    if (start.kind == POOL_MANAGED)
        store_relaxed(&pools_managed_met, true);
}

void pools_note(CUmemoryPool pool, CUmemAllocationType type, const CUmemLocation *location)
{
    note(pool, type, location, true);
}

void pools_note_met(CUmemoryPool pool, CUmemAllocationType type, const CUmemLocation *location)
{
    note(pool, type, location, false);
}

/* CUDA_ERROR_INVALID_DEVICE: it is none. */
static CUresult find_default_pool(CUmemoryPool pool, CUdevice *ret_ordinal)
{
    for (CUdevice ordinal = 0; ordinal < (CUdevice)VGPU_REGION_DEVICES; ordinal++) {
        CUmemoryPool found = NULL;
        CUresult result = cuda.cuDeviceGetDefaultMemPool(&found, ordinal);
        if (result == CUDA_SUCCESS && found == pool)
            *ret_ordinal = ordinal;
        if (found == pool || (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED))
            return result;
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

void pools_note_node(const CUmemPoolProps *props)
{
    pools_note_use();
    if (pools_kind(props->allocType, &props->location) == POOL_MANAGED)
        store_relaxed(&pools_managed_met, true);
}

struct pool pools_known(CUmemoryPool pool)
{
    struct pool copy = {.ordinal = -1};
    LOCKED_TO_END(pools_lock);
    const struct pool *own = pool ? map_get(&pools.list, (uintptr_t)pool) : NULL;
    if (own)
        copy = *own;
    return copy;
}

/* While a pool without a device of its own holds nothing, it may come to be another's. */
static CUresult choose_ordinal(CUmemoryPool pool, CUdevice *ordinal)
{
    if (*ordinal >= 0 && memory_recorded_bytes(MEMORY_POOL, (uintptr_t)pool))
        return CUDA_SUCCESS;
    CUresult result = cuda.cuCtxGetDevice(ordinal);
    if (result != CUDA_SUCCESS)
        return result;
    LOCKED_TO_END(pools_lock);
    struct pool *own = map_get(&pools.list, (uintptr_t)pool);
    if (own)
        own->ordinal = *ordinal;
    return CUDA_SUCCESS;
}

static CUresult place_known(const struct pool *own, struct pool_place *ret_place)
{
    struct pool_place place = {.kind = own->kind, .ordinal = own->ordinal};
    CUresult result = CUDA_SUCCESS;
    if (own->kind == POOL_MANAGED && !own->has_device)
        result = choose_ordinal(own->pool, &place.ordinal);
    if (result == CUDA_SUCCESS)
        *ret_place = place;
    return result;
}

CUresult pools_place(CUmemoryPool pool, struct pool_place *ret_place)
{
    struct pool own = pools_known(pool);
    if (own.pool)
        return place_known(&own, ret_place);
    CUdevice ordinal = -1;
    CUresult result = pool ? find_default_pool(pool, &ordinal) : CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_ERROR_INVALID_DEVICE)
        result = cuda.cuCtxGetDevice(&ordinal);
    if (result == CUDA_SUCCESS)
        *ret_place = (struct pool_place){.kind = POOL_DEVICE, .ordinal = ordinal};
    return result;
}

CUresult pools_place_current(CUmemoryPool *ret_pool, struct pool_place *ret_place)
{
    CUmemoryPool pool = NULL;
    CUdevice ordinal = -1;
    CUresult result = cuda.cuCtxGetDevice(&ordinal);
    if (result == CUDA_SUCCESS)
        result = cuda.cuDeviceGetMemPool(&pool, ordinal);
    if (result != CUDA_SUCCESS)
        return result;
    struct pool own = pools_known(pool);
    *ret_pool = pool;
    *ret_place = (struct pool_place){.kind = POOL_DEVICE, .ordinal = ordinal};
    return own.pool ? place_known(&own, ret_place) : CUDA_SUCCESS;
}

bool pools_goes_by_stream(CUmemoryPool pool)
{
    struct pool own = pools_known(pool);
    return !pool || (own.kind == POOL_MANAGED && !own.has_device);
}

/* Where one of a destroyed pool's allocations was its last, its key in the account; else 0. */
static uint64_t forget_allocation(CUdeviceptr pointer) REQUIRES(pools_lock)
{
    struct pool_allocation *allocation = map_remove(&pools.allocations, pointer);
    if (!allocation)
        return 0;
    struct pool *own = allocation->pool;
    own->live_bytes -= allocation->bytes;
    slab_give(&pools.allocation_slab, allocation);
    if (--own->live || !own->destroyed)
        return 0;
    slab_give(&pools.slab, own);
    return (uintptr_t)own;
}

static void give_back(uint64_t key)
{
    if (!key)
        return;
    struct memory_record record = memory_take(MEMORY_POOL, key);
    memory_taken(&record, true, MEMORY_POOL, key);
}

static void put_allocation(struct pool *own, CUdeviceptr pointer, uint64_t bytes)
    REQUIRES(pools_lock)
{
    struct pool_allocation *allocation = slab_take(&pools.allocation_slab);
    if (!allocation)
        return;
    *allocation = (struct pool_allocation){.pool = own, .bytes = bytes};
    if (map_put(&pools.allocations, pointer, allocation) != 0) {
        slab_give(&pools.allocation_slab, allocation);
        return;
    }
    own->live++;
    own->live_bytes += bytes;
}

void pools_note_allocated(CUmemoryPool pool, CUdeviceptr pointer, uint64_t bytes)
{
    uint64_t gone = 0;
    LOCKED(pools_lock) {
        /* An address that comes again was freed meanwhile, in a way that is not seen. */
        gone = forget_allocation(pointer);
        struct pool *own = map_get(&pools.list, (uintptr_t)pool);
        if (own)
            put_allocation(own, pointer, bytes);
    }
    give_back(gone);
}

void pools_note_freed(CUdeviceptr pointer)
{
    if (!pools_count() || !load_relaxed(&pools.used) || !pointer)
        return;
    uint64_t gone = 0;
    LOCKED(pools_lock)
        gone = forget_allocation(pointer);
    give_back(gone);
}

/* Taken out of the list before the driver's call: the handle may be given out again at once; and
 * not before other threads have done with it. Returns NULL where it is none of the program's own.
 */
static struct pool *take_out(CUmemoryPool pool)
{
    LOCKED_TO_END(pools_lock);
    struct pool *own = pool ? map_remove(&pools.list, (uintptr_t)pool) : NULL;
    uint64_t until = own && own->users ? clock_now_ns() + USED_MOST_NS : 0;
    while (own && own->users && lock_rest(&pools_lock, USED_NS, until))
        continue;
    return own;
}

/* The driver has answered; true where the pool's memory lives on. */
static bool settle(struct pool *own, bool destroyed, uint64_t used_bytes)
{
    bool in_use = false;
    LOCKED_TO_END(pools_lock);
    if (!destroyed) {
        (void)!map_put(&pools.list, (uintptr_t)own->pool, own);
    } else if (own->live) {
        /* Where nothing is used, its allocations were freed in a way that is not seen. */
        own->destroyed = true;
        in_use = used_bytes || (own->kind == POOL_MANAGED && !own->tells_used);
    } else {
        slab_give(&pools.slab, own);
    }
    return in_use;
}

CUresult pools_destroy(CUmemoryPool pool)
{
    cuuint64_t used = 0;
    if (pools_count() && !pools_tell(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used))
        used = memory_recorded_bytes(MEMORY_POOL, (uintptr_t)pool);
    struct pool *own = take_out(pool);
    struct memory_record record = memory_take(MEMORY_POOL, (uintptr_t)pool);
    CUresult result = cuda.cuMemPoolDestroy(pool);
    bool in_use = own && settle(own, result == CUDA_SUCCESS, used);
    memory_taken(&record, result == CUDA_SUCCESS && !in_use, MEMORY_POOL,
        in_use ? (uintptr_t)own : (uintptr_t)pool);
    return result;
}
