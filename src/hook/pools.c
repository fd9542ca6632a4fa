/* SPDX-License-Identifier: Apache-2.0 */
/* The pools that the process uses. */
#include "hook/pools.h"

#include "base/atomic.h"
#include "base/lock.h"
#include "hook/hook.h"

#include <stddef.h>

#define POOLS_MAX 256
#define POOL_STEP_BYTES (32ull << 20) /* how pools grow (H200, driver 580.159.04) */

struct pool {
    CUmemoryPool pool;
    CUdevice ordinal;
};

static struct {
    struct lock lock; /* the list; not held over driver calls */
    bool used;
    unsigned count;
    struct pool list[POOLS_MAX]; /* the program's own; the devices' are asked for */
} pools;

void pools_reset(void)
{
    lock_reset(&pools.lock);
    pools.count = 0;
    pools.used = false;
}

void pools_note_use(void)
{
    if (!load_relaxed(&pools.used))
        store_relaxed(&pools.used, true);
}

void pools_note(CUmemoryPool pool, CUdevice ordinal)
{
    lock_take(&pools.lock);
    if (pools.count < POOLS_MAX)
        pools.list[pools.count++] = (struct pool){pool, ordinal};
    lock_release(&pools.lock);
}

CUdevice pools_ordinal(CUmemoryPool pool, CUdevice otherwise)
{
    lock_take(&pools.lock);
    for (unsigned i = 0; i < pools.count; i++) {
        if (pools.list[i].pool == pool)
            otherwise = pools.list[i].ordinal;
    }
    lock_release(&pools.lock);
    return otherwise;
}

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute name)
{
    cuuint64_t value = 0;
    return pool && cuda.cuMemPoolGetAttribute(pool, name, &value) == CUDA_SUCCESS ? value : 0;
}

uint64_t pools_growth(CUmemoryPool pool, uint64_t bytes)
{
    uint64_t reserved = attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    uint64_t used = attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    uint64_t unused = reserved > used ? reserved - used : 0;
    if (bytes <= unused)
        return 0;
    uint64_t steps = (bytes - unused - 1) / POOL_STEP_BYTES + 1;
    return steps > UINT64_MAX / POOL_STEP_BYTES ? bytes : steps * POOL_STEP_BYTES;
}

uint64_t pools_used_bytes(CUmemoryPool pool)
{
    return attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
}

void pools_forget(CUmemoryPool pool)
{
    lock_take(&pools.lock);
    for (unsigned i = 0; i < pools.count; i++) {
        if (pools.list[i].pool == pool) {
            pools.list[i] = pools.list[--pools.count];
            break;
        }
    }
    lock_release(&pools.lock);
}

/* The index-th pool that may hold memory of the ordinal: the device's current and default pool,
 * then the program's own. False at the end; *ret_pool may be NULL: none at this place. */
static bool pool_at(unsigned index, CUdevice ordinal, CUmemoryPool *ret_pool)
{
    *ret_pool = NULL;
    if (index == 0)
        return (void)cuda.cuDeviceGetMemPool(ret_pool, ordinal), true;
    if (index == 1) {
        CUmemoryPool current = NULL;
        (void)cuda.cuDeviceGetMemPool(&current, ordinal);
        if (cuda.cuDeviceGetDefaultMemPool(ret_pool, ordinal) != CUDA_SUCCESS ||
            *ret_pool == current)
            *ret_pool = NULL;
        return true;
    }
    lock_take(&pools.lock);
    bool there = index - 2 < pools.count;
    if (there && pools.list[index - 2].ordinal == ordinal)
        *ret_pool = pools.list[index - 2].pool;
    lock_release(&pools.lock);
    return there;
}

/* A thread that captures in global mode must not be disturbed by calls that its program did not
 * make. */
static bool relax_capture(CUstreamCaptureMode *mode)
{
    *mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    return cuda.cuThreadExchangeStreamCaptureMode(mode) == CUDA_SUCCESS;
}

bool pools_make_room(CUdevice ordinal)
{
    CUstreamCaptureMode mode;
    CUmemoryPool pool;
    if (!load_relaxed(&pools.used))
        return false;
    bool relaxed = relax_capture(&mode);
    for (unsigned i = 0; pool_at(i, ordinal, &pool); i++) {
        if (pool)
            (void)cuda.cuMemPoolTrimTo(pool, 0);
    }
    (void)cuda.cuDeviceGraphMemTrim(ordinal);
    if (relaxed)
        (void)cuda.cuThreadExchangeStreamCaptureMode(&mode);
    pools_refresh(ordinal);
    return true;
}

bool pools_make_room_current(void)
{
    CUdevice ordinal;
    return load_relaxed(&pools.used) && cuda.cuCtxGetDevice(&ordinal) == CUDA_SUCCESS &&
           pools_make_room(ordinal);
}

void pools_refresh(CUdevice ordinal)
{
    CUmemoryPool pool;
    cuuint64_t reserved = 0;
    if (memory_ledger() != MEMORY_LEDGER_API || !load_relaxed(&pools.used))
        return;
    int device = hook_device(ordinal);
    for (unsigned i = 0; pool_at(i, ordinal, &pool); i++) {
        if (pool && cuda.cuMemPoolGetAttribute(
                        pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) == CUDA_SUCCESS)
            memory_set(MEMORY_POOL, (uintptr_t)pool, device, reserved, ACCOUNT_BUFFER);
    }
    if (cuda.cuDeviceGetGraphMemAttribute(
            ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved) == CUDA_SUCCESS)
        memory_set(MEMORY_GRAPH_POOL, (uint64_t)ordinal, device, reserved, ACCOUNT_BUFFER);
}

void pools_refresh_current(void)
{
    CUdevice ordinal;
    if (memory_ledger() == MEMORY_LEDGER_API && load_relaxed(&pools.used) &&
        cuda.cuCtxGetDevice(&ordinal) == CUDA_SUCCESS)
        pools_refresh(ordinal);
}
