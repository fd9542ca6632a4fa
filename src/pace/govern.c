/* SPDX-License-Identifier: Apache-2.0 */
/* The governor's looks. */
#include "pace/govern.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/word.h"
#include "compute/budget.h"
#include "compute/window.h"
#include "container/container.h"
#include "pace/channels.h"
#include "pace/completions.h"
#include "pace/events.h"
#include "pace/gang.h"
#include "pace/governor.h"
#include "pace/halt.h"
#include "pace/policy.h"
#include "pace/spot_check.h"
#include "pace/tenants.h"
#include "pace/thread.h"
#include "pace/unmeasured.h"
#include "account/account.h"
#include "rm/rm_channels.h"
#include "vgpu/board.h"

#include <string.h>

/* Nanoseconds between looks while something may be long (WINDOW_LONG_NS). */
#define LOOK_NS 10000000ull
/* Nanoseconds between looks while only short work is on its way and no other tenant works: one that
 * comes wakes the governor. A look costs 25 us of a core, most of it for the wake (H200, virtual
 * machine): 0.13 %; looks are 1 ms apart at least. */
#define CALM_LOOK_NS 20000000ull
#define LOOK_LEAST_NS 1000000ull
/* Nanoseconds between looks while a tenant of higher priority works, which must be heard again
 * soon, and in a pause, whose end wakes the governor. */
#define HOLD_LOOK_NS 5000000ull
#define PAUSE_LOOK_NS 1000000000ull
/* Nanoseconds between looks while a tenant of higher priority works and there is nothing to stop:
 * less than what makes a closure overdue (100 ms). */
#define HOLD_IDLE_NS 50000000ull
/* Nanoseconds. A launch that waits while the container is held says so more often than this (every
 * 20 ms). */
#define HELD_NS 100000000ull
/* Nanoseconds between looks in a pause by HAMi's monitor, which wakes nothing when it ends. */
#define MONITOR_LOOK_NS 20000000ull
/* Nanoseconds between looks in windows: less than what makes the container silent to others
 * (REGISTRY_SILENT_WINDOWS_NS). Tenants that come wake the governor. */
#define WINDOW_LOOK_NS 28000000ull
/* Nanoseconds. A container that was in windows within this keeps to its slot, also between the end
 * of one kernel and the moment when the next is known to be long. */
#define SLOTS_LAST_NS 300000000ull
/* Nanoseconds between looks while nothing is measured: control words wake the governor. */
#define STAND_BY_NS 1000000000ull
/* Nanoseconds between looks while some devices have a limit, and only others have work. */
#define UNMEASURED_LOOK_NS 50000000ull
/* Nanoseconds after its last work in which the container counts as working: two looks. */
#define ACTIVE_NS 20000000ull
/* Nanoseconds. A launch that waits for its limit says so more often than this (every 20 ms). */
#define WAITING_NS 50000000ull
/* Nanoseconds. meters_lock may be held by a thread that the driver blocks until running work ends:
 * after this, what runs is charged by the clock. */
#define BLIND_NS 20000000ull
/* Nanoseconds after which it is more likely running work that blocks the thread than a processor
 * without time for it: the work is stopped. */
#define BLIND_SURE_NS 100000000ull
#define LOCK_TRY_NS 1000000ull

static struct device_work {
    uint64_t worked_ns;          /* when work was admitted last */
    uint64_t waited_ns;          /* when a launch was last held back; 0: none since one went on */
    struct events_survey survey; /* at the last look */
    bool in_windows;
    uint64_t windows_ns; /* when it was last in windows, or closed; 0 never */
    int64_t lent_ns;     /* charged while meters_lock was not to be had */
} devices[VGPU_REGION_DEVICES];

static struct {
    bool unmeasured;  /* work was launched that is not measured */
    uint64_t held_ns; /* when a launch last waited because the container is held */
    uint64_t polled_ns;
    uint64_t blind_from_ns;                    /* since when meters_lock is not to be had */
    uint64_t blind_since_ns;                   /* up to when what runs is charged since then */
    unsigned bound;                            /* no device at or above it has had work */
    unsigned char limits[VGPU_REGION_DEVICES]; /* at the last look */
    bool limits_are_known;
    uint32_t epoch; /* of the control words at the last look */
} governor;

static uint64_t at_most(uint64_t ns, uint64_t most_ns)
{
    return ns < most_ns ? ns : most_ns;
}

/* ---- what runs ---- */

void govern_note_work(unsigned device, uint64_t now_ns)
{
    store_relaxed(&devices[device].worked_ns, now_ns);
    if (device >= load_relaxed(&governor.bound))
        store_relaxed(&governor.bound, device + 1);
}

void govern_note_wait(unsigned device, uint64_t now_ns)
{
    store_relaxed(&devices[device].waited_ns, now_ns);
    governor_rouse();
}

void govern_note_admitted(unsigned device, uint64_t now_ns)
{
    govern_note_work(device, now_ns);
    store_relaxed(&devices[device].waited_ns, (uint64_t)0);
}

void govern_note_unmeasured(void)
{
    if (!load_relaxed(&governor.unmeasured))
        store_relaxed(&governor.unmeasured, true);
}

void govern_note_held(uint64_t now_ns)
{
    store_relaxed(&governor.held_ns, now_ns);
    governor_rouse();
}

void govern_rouse(void)
{
    governor_rouse();
}

void govern_note_polled(uint64_t now_ns)
{
    store_relaxed(&governor.polled_ns, now_ns);
}

static void charge(struct vgpu_compute *words, struct vgpu_usage *own, void *argument)
{
    const int64_t *gpu_ns = argument;
    (void)own;
    budget_charge(words, *gpu_ns);
}

/* The charge is lent: it is given back as soon as events show what ran. */
static void lend(unsigned device, uint64_t passed_ns)
{
    int64_t gpu_ns = (int64_t)(passed_ns / 1000 * policy_part(device).likely);
    if (account_visit_compute(device, charge, &gpu_ns))
        devices[device].lent_ns += gpu_ns;
}

/* After a poll, so that no budget lacks both in between. */
static void give_back_lent(void)
{
    for (unsigned d = 0; d < governor.bound; d++) {
        int64_t gpu_ns = -devices[d].lent_ns;
        if (gpu_ns && account_visit_compute(d, charge, &gpu_ns))
            devices[d].lent_ns = 0;
    }
}

/* A thread of the process blocks inside the driver, most likely by running work; or the processor
 * does not run that thread. True if work has been charged for by now. */
static bool go_blind(uint64_t now_ns)
{
    /* A thread that polled since then had the lock. */
    if (!governor.blind_since_ns || load_relaxed(&governor.polled_ns) >= governor.blind_from_ns)
        governor.blind_since_ns = governor.blind_from_ns = now_ns;
    if (now_ns - governor.blind_since_ns < BLIND_NS)
        return false;
    for (unsigned d = 0; d < governor.bound; d++) {
        if (!policy_percent(d))
            continue;
        lend(d, now_ns - governor.blind_since_ns);
        bool runs_long = devices[d].in_windows || now_ns - governor.blind_from_ns >= BLIND_SURE_NS;
        devices[d].survey = (struct events_survey){.outstanding = 1, .runs_long = runs_long};
    }
    governor.blind_since_ns = now_ns;
    return true;
}

/* Whether to poll: other threads may have a moment ago. */
static bool is_poll_due(uint64_t now_ns)
{
    bool due = now_ns - load_relaxed(&governor.polled_ns) >= LOOK_NS || policy_only_channels();
    for (unsigned d = 0; d < governor.bound; d++)
        due |= devices[d].survey.runs_long || devices[d].lent_ns || spot_check_is_due(d, now_ns);
    return due;
}

static struct events_survey survey(int device, uint64_t now_ns) REQUIRES(meters_lock)
{
    struct events_survey measured = events_survey(device, now_ns, WINDOW_LONG_NS);
    if (policy_is_finished())
        return measured;
    struct events_survey estimated = thread_survey(device, now_ns, WINDOW_LONG_NS);
    measured.outstanding += estimated.outstanding;
    measured.runs_long |= estimated.runs_long;
    measured.long_in_ns = at_most(measured.long_in_ns, estimated.long_in_ns);
    unmeasured_survey(device, now_ns, WINDOW_LONG_NS, &measured);
    return measured;
}

/* Looks at what runs, also while other threads poll all the time. False if events cannot be
 * asked. */
static bool see_what_runs(uint64_t now_ns)
{
    bool due = is_poll_due(now_ns);
    if (!lock_try(&meters_lock))
        return !due || go_blind(now_ns);
    governor.blind_since_ns = 0;
    if (due && !policy_is_finished())
        (void)completions_poll_all();
    give_back_lent();
    for (unsigned d = 0; d < governor.bound; d++) {
        spot_check_take(d, now_ns, thread_estimated_works);
        devices[d].survey = survey((int)d, now_ns);
    }
    lock_release(&meters_lock);
    if (due)
        govern_note_polled(clock_now_ns());
    return true;
}

/* ---- windows ---- */

struct look {
    struct window_view view;
    unsigned device;
};

/* What was charged before it runs is not used up yet. */
static void read_balance(struct vgpu_compute *words, struct vgpu_usage *own, void *argument)
{
    struct look *look = argument;
    struct window_view *view = &look->view;
    view->balance_ns += budget_refill(words, view->percent, clock_now_ns());
    if (own)
        store_relaxed(&own->gate, channels_gate(look->device));
}

static bool may_close(unsigned device)
{
    if (container_config()->gate == GATE_LAUNCH || !rm_channels_count(device))
        return false;
    enum rm_channels_state state = rm_channels_state(device);
    return state == RM_CHANNELS_WORKS || state == RM_CHANNELS_UNTESTED ||
           state == RM_CHANNELS_NO_GROUP;
}

/* The container is looked at each WINDOW_LOOK_NS, and announced no more often. */
static bool goes_in_windows(unsigned device)
{
    return devices[device].in_windows || policy_only_channels();
}

static struct window_view view_of(unsigned device)
{
    struct device_work *here = &devices[device];
    bool only_gate = policy_only_channels();
    struct look look = {
        .view = {.percent = policy_percent(device), .balance_ns = (int64_t)here->survey.left_ns},
        .device = device};
    look.view.slot = tenants_slot(device);
    look.view.now_ns = clock_now_ns();
    bool all = only_gate || look.view.slot.period_ns;
    bool runs = here->survey.runs_long || (all && here->survey.outstanding);
    if (runs && container_config()->gate != GATE_LAUNCH)
        channels_tell(device);
    look.view.runs_on = runs && may_close(device);
    look.view.in_windows = goes_in_windows(device) || look.view.slot.period_ns;
    if (look.view.runs_on)
        (void)account_visit_compute(device, read_balance, &look);
    else
        here->in_windows = false;
    return look.view;
}

/* No tenant suffers if it hears of this container's work, or of its end, a little later. */
static bool is_calm(unsigned device)
{
    return policy_part(device).permille >= 1000 && !policy_has_priority() &&
           !policy_only_channels();
}

/* Work in windows shows nothing before it has used up its time. */
static uint64_t look_again_ns(unsigned device, const struct window_view *view)
{
    uint64_t open = window_open_ns(view);
    const struct events_survey *survey = &devices[device].survey;
    if (survey->runs_long ? view->in_windows : !survey->outstanding)
        return at_most(open, WINDOW_LOOK_NS);
    if (survey->runs_long || !is_calm(device))
        return at_most(open, LOOK_NS);
    uint64_t long_in = survey->long_in_ns > LOOK_LEAST_NS ? survey->long_in_ns : LOOK_LEAST_NS;
    return at_most(open, at_most(long_in, CALM_LOOK_NS));
}

/* How long the container is closed from now on, 0: not; *ret_open_ns: how long it may go on without
 * a look. */
static uint64_t decide(uint64_t *ret_open_ns)
{
    uint64_t closed = 0;
    *ret_open_ns = WINDOW_LOOK_NS;
    for (unsigned d = 0; d < governor.bound; d++) {
        struct window_view view = view_of(d);
        uint64_t wanted = window_close_ns(&view), open = look_again_ns(d, &view);
        if (wanted)
            devices[d].in_windows = true;
        closed = wanted > closed ? wanted : closed;
        *ret_open_ns = open < *ret_open_ns ? open : *ret_open_ns;
    }
    return closed;
}

/* ---- looks ---- */

static bool waits_for_limit(unsigned device, uint64_t now_ns)
{
    return load_relaxed(&devices[device].waited_ns) + WAITING_NS > now_ns;
}

/* Nanoseconds until the device is idle if nothing more comes; 0: it is. A container that waits for
 * its limit works too: what others run meanwhile is measured as beside it, or they would pay for
 * its time slices when it goes on. */
static uint64_t works_for_ns(unsigned device, uint64_t now_ns)
{
    uint64_t until = load_relaxed(&devices[device].worked_ns) + ACTIVE_NS;
    if (waits_for_limit(device, now_ns))
        return ACTIVE_NS;
    return until > now_ns ? until - now_ns : 0;
}

/* Of several devices each would have slots of its own, while all are closed together. With the
 * channel gate alone a container below its limit works in windows, too. */
static bool keeps_to_slot(unsigned device, uint64_t now_ns)
{
    bool alone = true;
    if (goes_in_windows(device) || channels_are_due())
        devices[device].windows_ns = now_ns;
    for (unsigned d = 0; d < governor.bound; d++)
        alone &= d == device || (!devices[d].survey.outstanding && !works_for_ns(d, now_ns));
    return alone && !policy_only_channels() && devices[device].windows_ns &&
           now_ns - devices[device].windows_ns < SLOTS_LAST_NS;
}

/* Nanoseconds until all devices are idle if nothing more comes: the others hear of the end at once.
 * 0: all are, and were a moment ago. */
static uint64_t meet_all(uint64_t now_ns, bool stopped)
{
    uint64_t longest = 0;
    for (unsigned d = 0; d < governor.bound; d++) {
        uint64_t left = works_for_ns(d, now_ns);
        struct tenants_own own = {
            .active = !stopped && (devices[d].survey.outstanding || left),
            .wants = waits_for_limit(d, now_ns),
            .paused = policy_pause(),
            .windows = goes_in_windows(d) || channels_are_due(),
            .divided = keeps_to_slot(d, now_ns),
        };
        /* Work that goes on is stopped now, not when it has overdrawn. */
        if (tenants_meet(d, &own, now_ns))
            devices[d].in_windows |= devices[d].survey.runs_long;
        if (own.active && devices[d].survey.outstanding)
            left = WINDOW_LOOK_NS;
        longest = left > longest ? left : longest;
    }
    return longest;
}

static void close_all(uint64_t due_ns)
{
    governor.blind_since_ns = 0; /* nothing runs meanwhile */
    channels_close_all(due_ns, governor.bound);
}

/* Nothing is known to run, and no launch waits: one that has to rouses the governor. */
static bool is_idle(uint64_t now_ns)
{
    bool busy =
        load_relaxed(&governor.unmeasured) || load_relaxed(&governor.held_ns) + HELD_NS > now_ns;
    for (unsigned d = 0; d < governor.bound; d++) {
        busy |= devices[d].survey.outstanding || works_for_ns(d, now_ns);
    }
    return !busy;
}

static uint64_t hold(uint64_t now_ns)
{
    close_all(now_ns);
    (void)meet_all(now_ns, true);
    if (channels_are_held())
        return HOLD_LOOK_NS;
    if (policy_pause())
        return policy_pause_is_the_monitors() ? MONITOR_LOOK_NS : PAUSE_LOOK_NS;
    return is_idle(now_ns) ? HOLD_IDLE_NS | GOVERNOR_IDLE : HOLD_LOOK_NS;
}

/* A window was closed by the limits of that time. */
static bool limits_differ(void)
{
    bool differ = false;
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++)
        differ |= governor.limits[d] != (unsigned char)policy_percent(d);
    return governor.limits_are_known && differ;
}

static bool limits_changed(void)
{
    bool changed = limits_differ();
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++)
        governor.limits[d] = (unsigned char)policy_percent(d);
    governor.limits_are_known = true;
    return changed;
}

/* The others hear meanwhile that the container is there, and do not take the device for free. If
 * they have gone, their time is the container's at once. */
static uint64_t stay_closed(uint64_t until_ns)
{
    close_all(until_ns);
    (void)meet_all(clock_now_ns(), false);
    if (limits_differ())
        return 1;
    uint64_t now = clock_now_ns();
    return at_most(until_ns > now ? until_ns - now : 1, WINDOW_LOOK_NS);
}

/* A device without a limit is not measured, but a pause or a window stops what runs there. */
static bool has_unmeasured(void)
{
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        if (rm_channels_count(d) && !policy_percent(d))
            return true;
    }
    return false;
}

/* What was launched before there was a reason to measure it is stopped as all else. */
static bool may_run_unmeasured(void)
{
    bool any = false;
    for (unsigned d = 0; d < VGPU_REGION_DEVICES && load_relaxed(&governor.unmeasured); d++) {
        if (!rm_channels_count(d))
            continue;
        any = true;
        if (d >= load_relaxed(&governor.bound))
            store_relaxed(&governor.bound, d + 1);
    }
    return any;
}

/* In windows, what works may not run. */
static uint64_t plan_checks(uint64_t pause_ns)
{
    uint64_t now = clock_now_ns(), soonest = UINT64_MAX;
    for (unsigned d = 0; d < governor.bound; d++) {
        uint64_t until = pause_ns;
        if (goes_in_windows(d) || !policy_percent(d))
            spot_check_pause(d, false);
        else
            until = spot_check_plan(d, now, pause_ns, is_calm(d));
        soonest = at_most(soonest, until);
    }
    return soonest;
}

static void rest_from_checks(void)
{
    for (unsigned d = 0; d < governor.bound; d++)
        spot_check_pause(d, true);
}

static uint64_t govern_open(uint64_t now_ns, bool unmeasured)
{
    channels_open_all();
    bool seen = see_what_runs(now_ns);
    uint64_t work_ns = meet_all(now_ns, false);
    if (!seen)
        return LOCK_TRY_NS;
    gang_tell();
    if (policy_hold())
        return 1;
    uint64_t open_ns, closed_ns = decide(&open_ns);
    if (closed_ns) {
        now_ns = clock_now_ns();
        /* The governor's own change needs no wake. */
        if (account_window_close(now_ns, now_ns + closed_ns))
            governor.epoch++;
        return stay_closed(now_ns + closed_ns);
    }
    uint64_t show_ns = account_show_work(now_ns);
    if (work_ns)
        return plan_checks(at_most(open_ns, work_ns));
    rest_from_checks();
    if (has_unmeasured())
        return UNMEASURED_LOOK_NS | GOVERNOR_IDLE;
    if (show_ns)
        return show_ns | GOVERNOR_IDLE;
    return unmeasured ? STAND_BY_NS | GOVERNOR_IDLE : GOVERNOR_NOTHING;
}

/* Without a limit the container is measured only where others' limits need it. */
static uint64_t stand_by(uint64_t now_ns)
{
    bool beside = false;
    channels_open_all();
    unmeasured_stand_by(now_ns);
    if (!policy_may_have_neighbours(now_ns))
        return STAND_BY_NS;
    for (unsigned d = 0; d < VGPU_REGION_DEVICES && !beside; d++)
        beside = rm_channels_count(d) && tenants_limited_work(d, now_ns);
    if (!beside)
        return STAND_BY_NS;
    policy_note_limited_beside(now_ns);
    return 1;
}

/* Nanoseconds until the next look. */
static uint64_t look(void)
{
    uint64_t now = clock_now_ns();
    bool unmeasured = may_run_unmeasured();
    bool limited = policy_read(now, &governor.epoch);
    if (policy_hold()) {
        (void)account_show_work(now);
        return hold(now);
    }
    struct account_window window = account_window(now);
    if (limits_changed() && window.until_ns) {
        account_window_open();
        window.until_ns = 0;
    }
    if (limited && window.until_ns)
        return stay_closed(window.until_ns);
    if (!limited)
        return stand_by(now);
    return govern_open(now, unmeasured);
}

/* Called by the governor's thread. One guarded access around all that it does in the region and the
 * registries. */
static uint64_t govern(void)
{
    if (policy_is_finished() || !halt_try_enter())
        return GOVERNOR_NOTHING;
    guard_enter();
    uint64_t ns = look();
    guard_leave();
    halt_leave(true);
    /* What was stopped, whose threads may all be blocked in the driver. */
    if (policy_pause() && !is_idle(clock_now_ns()))
        policy_explain_pause();
    return ns;
}

/* Until the control words change, the word is another, or the neighbours change. Where the kernel
 * cannot wait for several words at once, it rests for the word alone, shortly, and looks at the
 * neighbours. */
static void rest(uint64_t ns, uint32_t *word, uint32_t value)
{
    struct word_awaited words[WORD_AWAITED_MAX];
    uint32_t *control = account_control_word();
    unsigned count = 0;
    if (control)
        words[count++] = (struct word_awaited){control, governor.epoch, .shared = true};
    if (word)
        words[count++] = (struct word_awaited){word, value, .shared = false};
    unsigned own = count;
    if (!word)
        ns = tenants_await(ns, words, &count);
    if (control && word_wait_any(words, count, at_most(ns, STAND_BY_NS)))
        return;
    if (word)
        word_wait_for(word, value, ns);
    else
        account_control_wait(governor.epoch, count > own ? at_most(ns, LOOK_NS) : ns);
}

void govern_watch(void)
{
    governor_wake(govern, rest);
}

void govern_finish(void)
{
    channels_finish();
    governor_stop();
    tenants_leave();
}

void govern_reset(void)
{
    memset(devices, 0, sizeof(devices));
    memset(&governor, 0, sizeof(governor));
    channels_reset();
    governor_reset();
    spot_check_reset();
}
