/* SPDX-License-Identifier: Apache-2.0 */
/* What HAMi's monitor sees of the process (region/projection.h). */
#include "account/account_self.h"

#include "base/fork.h"
#include "base/guard.h"
#include "base/lock.h"
#include "base/sleep.h"
#include "region/projection.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define SECOND_NS 1000000000ull
/* A second that began so long ago is none: the process rested meanwhile. */
#define STALE_NS (2 * SECOND_NS)
#define END_TRIES 20
#define END_PAUSE_NS 500000ull

void account_show_locked(unsigned device) REQUIRES(account_lock)
{
    int entry = account.region->devices[device].entry;
    if (entry >= 0 && !account.ended)
        projection_usage(account.region, (unsigned)entry);
}

/* ---- the share of GPU time ---- */

static void show_percent(unsigned entry, unsigned percent) REQUIRES(account_lock)
{
    bool works = false;
    account.work[entry].percent = percent;
    projection_work(account.region, entry, percent);
    for (unsigned e = 0; e < VGPU_HAMI_DEVICES; e++)
        works |= account.work[e].percent != 0;
    store_relaxed(&account.works, works);
}

static void count_from(struct account_work *work, uint64_t gpu_ns, uint64_t now_ns)
{
    work->since_ns = now_ns;
    work->since_gpu_ns = gpu_ns;
}

/* The shares of a container's processes add up to its own: gpu_time_ns counts what is new. */
static void show_work(unsigned entry, uint64_t gpu_ns, uint64_t now_ns) REQUIRES(account_lock)
{
    struct account_work *work = &account.work[entry];
    uint64_t former_ns = work->last_gpu_ns, passed = now_ns - work->since_ns;
    work->last_gpu_ns = gpu_ns;
    if (!work->since_ns && gpu_ns == former_ns)
        return;
    if (!work->since_ns || now_ns < work->since_ns || gpu_ns < work->since_gpu_ns ||
        (passed > STALE_NS && !work->percent)) {
        count_from(work, gpu_ns < former_ns ? gpu_ns : former_ns, now_ns);
        return;
    }
    if (passed < SECOND_NS)
        return;
    uint64_t percent = ((gpu_ns - work->since_gpu_ns) * 100 + passed / 2) / passed;
    show_percent(entry, percent < 100 ? (unsigned)percent : 100u);
    count_from(work, gpu_ns, now_ns);
}

void account_show_work_locked(int entry, const struct vgpu_usage *own, uint64_t now_ns)
    REQUIRES(account_lock)
{
    if (entry >= 0 && entry < (int)VGPU_HAMI_DEVICES && own && !account.ended)
        show_work((unsigned)entry, load_relaxed(&own->gpu_time_ns), now_ns);
}

/* A share is that of a second at least. */
static uint64_t again_ns(uint64_t now_ns) REQUIRES(account_lock)
{
    uint64_t soonest = SECOND_NS;
    for (unsigned e = 0; e < VGPU_HAMI_DEVICES; e++) {
        const struct account_work *work = &account.work[e];
        uint64_t due = work->since_ns + SECOND_NS;
        if (work->percent && due > now_ns && due - now_ns < soonest)
            soonest = due - now_ns;
    }
    return soonest;
}

uint64_t account_show_work(uint64_t now_ns)
{
    if (!load_relaxed(&account.works))
        return 0;
    LOCKED_TO_END(account_lock);
    if (account.region && !account.ended && account_look_begin()) {
        const struct region *region = account.region;
        for (unsigned e = 0; account_slot_is_ours() && e < VGPU_HAMI_DEVICES; e++) {
            if (account.work[e].percent)
                show_work(e,
                    load_relaxed(&region->shared->slots[region->slot].usage[e].gpu_time_ns),
                    now_ns);
        }
        (void)account_look_end();
    }
    return load_relaxed(&account.works) ? again_ns(now_ns) : 0;
}

/* ---- the end ---- */

/* The slot counts until the process is gone, and with it its memory; monitors, which test nobody's
 * life, are told before. */
static bool vanish_locked(void) REQUIRES(account_lock)
{
    account.ended = true;
    if (!account.region || load_acquire(&account.region->lost))
        return true;
    if (!guard_try_enter())
        return false;
    if (account_slot_is_ours())
        projection_wipe(account.region->map, (unsigned)account.region->slot);
    guard_leave();
    return true;
}

static bool look_locked(void) REQUIRES(account_lock)
{
    bool is_free = guard_try_enter();
    if (is_free)
        guard_leave();
    return is_free;
}

/* A signal's handler that calls exit may have interrupted what holds the account's lock or the
 * guard's. */
static bool done_at_end(bool (*act_locked)(void))
{
    int errno_kept = errno;
    bool done = false;
    for (int i = 0; i < END_TRIES && !done; i++) {
        if (i)
            sleep_ns(END_PAUSE_NS);
        if (!lock_try(&account_lock))
            continue;
        done = act_locked();
        lock_release(&account_lock);
    }
    errno = errno_kept;
    return done;
}

/* A forked child that used nothing of this does not even have the mapping. */
static void process_ends(void)
{
    if (load_relaxed(&account.pid) != (int32_t)getpid() || fork_is_unentered_child())
        return;
    lock_release_all();
    (void)done_at_end(vanish_locked);
}

bool account_answers_at_end(void)
{
    return done_at_end(look_locked);
}

/* A forked child has its parent's handler. */
void account_show_until_end(void)
{
    if (!exchange_acq_rel(&account.pid, (int32_t)getpid()))
        (void)!atexit(process_ends);
}
