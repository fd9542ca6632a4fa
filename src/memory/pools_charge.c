/* SPDX-License-Identifier: Apache-2.0 */
/* What pools and graphs hold, and may come to hold, as the account has it. */
#include "base/map.h"
#include "base/lock.h"
#include "memory/pools_list.h"

#include "pace/capture.h"
#include "driver/cuda.h"
#include "memory/memory.h"

#include <stddef.h>

#define POOL_STEP_BYTES (32ull << 20) /* how pools grow (H200, driver 580.159.04) */

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

bool pools_tell(CUmemoryPool pool, CUmemPool_attribute name, cuuint64_t *ret_bytes)
{
    return pool && cuda.cuMemPoolGetAttribute(pool, name, ret_bytes) == CUDA_SUCCESS;
}

bool pools_graphs_tell(CUdevice ordinal, CUgraphMem_attribute name, cuuint64_t *ret_bytes)
{
    return cuda.cuDeviceGetGraphMemAttribute(ordinal, name, ret_bytes) == CUDA_SUCCESS;
}

struct pool_growth pools_growth(CUmemoryPool pool, enum pool_kind kind, uint64_t bytes)
{
    cuuint64_t reserved, used;
    if (!pools_tell(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ||
        !pools_tell(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used))
        reserved = used = memory_recorded_bytes(MEMORY_POOL, (uintptr_t)pool);
    if (kind == POOL_DEVICE)
        return growth(bytes, reserved, used);
    /* In which steps managed pools grow was not seen: what is more than foreseen is judged
     * afterwards. */
    uint64_t unused = reserved > used ? reserved - used : 0;
    return (struct pool_growth){.held_bytes = reserved > used ? reserved : used,
        .bytes = bytes > unused ? bytes - unused : 0};
}

/* What a managed pool holds. Nothing says that a driver counts as reserved what was not touched
 * yet: no less than what is in use, by its figure or, where that is not to be had, by ours. */
static uint64_t managed_bytes(CUmemoryPool pool)
{
    cuuint64_t reserved = 0, used = 0;
    bool tells = pools_tell(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) &&
                 pools_tell(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    LOCKED_TO_END(pools_lock);
    struct pool *own = map_get(&pools.list, (uintptr_t)pool);
    if (own && tells && used && used >= own->live_bytes)
        own->tells_used = true;
    if (own && !(tells && own->tells_used))
        used = own->live_bytes;
    return reserved > used ? reserved : used;
}

struct pool_growth pools_graph_growth(CUdevice ordinal, uint64_t bytes, uint64_t given_back)
{
    cuuint64_t reserved, used;
    if (!pools_graphs_tell(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved) ||
        !pools_graphs_tell(ordinal, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used)) {
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

uint64_t pools_charge_managed(CUmemoryPool pool, int device)
{
    uint64_t held = managed_bytes(pool);
    memory_set(MEMORY_POOL, (uintptr_t)pool, device, held, ACCOUNT_MANAGED);
    return held;
}

bool pools_charge(
    CUmemoryPool pool, enum pool_kind kind, int device, const struct pool_growth *foreseen)
{
    cuuint64_t reserved = 0;
    bool told = true;
    struct capture_relaxed former = capture_relax();
    if (kind == POOL_MANAGED)
        reserved = pools_charge_managed(pool, device);
    else
        told = pools_tell(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
    capture_restore(&former);
    return kind == POOL_MANAGED
               ? reserved > foreseen->held_bytes + foreseen->bytes
               : charge(MEMORY_POOL, (uintptr_t)pool, device, foreseen, told, reserved);
}

bool pools_charge_graphs(CUdevice ordinal, int device, const struct pool_growth *foreseen)
{
    cuuint64_t reserved = 0;
    struct capture_relaxed former = capture_relax();
    bool told = pools_graphs_tell(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved);
    capture_restore(&former);
    return charge(MEMORY_GRAPH_POOL, (uint64_t)ordinal, device, foreseen, told, reserved);
}
