/* SPDX-License-Identifier: Apache-2.0 */
/* The pools that the process uses. */
#include "hook/pools.h"

#include "base/atomic.h"
#include "base/lock.h"
#include "hook/hook.h"

#include <stddef.h>

#define POOLS_MAX 256

struct pool {
    CUmemoryPool pool; /* NULL: the device's graph memory */
    CUdevice ordinal;
    int device;
};

static struct {
    struct lock lock; /* the list; not held over driver calls */
    unsigned count;
    struct pool list[POOLS_MAX];
} pools;

void pools_reset(void)
{
    lock_reset(&pools.lock);
    pools.count = 0;
}

void pools_note(CUmemoryPool pool, CUdevice ordinal)
{
    unsigned count = load_acquire(&pools.count);
    for (unsigned i = 0; i < count; i++) {
        if (pools.list[i].pool == pool && pools.list[i].ordinal == ordinal)
            return;
    }
    int device = hook_device(ordinal);
    lock_take(&pools.lock);
    if (pools.count < POOLS_MAX) {
        pools.list[pools.count] = (struct pool){pool, ordinal, device};
        store_release(&pools.count, pools.count + 1);
    }
    lock_release(&pools.lock);
}

CUmemoryPool pools_note_current(void)
{
    CUdevice ordinal;
    CUmemoryPool pool = NULL;
    if (cuda.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS ||
        cuda.cuDeviceGetMemPool(&pool, ordinal) != CUDA_SUCCESS)
        return NULL;
    pools_note(pool, ordinal);
    pools_note_graphs(ordinal); /* a captured allocation becomes the graph's */
    return pool;
}

void pools_note_graphs(CUdevice ordinal)
{
    pools_note(NULL, ordinal);
}

void pools_forget(CUmemoryPool pool)
{
    lock_take(&pools.lock);
    for (unsigned i = 0; i < pools.count; i++) {
        if (pools.list[i].pool == pool) {
            pools.list[i] = pools.list[pools.count - 1];
            store_release(&pools.count, pools.count - 1);
            break;
        }
    }
    lock_release(&pools.lock);
}

static bool take_entry(unsigned index, struct pool *ret_pool)
{
    lock_take(&pools.lock);
    bool there = index < pools.count;
    if (there)
        *ret_pool = pools.list[index];
    lock_release(&pools.lock);
    return there;
}

static void trim(const struct pool *pool)
{
    if (pool->pool)
        (void)cuda.cuMemPoolTrimTo(pool->pool, 0);
    else
        (void)cuda.cuDeviceGraphMemTrim(pool->ordinal);
}

bool pools_make_room(int device)
{
    /* A thread that captures in global mode must not be disturbed by calls that its program did
     * not make. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool any = false;
    struct pool pool;
    if (!load_relaxed(&pools.count))
        return false;
    bool exchanged = cuda.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    for (unsigned i = 0; take_entry(i, &pool); i++) {
        if (pool.device == device) {
            trim(&pool);
            any = true;
        }
    }
    if (exchanged)
        (void)cuda.cuThreadExchangeStreamCaptureMode(&mode);
    pools_refresh(device);
    return any;
}

void pools_refresh(int device)
{
    struct pool pool;
    if (memory_ledger() != MEMORY_LEDGER_API)
        return;
    for (unsigned i = 0; take_entry(i, &pool); i++) {
        cuuint64_t reserved = 0;
        if (pool.device != device)
            continue;
        if (pool.pool && cuda.cuMemPoolGetAttribute(pool.pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                             &reserved) == CUDA_SUCCESS)
            memory_set(MEMORY_POOL, (uintptr_t)pool.pool, device, reserved, ACCOUNT_BUFFER);
        if (!pool.pool && cuda.cuDeviceGetGraphMemAttribute(pool.ordinal,
                              CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved) == CUDA_SUCCESS)
            memory_set(MEMORY_GRAPH_POOL, (uint64_t)pool.ordinal, device, reserved, ACCOUNT_BUFFER);
    }
}
