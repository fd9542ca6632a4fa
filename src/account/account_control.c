/* SPDX-License-Identifier: Apache-2.0 */
/* What the container is told: limits of compute, pauses, priority, and its window. */
#include "account/account_self.h"

#include "base/clock.h"
#include "base/guard.h"
#include "base/sleep.h"
#include "region/epoch.h"
#include "region/grant.h"
#include "region/projection.h"
#include "region/region_control.h"
#include "region/region_device.h"
#include "region/slot.h"

#include <string.h>
#include <time.h>

#define WAIT_MAX_NS 1000000000ull /* a file that others replaced is noticed only by looking */
#define ACTIVE_KERNEL 2 /* what HAMi's library writes for its monitor to count down from */

/* ---- control words ---- */

static void take_limits_locked(unsigned device, bool in_force, struct account_control *control)
    REQUIRES(account_lock)
{
    (void)region_device_entry(account.region, device);
    const struct vgpu_device *entry = &account.region->devices[device].known;
    uint32_t percent = load_relaxed(&entry->core_limit);
    uint32_t soft = load_relaxed(&entry->core_soft_limit);
    if (!percent || percent >= 100)
        return;
    control->set[device] = (unsigned char)percent;
    if (!in_force)
        return;
    control->percent[device] = (unsigned char)percent;
    if (soft > percent)
        control->soft[device] = (unsigned char)(soft < 100 ? soft : 100);
}

static bool is_limited_locked(unsigned device) REQUIRES(account_lock)
{
    const struct vgpu_device *entry =
        region_device_entry(account.region, device) ? &account.region->devices[device].known : NULL;
    uint32_t percent = entry ? load_relaxed(&entry->core_limit) : 0;
    return entry && ((percent && percent < 100) || load_relaxed(&entry->memory_limit));
}

/* Of a grant nothing is taken from the region, which the container can write. */
static void take_grant_locked(struct region *region, struct region_control *words)
    REQUIRES(account_lock)
{
    const struct grant *grant = region->config ? region->config->grant : NULL;
    if (!grant)
        return;
    store_relaxed(&region->granted, grant_sequence(grant));
    struct grant_control control = grant_control(grant);
    words->switched_off = !control.in_force;
    words->priority = control.priority_set ? control.priority : VGPU_PRIORITY_DEFAULT;
    words->priority_set = control.priority_set ? VGPU_PRIORITY_LIVE : VGPU_PRIORITY_UNSET;
}

static bool limits_are_in_force(const struct region *region, const struct region_control *words)
{
    switch (region->config ? region->config->core_policy : CORE_POLICY_DEFAULT) {
    case CORE_POLICY_FORCE:
        return true;
    case CORE_POLICY_DISABLE:
        return false;
    default:
        return !words->switched_off;
    }
}

/* The epoch is read before all else: a thread that sleeps on it has seen no less than it says. */
static bool take_control_locked(struct account_control *control) REQUIRES(account_lock)
{
    struct region *region = account.region;
    bool any = false;
    struct region_control words = control_read(region);
    control->epoch = words.epoch; /* also of memory in the file's place: it is slept on */
    if (!load_acquire(&region->lost))
        region->known_control = words;
    words = region->known_control;
    take_grant_locked(region, &words);
    control->coupled_ns = load_relaxed(&region->shared->coupled_ns);
    bool in_force = limits_are_in_force(region, &words);
    for (unsigned d = 0; d < region->device_count; d++) {
        take_limits_locked(d, in_force, control);
        any |= control->percent[d] != 0;
    }
    /* Also of devices that this process has not met. */
    control->has_limits = load_relaxed(&region->shared->settings_hash) != 0 ||
                          (region->config && region->config->grant);
    for (unsigned d = 0; d < region->device_count; d++)
        control->has_limits |= is_limited_locked(d);
    if (!account.ended && account_slot_is_ours())
        projection_status(region, words.paused);
    control->paused = words.paused;
    control->held = words.held;
    control->release = words.release;
    control->lifted = words.switched_off;
    control->priority = words.priority;
    control->has_priority = words.priority_set != VGPU_PRIORITY_UNSET;
    return any || words.paused || words.held;
}

static uint64_t readings GUARDED_BY(account_lock);

bool account_control(struct account_control *ret_control)
{
    bool any = false;
    *ret_control = (struct account_control){.priority = VGPU_PRIORITY_DEFAULT};
    LOCKED_TO_END(account_lock);
    ret_control->number = ++readings;
    if (account.region) {
        (void)!region_keep(account.region);
        guard_enter();
        any = take_control_locked(ret_control);
        guard_leave();
    }
    return any;
}

/* ---- waiting ---- */

static uint64_t at_most(uint64_t value, uint64_t bound)
{
    return value < bound ? value : bound;
}

/* Without the lock: the mapping's address stays, whatever lies there. */
void account_control_wait(uint32_t seen, uint64_t timeout_ns)
{
    struct region *region = load_acquire(&account.region);
    timeout_ns = at_most(timeout_ns, WAIT_MAX_NS);
    if (region && !load_acquire(&region->lost))
        epoch_wait(&region->shared->orders_epoch, seen, timeout_ns);
    else
        sleep_ns(at_most(timeout_ns, region ? EPOCH_SLEEP_NS : timeout_ns));
}

uint32_t *account_control_word(void)
{
    struct region *region = load_acquire(&account.region);
    return region && !load_acquire(&region->lost) ? &region->shared->orders_epoch : NULL;
}

bool account_control_stands(uint32_t seen)
{
    uint32_t *word = account_control_word();
    const struct region *region = load_acquire(&account.region);
    const struct grant *grant = word && region->config ? region->config->grant : NULL;
    uint32_t *sequence = grant ? grant_word(grant) : NULL;
    return word && epoch_is(word, seen) &&
           (!sequence || epoch_is(sequence, load_relaxed(&region->granted)));
}

void account_control_wake(void)
{
    LOCKED_TO_END(account_lock);
    if (account.region && account_look_begin()) {
        epoch_raise(account.region->shared);
        (void)account_look_end();
    }
}

/* The monitor may write -1 at any moment. */
void account_note_activity(void)
{
    LOCKED_TO_END(account_lock);
    if (account.region && account_look_begin()) {
        int32_t *word = &account.region->map->hami.recent_kernel;
        int32_t old = load_relaxed(word);
        if (old >= 0 && old != ACTIVE_KERNEL)
            (void)swap_seq_cst(word, old, ACTIVE_KERNEL);
        if (account.region->config)
            projection_kernel(account.region->map, (uint64_t)time(NULL),
                account.region->config->record_kernel_interval_s);
        slot_reap_all(account.region, account.region->slot);
        (void)account_look_end();
    }
}

/* ---- the window ---- */

/* The process that closed it may have read the clock later than the one that asks, not later than
 * now. */
static bool is_closed(uint64_t until_ns, uint64_t now_ns)
{
    return until_ns > now_ns && (until_ns - now_ns <= ACCOUNT_WINDOW_MAX_NS ||
                                    until_ns - clock_now_ns() <= ACCOUNT_WINDOW_MAX_NS);
}

static bool may_close(uint64_t until_ns, uint64_t now_ns)
{
    return until_ns > now_ns && until_ns - now_ns <= ACCOUNT_WINDOW_MAX_NS;
}

struct account_window account_window(uint64_t now_ns)
{
    struct account_window window = {0};
    LOCKED_TO_END(account_lock);
    if (account.region && account_look_begin()) {
        const struct vgpu_region *shared = account.region->shared;
        window.until_ns = load_acquire(&shared->window_until_ns);
        window.closed_ns = load_relaxed(&shared->window_closed_ns);
        if (!account_look_end() || !is_closed(window.until_ns, now_ns))
            window = (struct account_window){0};
    }
    return window;
}

/* A reader of the new end reads no older beginning; of two that close it, both began now. */
static bool close_locked(struct vgpu_region *shared, uint64_t now_ns, uint64_t until_ns)
{
    uint64_t until = load_acquire(&shared->window_until_ns);
    if (is_closed(until, now_ns) || !may_close(until_ns, now_ns))
        return false;
    store_relaxed(&shared->window_closed_ns, now_ns);
    if (!swap_seq_cst(&shared->window_until_ns, until, until_ns))
        return false;
    epoch_raise(shared);
    return true;
}

bool account_window_close(uint64_t now_ns, uint64_t until_ns)
{
    bool closed = false;
    LOCKED_TO_END(account_lock);
    if (account.region && account_look_begin()) {
        closed = close_locked(account.region->shared, now_ns, until_ns);
        if (!account_look_end())
            closed = false;
    }
    return closed;
}

void account_window_open(void)
{
    LOCKED_TO_END(account_lock);
    if (account.region && account_look_begin()) {
        struct vgpu_region *shared = account.region->shared;
        if (exchange_acq_rel(&shared->window_until_ns, (uint64_t)0))
            epoch_raise(shared);
        (void)account_look_end();
    }
}
