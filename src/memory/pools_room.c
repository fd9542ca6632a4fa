/* SPDX-License-Identifier: Apache-2.0 */
/* A walk through the pools of a device: to give back what lies unused, and to look what they hold.
 */
#include "base/map.h"
#include "base/lock.h"
#include "memory/pools_list.h"

#include "pace/capture.h"
#include "container/device.h"
#include "driver/cuda.h"
#include "memory/memory.h"

#include <stddef.h>

/* Walks the pools that may hold memory of the ordinal: the device's current and default one, then
 * those that were noted, of which one may be missed where others change meanwhile. NULL at the end.
 * The program's own is not destroyed before the walk has gone on. */
struct pool_walk {
    CUdevice ordinal;
    bool managed_only;
    unsigned place;
    size_t cursor;
    CUmemoryPool current;
    struct pool *used;
};

static void use(struct pool_walk *walk, struct pool *own) REQUIRES(pools_lock)
{
    if (walk->used)
        walk->used->users--;
    if (own)
        own->users++;
    walk->used = own;
}

static CUmemoryPool next_own(struct pool_walk *walk)
{
    struct pool *own;
    uint64_t key;
    LOCKED_TO_END(pools_lock);
    do
        own = map_next(&pools.list, &walk->cursor, &key);
    while (own && (own->ordinal != walk->ordinal || own->pool == walk->current ||
                      (walk->managed_only && own->kind != POOL_MANAGED)));
    use(walk, own);
    return own ? own->pool : NULL;
}

/* False where the program's own was destroyed meanwhile. */
static bool use_current(struct pool_walk *walk)
{
    CUmemoryPool now = NULL;
    LOCKED(pools_lock)
        use(walk, map_get(&pools.list, (uintptr_t)walk->current));
    return cuda.cuDeviceGetMemPool(&now, walk->ordinal) == CUDA_SUCCESS && now == walk->current;
}

static CUmemoryPool next_pool(struct pool_walk *walk)
{
    CUmemoryPool pool = NULL;
    if (walk->managed_only)
        return next_own(walk);
    if (walk->place == 0) {
        walk->place++;
        if (cuda.cuDeviceGetMemPool(&walk->current, walk->ordinal) == CUDA_SUCCESS &&
            walk->current && use_current(walk))
            return walk->current;
        walk->current = NULL;
    }
    if (walk->place == 1) {
        walk->place++;
        if (cuda.cuDeviceGetDefaultMemPool(&pool, walk->ordinal) == CUDA_SUCCESS && pool &&
            pool != walk->current)
            return pool;
    }
    return next_own(walk);
}

bool pools_make_room(CUdevice ordinal)
{
    struct pool_walk walk = {.ordinal = ordinal};
    CUmemoryPool pool;
    if (!load_relaxed(&pools.used))
        return false;
    struct capture_relaxed former = capture_relax();
    while ((pool = next_pool(&walk)))
        (void)cuda.cuMemPoolTrimTo(pool, 0);
    (void)cuda.cuDeviceGraphMemTrim(ordinal);
    capture_restore(&former);
    pools_refresh(ordinal);
    return true;
}

bool pools_make_room_current(void)
{
    CUdevice ordinal;
    return load_relaxed(&pools.used) && cuda.cuCtxGetDevice(&ordinal) == CUDA_SUCCESS &&
           pools_make_room(ordinal);
}

bool pools_allow_attempt(unsigned *attempts, CUresult result, CUdevice ordinal)
{
    switch ((*attempts)++) {
    case 0:
        return result == CUDA_SUCCESS;
    case 1:
        return result == CUDA_ERROR_OUT_OF_MEMORY &&
               (ordinal < 0 ? pools_make_room_current() : pools_make_room(ordinal));
    default:
        return false;
    }
}

/* Asked once more where the driver does not tell: what it gave back stays charged until then. */
static void refresh_pool(CUmemoryPool pool, enum pool_kind kind, int device)
{
    cuuint64_t reserved = 0;
    bool told = false;
    if (kind == POOL_MANAGED)
        (void)pools_charge_managed(pool, device);
    if (kind != POOL_DEVICE)
        return;
    for (int tries = 0; tries < 2 && !told; tries++)
        told = pools_tell(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
    if (told)
        memory_set(MEMORY_POOL, (uintptr_t)pool, device, reserved, ACCOUNT_BUFFER);
}

static void refresh_graphs(CUdevice ordinal, int device)
{
    cuuint64_t reserved = 0;
    bool told = false;
    for (int tries = 0; tries < 2 && !told; tries++)
        told = pools_graphs_tell(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved);
    if (told)
        memory_set(MEMORY_GRAPH_POOL, (uint64_t)ordinal, device, reserved, ACCOUNT_BUFFER);
}

void pools_refresh(CUdevice ordinal)
{
    bool all = memory_ledger() == MEMORY_LEDGER_API;
    struct pool_walk walk = {.ordinal = ordinal, .managed_only = !all};
    CUmemoryPool pool;
    if (!pools_count() || !load_relaxed(&pools.used))
        return;
    int device = device_index(ordinal);
    struct capture_relaxed former = capture_relax();
    while ((pool = next_pool(&walk)))
        refresh_pool(pool, pools_known(pool).kind, device);
    if (all)
        refresh_graphs(ordinal, device);
    capture_restore(&former);
}

void pools_refresh_current(void)
{
    CUdevice ordinal;
    if (pools_count() && load_relaxed(&pools.used) && cuda.cuCtxGetDevice(&ordinal) == CUDA_SUCCESS)
        pools_refresh(ordinal);
}
