/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/host_pool.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/saturating.h"
#include "base/sleep.h"
#include "config/config_oversubscription.h"
#include "container/container.h"
#include "driver/cuda.h"
#include "pace/capture.h"
#include "account/account.h"
#include "vmem/host_memory.h"
#include "vmem/undo.h"

#include <string.h>

/* Pieces of 32 MiB, as moves make them: 64 GiB of them. */
#define PIECES_MAX 2048

/* Nanoseconds that other processes have to give back what they have ready. The driver takes 35 ms
 * for a GiB; one that is stopped does not answer. And between two looks at what became of it. */
#define ASK_WAIT_NS 200000000ull
#define ASK_LOOK_NS 2000000ull

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
static uint64_t wanted_ns;  /* when this process last wanted room */

void host_pool_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&pool_lock);
    pool.count = 0;
    pool_bytes = wanted_ns = 0;
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

unsigned host_pool_count(uint64_t bytes)
{
    LOCKED_TO_END(pool_lock);
    unsigned count = 0;
    for (unsigned i = 0; i < pool.count; i++)
        count += pool.pieces[i].bytes == bytes;
    return count;
}

/* ---- room ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t left_of_budget(const struct account_host *host, uint64_t used)
{
    return host->budget_bytes == UINT64_MAX ? UINT64_MAX
                                            : saturating_difference(host->budget_bytes, used);
}

/* What may be made beside all that is spilled or ready. *ret_others: what others have ready, or
 * another thread of this process is about to. */
static uint64_t look_at_room(uint64_t *ret_others)
{
    struct account_host host = account_host();
    uint64_t used = saturating_sum(host.spilled_bytes, host.ready_bytes);
    *ret_others = saturating_difference(host.ready_bytes, host_pool_bytes());
    return least(left_of_budget(&host, used), host_memory_look(used).free_bytes);
}

/* The same. Others are asked where what they have ready makes the difference, or `contended`: what
 * is left is taken again and again. Those that have it still when their time is over do not answer:
 * they are not waited for again. */
static uint64_t ask_for_room(uint64_t wanted, bool contended)
{
    uint64_t asked_ns = 0, others, left = look_at_room(&others);
    while (left < wanted ? others >= wanted - left : contended && !asked_ns) {
        asked_ns = asked_ns ? asked_ns : account_ask_ready();
        if (clock_now_ns() - asked_ns >= ASK_WAIT_NS)
            break;
        sleep_ns(ASK_LOOK_NS);
        left = look_at_room(&others);
    }
    return left;
}

uint64_t host_pool_left(void)
{
    uint64_t others;
    return look_at_room(&others);
}

uint64_t host_pool_room(void)
{
    struct account_host host = account_host();
    uint64_t used = saturating_sum(host.spilled_bytes, host.ready_bytes);
    uint64_t host_room = saturating_sum(host_memory_look(used).free_bytes, host.ready_bytes);
    return least(left_of_budget(&host, host.spilled_bytes), host_room);
}

uint64_t host_pool_room_for(uint64_t wanted)
{
    uint64_t own = host_pool_bytes();
    return saturating_sum(ask_for_room(saturating_difference(wanted, own), false), own);
}

/* ---- what is kept ---- */

/* Its bytes are in the account. False where the pool has no room. */
static bool put(int numa_node, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
    LOCKED_TO_END(pool_lock);
    if (pool.count == PIECES_MAX)
        return false;
    pool.pieces[pool.count++] = (struct piece){
        .handle = handle, .bytes = bytes, .kept_ns = clock_now_ns(), .numa_node = numa_node};
    store_relaxed(&pool_bytes, pool_bytes + bytes);
    return true;
}

bool host_pool_keep(int numa_node, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
    if (account_add_ready(bytes) != 0)
        return false;
    bool kept = put(numa_node, bytes, handle);
    if (!kept)
        account_remove_ready(bytes);
    return kept;
}

/* The bytes are in the account already, so that of two processes that look at once each sees the
 * other's. */
static bool machine_has_room(uint64_t bytes)
{
    struct account_host host = account_host();
    uint64_t used =
        saturating_sum(host.spilled_bytes, saturating_difference(host.ready_bytes, bytes));
    return host_memory_look(used).free_bytes >= bytes;
}

/* By another thread of this process, whose memory goes first. */
static bool is_wanted(void)
{
    uint64_t last_ns = load_seq_cst(&wanted_ns);
    return last_ns && clock_now_ns() - last_ns < ACCOUNT_READY_ASK_NS;
}

bool host_pool_make(const CUmemAllocationProp *property, uint64_t bytes)
{
    CUmemGenericAllocationHandle handle;
    if (is_wanted() || account_add_ready(bytes) != 0)
        return false;
    struct capture_relaxed former = capture_relax();
    bool made = !is_wanted() && machine_has_room(bytes) &&
                cuda.cuMemCreate(&handle, bytes, property, 0) == CUDA_SUCCESS;
    if (made && !put(property->location.id, bytes, handle)) {
        (void)cuda.cuMemRelease(handle);
        made = false;
    }
    capture_restore(&former);
    if (!made)
        account_remove_ready(bytes);
    return made;
}

/* ---- what goes back ---- */

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
        account_remove_ready(piece.bytes);
        any = true;
    }
    capture_restore(&former);
    return any;
}

bool host_pool_empty(void)
{
    return host_pool_bytes() && give_back(0, 0, 0);
}

void host_pool_shrink(uint64_t most)
{
    (void)give_back(most, 0, 0);
}

/* What of the budget the pool may have. */
static uint64_t allowed_bytes(void)
{
    struct account_host host = account_host();
    uint64_t others = saturating_difference(host.ready_bytes, host_pool_bytes());
    return left_of_budget(&host, saturating_sum(host.spilled_bytes, others));
}

bool host_pool_make_room(uint64_t bytes, bool again)
{
    store_seq_cst(&wanted_ns, clock_now_ns());
    if (host_pool_bytes()) {
        (void)give_back(saturating_difference(allowed_bytes(), bytes), 0, 0);
        if (host_pool_left() < bytes)
            (void)host_pool_empty();
    }
    return ask_for_room(bytes, again) >= bytes;
}

void host_pool_trim(uint64_t now_ns)
{
    if (!host_pool_bytes())
        return;
    if (account_ready_is_asked())
        (void)host_pool_empty();
    (void)give_back(allowed_bytes(), now_ns > HOST_POOL_KEEP_NS ? now_ns - HOST_POOL_KEEP_NS : 0,
        config_host_pool_ready(container_config()));
}
