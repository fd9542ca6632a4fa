/* SPDX-License-Identifier: Apache-2.0 */
/* The pools that the process uses. */
#include "hook/pools.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/slab.h"
#include "hook/capture.h"
#include "hook/hook.h"

#include <stddef.h>

#define USED_NS 20000
#define USED_MOST_NS 10000000000ull
#define POOL_STEP_BYTES (32ull << 20) /* how pools grow (H200, driver 580.159.04) */

struct pool {
    CUmemoryPool pool;
    enum pool_kind kind;
    CUdevice ordinal; /* that is charged; -1: none yet, or never */
    bool has_device;  /* the location is one */
    bool tells_used;  /* the driver's figure of what is in use agreed with ours */
    unsigned live;    /* allocations that were seen and not freed */
    uint64_t live_bytes;
    uint64_t below_bytes; /* managed: that the resource-manager ledger counts */
    bool destroyed;
    unsigned users; /* threads of ours that ask the driver for it now */
};

struct pool_allocation {
    struct pool *pool;
    uint64_t bytes;
};

bool pools_managed_met;

static struct {
    struct lock lock; /* all but `used`; not held over driver calls */
    bool used;
    struct slab slab;
    struct map list; /* by handle: the program's own, and the defaults of managed and host memory;
                        the devices' are asked for */
    struct slab allocation_slab;
    struct map allocations; /* of pools that are counted, by pointer */
} pools = {.slab = {.object_bytes = sizeof(struct pool)},
    .allocation_slab = {.object_bytes = sizeof(struct pool_allocation)}};

void pools_reset(void)
{
    lock_reset(&pools.lock);
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
    lock_take(&pools.lock);
    struct pool *own =
        made || !map_get(&pools.list, (uintptr_t)pool) ? slab_take(&pools.slab) : NULL;
    if (own) {
        *own = start;
        if (map_put(&pools.list, (uintptr_t)pool, own) != 0)
            slab_give(&pools.slab, own);
    }
    if (start.kind == POOL_MANAGED)
        store_relaxed(&pools_managed_met, true);
    lock_release(&pools.lock);
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

/* A copy of what was noted, or of nothing. */
static struct pool known(CUmemoryPool pool)
{
    struct pool copy = {.ordinal = -1};
    lock_take(&pools.lock);
    const struct pool *own = pool ? map_get(&pools.list, (uintptr_t)pool) : NULL;
    if (own)
        copy = *own;
    lock_release(&pools.lock);
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
    lock_take(&pools.lock);
    struct pool *own = map_get(&pools.list, (uintptr_t)pool);
    if (own)
        own->ordinal = *ordinal;
    lock_release(&pools.lock);
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
    struct pool own = known(pool);
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
    struct pool own = known(pool);
    *ret_pool = pool;
    *ret_place = (struct pool_place){.kind = POOL_DEVICE, .ordinal = ordinal};
    return own.pool ? place_known(&own, ret_place) : CUDA_SUCCESS;
}

bool pools_goes_by_stream(CUmemoryPool pool)
{
    struct pool own = known(pool);
    return !pool || (own.kind == POOL_MANAGED && !own.has_device);
}

static struct pool_growth growth(uint64_t bytes, uint64_t reserved, uint64_t used)
{
    struct pool_growth growth = {.held_bytes = reserved};
    uint64_t unused = reserved > used ? reserved - used : 0;
    if (bytes <= unused)
        return growth;
    uint64_t steps = (bytes - unused - 1) / POOL_STEP_BYTES + 1;
    growth.bytes = steps > UINT64_MAX / POOL_STEP_BYTES ? bytes : steps * POOL_STEP_BYTES;
    return growth;
}

static bool tells_reserved(CUmemoryPool pool, cuuint64_t *ret_bytes)
{
    return pool && cuda.cuMemPoolGetAttribute(
                       pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, ret_bytes) == CUDA_SUCCESS;
}

static bool tells_used(CUmemoryPool pool, cuuint64_t *ret_bytes)
{
    return pool && cuda.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, ret_bytes) ==
                       CUDA_SUCCESS;
}

static bool graphs_tell(CUdevice ordinal, CUgraphMem_attribute name, cuuint64_t *ret_bytes)
{
    return cuda.cuDeviceGetGraphMemAttribute(ordinal, name, ret_bytes) == CUDA_SUCCESS;
}

struct pool_growth pools_growth(CUmemoryPool pool, enum pool_kind kind, uint64_t bytes)
{
    cuuint64_t reserved, used;
    if (!tells_reserved(pool, &reserved) || !tells_used(pool, &used))
        reserved = used = memory_recorded_bytes(MEMORY_POOL, (uintptr_t)pool);
    if (kind == POOL_DEVICE)
        return growth(bytes, reserved, used);
    /* In which steps managed pools grow was not seen: what is more than foreseen is judged
     * afterwards. */
    uint64_t unused = reserved > used ? reserved - used : 0;
    return (struct pool_growth){.held_bytes = reserved > used ? reserved : used,
        .bytes = bytes > unused ? bytes - unused : 0};
}

/* What a managed pool holds. Nothing says that a driver counts as reserved what nobody has touched
 * yet: no less than what is in use, by its figure or, where that is not to be had, by ours. */
static uint64_t managed_bytes(CUmemoryPool pool)
{
    cuuint64_t reserved = 0, used = 0;
    bool tells = tells_reserved(pool, &reserved) && tells_used(pool, &used);
    lock_take(&pools.lock);
    struct pool *own = map_get(&pools.list, (uintptr_t)pool);
    if (own && tells && used && used >= own->live_bytes)
        own->tells_used = true;
    if (own && !(tells && own->tells_used))
        used = own->live_bytes;
    lock_release(&pools.lock);
    return reserved > used ? reserved : used;
}

struct pool_growth pools_graph_growth(CUdevice ordinal, uint64_t bytes, uint64_t given_back)
{
    cuuint64_t reserved, used;
    if (!graphs_tell(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved) ||
        !graphs_tell(ordinal, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used)) {
        reserved = used = memory_recorded_bytes(MEMORY_GRAPH_POOL, (uint64_t)ordinal);
        given_back = 0;
    }
    return growth(bytes, reserved, used > given_back ? used - given_back : 0);
}

static bool charge(enum memory_handle type, uint64_t handle, int device,
    const struct pool_growth *foreseen, bool told, uint64_t reserved)
{
    if (!told) {
        /* Another thread's request may have been served and charged meanwhile. */
        uint64_t recorded = memory_recorded_bytes(type, handle);
        reserved = recorded > foreseen->held_bytes ? recorded : foreseen->held_bytes;
        reserved += foreseen->bytes;
    }
    memory_set(type, handle, device, reserved, ACCOUNT_BUFFER);
    return told && reserved > foreseen->held_bytes + foreseen->bytes;
}

/* Whoever grew the pool foresaw `foreseen`, and the ledger below charged `seen` meanwhile; NULL: it
 * did not grow. Returns what is held. */
static uint64_t charge_managed(
    CUmemoryPool pool, int device, const struct pool_growth *foreseen, uint64_t seen)
{
    uint64_t held = managed_bytes(pool), below = 0;
    lock_take(&pools.lock);
    struct pool *own = map_get(&pools.list, (uintptr_t)pool);
    if (own) {
        uint64_t grown = foreseen && held > foreseen->held_bytes ? held - foreseen->held_bytes : 0;
        own->below_bytes += seen >= grown ? grown : 0;
        if (own->below_bytes > held)
            own->below_bytes = held;
        below = own->below_bytes;
    }
    lock_release(&pools.lock);
    memory_set(MEMORY_POOL, (uintptr_t)pool, device, held - below, ACCOUNT_MANAGED);
    return held;
}

bool pools_charge(CUmemoryPool pool, enum pool_kind kind, int device,
    const struct pool_growth *foreseen, uint64_t seen)
{
    cuuint64_t reserved = 0;
    bool told = true;
    struct capture_relaxed former = capture_relax();
    if (kind == POOL_MANAGED)
        reserved = charge_managed(pool, device, foreseen, seen);
    else
        told = tells_reserved(pool, &reserved);
    capture_restore(&former);
    return kind == POOL_MANAGED
               ? reserved > foreseen->held_bytes + foreseen->bytes
               : charge(MEMORY_POOL, (uintptr_t)pool, device, foreseen, told, reserved);
}

bool pools_charge_graphs(CUdevice ordinal, int device, const struct pool_growth *foreseen)
{
    cuuint64_t reserved = 0;
    struct capture_relaxed former = capture_relax();
    bool told = graphs_tell(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved);
    capture_restore(&former);
    return charge(MEMORY_GRAPH_POOL, (uint64_t)ordinal, device, foreseen, told, reserved);
}

/* Where one of a destroyed pool's allocations was its last, its key in the account; else 0. */
static uint64_t forget_allocation(CUdeviceptr pointer)
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
    REQUIRES(pools.lock)
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
    lock_take(&pools.lock);
    /* An address that comes again was freed meanwhile, in a way that is not seen. */
    uint64_t gone = forget_allocation(pointer);
    struct pool *own = map_get(&pools.list, (uintptr_t)pool);
    if (own)
        put_allocation(own, pointer, bytes);
    lock_release(&pools.lock);
    give_back(gone);
}

void pools_note_freed(CUdeviceptr pointer)
{
    if (!pools_count() || !load_relaxed(&pools.used) || !pointer)
        return;
    lock_take(&pools.lock);
    uint64_t gone = forget_allocation(pointer);
    lock_release(&pools.lock);
    give_back(gone);
}

/* Taken out of the list before the driver's call: the handle may be given out again at once; and
 * not before other threads have done with it. Returns NULL where it is none of the program's own.
 */
static struct pool *take_out(CUmemoryPool pool)
{
    lock_take(&pools.lock);
    struct pool *own = pool ? map_remove(&pools.list, (uintptr_t)pool) : NULL;
    uint64_t until = own && own->users ? clock_now_ns() + USED_MOST_NS : 0;
    while (own && own->users && lock_rest(&pools.lock, USED_NS, until))
        continue;
    lock_release(&pools.lock);
    return own;
}

/* The driver has answered; true where the pool's memory lives on. */
static bool settle(struct pool *own, bool destroyed, uint64_t used_bytes)
{
    bool in_use = false;
    lock_take(&pools.lock);
    if (!destroyed) {
        (void)!map_put(&pools.list, (uintptr_t)own->pool, own);
    } else if (own->live) {
        /* Where nothing is used, its allocations were freed in a way that is not seen. */
        own->destroyed = true;
        in_use = used_bytes || (own->kind == POOL_MANAGED && !own->tells_used);
    } else {
        slab_give(&pools.slab, own);
    }
    lock_release(&pools.lock);
    return in_use;
}

CUresult pools_destroy(CUmemoryPool pool)
{
    cuuint64_t used = 0;
    if (pools_count() && !tells_used(pool, &used))
        used = memory_recorded_bytes(MEMORY_POOL, (uintptr_t)pool);
    struct pool *own = take_out(pool);
    struct memory_record record = memory_take(MEMORY_POOL, (uintptr_t)pool);
    CUresult result = cuda.cuMemPoolDestroy(pool);
    bool in_use = own && settle(own, result == CUDA_SUCCESS, used);
    memory_taken(&record, result == CUDA_SUCCESS && !in_use, MEMORY_POOL,
        in_use ? (uintptr_t)own : (uintptr_t)pool);
    return result;
}

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

static void use(struct pool_walk *walk, struct pool *own) REQUIRES(pools.lock)
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
    lock_take(&pools.lock);
    do
        own = map_next(&pools.list, &walk->cursor, &key);
    while (own && (own->ordinal != walk->ordinal || own->pool == walk->current ||
                      (walk->managed_only && own->kind != POOL_MANAGED)));
    use(walk, own);
    CUmemoryPool pool = own ? own->pool : NULL;
    lock_release(&pools.lock);
    return pool;
}

/* False where the program's own was destroyed meanwhile. */
static bool use_current(struct pool_walk *walk)
{
    CUmemoryPool now = NULL;
    lock_take(&pools.lock);
    use(walk, map_get(&pools.list, (uintptr_t)walk->current));
    lock_release(&pools.lock);
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

/* Asked once more where the driver does not tell: what it gave back stays charged until then. */
static void refresh_pool(CUmemoryPool pool, enum pool_kind kind, int device)
{
    cuuint64_t reserved = 0;
    bool told = false;
    if (kind == POOL_MANAGED)
        (void)charge_managed(pool, device, NULL, 0);
    if (kind != POOL_DEVICE)
        return;
    for (int tries = 0; tries < 2 && !told; tries++)
        told = tells_reserved(pool, &reserved);
    if (told)
        memory_set(MEMORY_POOL, (uintptr_t)pool, device, reserved, ACCOUNT_BUFFER);
}

static void refresh_graphs(CUdevice ordinal, int device)
{
    cuuint64_t reserved = 0;
    bool told = false;
    for (int tries = 0; tries < 2 && !told; tries++)
        told = graphs_tell(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved);
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
    int device = hook_device(ordinal);
    struct capture_relaxed former = capture_relax();
    while ((pool = next_pool(&walk)))
        refresh_pool(pool, known(pool).kind, device);
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
