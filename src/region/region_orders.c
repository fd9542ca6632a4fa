/* SPDX-License-Identifier: Apache-2.0 */
/* Orders in the region, and who waits for them. */
#include "region/region_orders.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/sleep.h"
#include "base/word.h"
#include "region/slot.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The word changes before its sleepers wake, so that none goes to sleep on it after. */
void orders_raise(struct vgpu_region *shared)
{
    int errno_kept = errno;
    (void)add_seq_cst(&shared->orders_epoch, 1u);
    syscall(SYS_futex, &shared->orders_epoch, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    errno = errno_kept;
}

void orders_wait(uint32_t *epoch, uint32_t seen, uint64_t timeout_ns)
{
    if (!word_wait_shared(epoch, seen, timeout_ns))
        sleep_ns(timeout_ns < ORDERS_SLEEP_NS ? timeout_ns : ORDERS_SLEEP_NS);
}

/* Wakes and moves nobody: what is left of that call compares the word. As if it were private, for
 * which the kernel does not look up the file's page: nobody sleeps on it so. */
bool orders_epoch_is(uint32_t *epoch, uint32_t seen)
{
    int errno_kept = errno;
    bool same = syscall(SYS_futex, epoch, FUTEX_CMP_REQUEUE_PRIVATE, 0, NULL, epoch, seen) == 0;
    errno = errno_kept;
    return same;
}

/* Files that follow each other would all count from 0. */
void orders_arrive(struct vgpu_region *shared, bool fresh)
{
    if (fresh)
        store_release(&shared->orders_epoch, (uint32_t)(clock_now_ns() >> 8));
    orders_raise(shared);
}

struct region_orders orders_read(const struct region *region)
{
    const struct vgpu_region *shared = region->shared;
    const struct vgpu_hami *hami = &region->map->hami;
    uint32_t set = load_acquire(&shared->priority_set);
    bool known = set == VGPU_PRIORITY_ENVIRONMENT || set == VGPU_PRIORITY_LIVE;
    return (struct region_orders){
        .epoch = load_acquire(&shared->orders_epoch),
        .paused = load_relaxed(&shared->paused) != 0,
        .held = load_relaxed(&hami->recent_kernel) < 0,
        .switched_off = load_relaxed(&hami->utilization_switch) == 0,
        .priority_set = known ? (enum vgpu_priority_set)set : VGPU_PRIORITY_UNSET,
        .priority = known ? load_relaxed(&shared->priority) : VGPU_PRIORITY_DEFAULT,
    };
}

void orders_set_priority(struct region *region, uint32_t priority, enum vgpu_priority_set by)
{
    store_relaxed(&region->shared->priority, priority);
    store_relaxed(
        &region->map->hami.priority, (int32_t)(priority < INT32_MAX ? priority : INT32_MAX));
    store_release(&region->shared->priority_set, (uint32_t)by);
}

/* A pause outlives its file as a limit does. */
static void restore(struct region *region)
{
    const struct region_orders *known = &region->known_orders;
    orders_set_priority(region, known->priority, known->priority_set);
    store_relaxed(&region->shared->paused, known->paused ? 1u : 0u);
    if (known->held)
        store_relaxed(&region->map->hami.recent_kernel, -1);
    if (known->switched_off)
        store_relaxed(&region->map->hami.utilization_switch, 0);
}

static void take_environment(struct region *region)
{
    const struct region_orders held = orders_read(region);
    if (!region->config->has_priority || region->pinned)
        return;
    bool replaceable = held.priority_set == VGPU_PRIORITY_UNSET ||
                       (held.priority_set == VGPU_PRIORITY_ENVIRONMENT &&
                           held.priority != region->config->priority && !slot_any_live(region));
    if (replaceable)
        orders_set_priority(region, region->config->priority, VGPU_PRIORITY_ENVIRONMENT);
}

void orders_take(struct region *region, bool fresh)
{
    if (fresh && region->orders_known)
        restore(region);
    else if (fresh)
        orders_set_priority(region, VGPU_PRIORITY_DEFAULT, VGPU_PRIORITY_UNSET);
    if (!fresh || !region->orders_known)
        take_environment(region);
    struct region_orders seen = orders_read(region);
    if (load_acquire(&region->lost))
        return;
    region->known_orders = seen;
    region->orders_known = true;
}
