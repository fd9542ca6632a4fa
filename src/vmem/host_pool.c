/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/host_pool.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"
#include "config/config_oversubscription.h"
#include "container/container.h"
#include "pace/capture.h"
#include "account/account.h"
#include "vmem/host_memory.h"
#include "vmem/undo.h"

#include <string.h>

/* Pieces of 32 MiB, as moves make them: 64 GiB of them. */
#define PIECES_MAX 2048

struct piece {
    CUmemGenericAllocationHandle handle;
    uint64_t bytes, kept_ns;
    int numa_node;
};

static struct lock pool_lock; /* a leaf */
static struct {
    struct piece pieces[PIECES_MAX]; /* oldest first */
    unsigned count;
} pool GUARDED_BY(pool_lock);

static uint64_t pool_bytes; /* written under the lock */

void host_pool_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&pool_lock);
    pool.count = 0;
    pool_bytes = 0;
}

uint64_t host_pool_bytes(void)
{
    return load_relaxed(&pool_bytes);
}

static struct piece remove_locked(unsigned i) REQUIRES(pool_lock)
{
    struct piece piece = pool.pieces[i];
    memmove(&pool.pieces[i], &pool.pieces[i + 1], (--pool.count - i) * sizeof(piece));
    store_relaxed(&pool_bytes, pool_bytes - piece.bytes);
    return piece;
}

bool host_pool_take(int numa_node, uint64_t bytes, CUmemGenericAllocationHandle *ret_handle)
{
    LOCKED_TO_END(pool_lock);
    for (unsigned i = pool.count; i-- > 0;) {
        if (pool.pieces[i].bytes == bytes && pool.pieces[i].numa_node == numa_node) {
            *ret_handle = remove_locked(i).handle;
            return true;
        }
    }
    return false;
}

uint64_t host_pool_room(void)
{
    uint64_t ready = host_pool_bytes();
    uint64_t free_bytes = host_memory_look(account_spilled_bytes() + ready).free_bytes;
    return free_bytes < UINT64_MAX - ready ? free_bytes + ready : UINT64_MAX;
}

unsigned host_pool_count(uint64_t bytes)
{
    LOCKED_TO_END(pool_lock);
    unsigned count = 0;
    for (unsigned i = 0; i < pool.count; i++)
        count += pool.pieces[i].bytes == bytes;
    return count;
}

/* What of the budget the pool may have, beside what is spilled. */
static uint64_t allowed_bytes(void)
{
    uint64_t budget = account_host_budget(), spilled = account_spilled_bytes();
    return spilled < budget ? budget - spilled : 0;
}

bool host_pool_keep(int numa_node, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
    uint64_t allowed = allowed_bytes();
    LOCKED_TO_END(pool_lock);
    if (pool.count == PIECES_MAX || bytes > allowed || pool_bytes > allowed - bytes)
        return false;
    pool.pieces[pool.count++] = (struct piece){
        .handle = handle, .bytes = bytes, .kept_ns = clock_now_ns(), .numa_node = numa_node};
    store_relaxed(&pool_bytes, pool_bytes + bytes);
    return true;
}

/* The oldest piece, where the pool has more than `most` bytes, or it was kept before `before_ns`
 * and is more than `ready` bytes can be. */
static bool take_oldest(uint64_t most, uint64_t before_ns, uint64_t ready, struct piece *ret_piece)
{
    LOCKED_TO_END(pool_lock);
    bool goes =
        pool.count && (pool_bytes > most || (pool.pieces[0].kept_ns < before_ns &&
                                                pool_bytes - pool.pieces[0].bytes >= ready));
    if (goes)
        *ret_piece = remove_locked(0);
    return goes;
}

static bool give_back(uint64_t most, uint64_t before_ns, uint64_t ready)
{
    struct piece piece;
    bool any = false;
    struct capture_relaxed former = capture_relax();
    while (take_oldest(most, before_ns, ready, &piece)) {
        (void)undo_create(piece.handle);
        any = true;
    }
    capture_restore(&former);
    return any;
}

bool host_pool_empty(void)
{
    return host_pool_bytes() && give_back(0, 0, 0);
}

void host_pool_make_room(uint64_t bytes)
{
    if (!host_pool_bytes())
        return;
    uint64_t allowed = allowed_bytes();
    (void)give_back(allowed > bytes ? allowed - bytes : 0, 0, 0);
    if (host_memory_look(account_spilled_bytes() + host_pool_bytes()).free_bytes < bytes)
        (void)host_pool_empty();
}

void host_pool_trim(uint64_t now_ns)
{
    if (!host_pool_bytes())
        return;
    (void)give_back(allowed_bytes(), now_ns > HOST_POOL_KEEP_NS ? now_ns - HOST_POOL_KEEP_NS : 0,
        config_host_pool_ready(container_config()));
}
