/* SPDX-License-Identifier: Apache-2.0 */
/* The gate: admission of launches, and the end of the process. */
#include "pace/gate.h"

#include "base/sleep.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"
#include "pace/completions.h"
#include "pace/channels.h"
#include "pace/govern.h"
#include "pace/halt.h"
#include "pace/events.h"
#include "pace/policy.h"
#include "pace/share.h"
#include "compute/budget.h"
#include "compute/durations.h"
#include "account/account.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Nanoseconds of a sleep at the gate, at most: limits may change meanwhile, others may give time
 * back. */
#define WAIT_MAX_NS 20000000ull
/* The same while the process has work on its way: what its estimates exceeded is given back when
 * that ends. */
#define WAIT_BUSY_NS 5000000ull
/* Nanoseconds of a sleep while the container is held, at most; the end of a hold wakes. */
#define HOLD_WAIT_NS 20000000ull
/* Launches of unknown duration that may be on their way on a device, and nanoseconds that a launch
 * waits for their durations: a kernel may be waiting for the very launch that waits here. */
#define UNKNOWN_MAX 4
#define UNKNOWN_WAIT_NS 100000000ull
/* Nanoseconds between two polls in that wait, which double from 20 to 200 us: if each launch has a
 * new shape, all of them wait, and hardly longer than the work takes. */
#define UNKNOWN_LOOK_NS 20000ull
#define UNKNOWN_LOOK_MOST_NS 200000ull
/* Nanoseconds without any completion after which a launch that waits goes on: what runs may wait
 * for it. */
#define STALLED_NS 10000000000ull

/* At the end of the process: tries to have meters_lock, and nanoseconds between them; 0.1 s in all,
 * longer than a poll takes. */
#define END_TRIES 100
#define END_PAUSE_NS 1000000ull

static struct {
    int32_t pid; /* whose end is watched; 0: no process's yet */
} gate;

/* ---- the end of the process ---- */

/* Called before the driver's own handler, which was registered when the driver was initialised. */
static void process_ends(void)
{
    /* A forked child that used nothing of this has its locks from its parent as they were. */
    if (load_relaxed(&gate.pid) != (int32_t)getpid())
        return;
    lock_release_all();
    policy_finish();
    govern_finish();
    /* A thread that polls now may finish. The thread that calls exit from a signal's handler may be
     * the one that was interrupted in it. */
    for (int i = 0; i < END_TRIES; i++) {
        if (lock_try(&meters_lock)) {
            lock_release(&meters_lock);
            return;
        }
        sleep_ns(END_PAUSE_NS);
    }
    /* The lock's thread is blocked in the driver by what the signal's handler interrupted there:
     * what ends from here on ends without meters. */
    meters_use(false);
}

static void watch(void)
{
    if (!load_relaxed(&gate.pid) && swap_seq_cst(&gate.pid, (int32_t)0, (int32_t)getpid()))
        (void)!atexit(process_ends);
    govern_watch();
}

void gate_watch(void)
{
    meters_use(true);
    watch();
}

void gate_stand_by(void)
{
    if (policy_is_given())
        watch();
}

/* ---- the gate ---- */

struct admission {
    unsigned device, percent;
    bool always; /* no budget holds it back */
    uint64_t now_ns;
    int64_t gone_ns;   /* admitted since the last visit */
    int64_t coming_ns; /* the estimate of the launch that asks */
    int64_t balance_ns;
    uint64_t since_ns; /* since when it waits */
    bool streams;      /* several streams had work before it */
    bool admitted;
};

/* What must be available before a launch that had to wait goes on. Other launches take what is
 * refilled meanwhile: for twice the refill's time, and no longer. */
static int64_t opening_ns(const struct admission *admission)
{
    int64_t opening = admission->streams ? budget_open_streams_ns(admission->percent) : 0;
    uint64_t patience = opening ? 2 * budget_fill_ns(0, opening, admission->percent) : 0;
    return admission->now_ns - admission->since_ns < patience ? opening : 0;
}

static void admit(struct vgpu_compute *words, struct vgpu_usage *own, void *argument)
{
    struct admission *admission = argument;
    struct budget_share *share = share_of(admission->device);
    unsigned active = share_active(admission->device);
    if (own) {
        store_relaxed(&own->asked_ns, admission->now_ns);
        store_relaxed(&own->gate, channels_gate(admission->device));
    }
    budget_charge(words, admission->gone_ns);
    admission->balance_ns = budget_refill(words, admission->percent, admission->now_ns);
    budget_share_refill(share, words, admission->percent, active);
    budget_share_charge(share, words, admission->percent, admission->gone_ns);
    admission->admitted =
        admission->always || (admission->balance_ns >= opening_ns(admission) &&
                                 budget_admits(admission->balance_ns, admission->percent, share,
                                     active, (uint64_t)admission->coming_ns));
    if (!admission->admitted)
        return;
    budget_charge(words, admission->coming_ns);
    budget_share_charge(share, words, admission->percent, admission->coming_ns);
}

unsigned gate_poll(const struct meter_record *record, unsigned *ret_on_device)
{
    if (channels_are_closed((unsigned)record->device)) {
        *ret_on_device = 1;
        return load_relaxed(&record->meter.count);
    }
    unsigned outstanding = 0;
    LOCKED(meters_lock) {
        *ret_on_device = completions_poll(record->device);
        outstanding = record->meter.count;
    }
    govern_note_polled(clock_now_ns());
    return outstanding;
}

/* Nanoseconds until the container may have GPU time; if it has some, until another process may have
 * left some over. */
static uint64_t wait_ns(const struct admission *admission, bool busy)
{
    const uint64_t most = busy ? WAIT_BUSY_NS : WAIT_MAX_NS;
    uint64_t wait = budget_wait_ns(admission->balance_ns, admission->percent);
    if (opening_ns(admission))
        wait = budget_fill_ns(admission->balance_ns, opening_ns(admission), admission->percent);
    if (!wait)
        wait = BUDGET_SURPLUS_NS / 2;
    return wait < most ? wait : most;
}

/* Kernels may wait for each other; one that never ends must not hang its program here. */
struct stall {
    uint64_t reached, since_ns;
};

static bool is_stalled(struct stall *stall, unsigned outstanding)
{
    uint64_t now = clock_now_ns(), reached = load_relaxed(&completions_count);
    if (!outstanding || !stall->since_ns || stall->reached != reached)
        *stall = (struct stall){reached, now};
    return now - stall->since_ns > STALLED_NS;
}

/* Launches need not wait if channels are taken off the GPU instead, and a governor does that. */
static bool is_always_admitted(unsigned device, unsigned percent)
{
    return percent >= POLICY_WATCHED ||
           (policy_only_channels() && channels_gate(device) == VGPU_GATE_CHANNEL);
}

void gate_wait_while_held(void)
{
    while (policy_hold()) {
        policy_explain_pause();
        channels_note_held();
        govern_note_held(clock_now_ns());
        unsigned depth = halt_suspend();
        policy_wait(HOLD_WAIT_NS);
        halt_resume(depth);
        (void)policy_look(clock_now_ns());
        channels_look_after();
    }
}

/* One visit to the budget; true if the launch is admitted. What could not be charged is charged
 * later. */
static bool ask(struct admission *admission)
{
    unsigned device = admission->device;
    admission->now_ns = clock_now_ns();
    admission->percent = policy_look(admission->now_ns) ? policy_percent(device) : 0;
    admission->always = is_always_admitted(device, admission->percent);
    if (admission->percent)
        share_count_active(device, admission->now_ns);
    if (policy_hold())
        return false;
    admission->gone_ns = share_take_uncharged(device);
    bool asked = account_visit_compute(device, admit, admission);
    if (!asked)
        share_charge_later(device, admission->gone_ns);
    if (asked && admission->admitted)
        return true;
    if (asked && admission->percent)
        return false;
    share_charge_later(device, admission->coming_ns);
    return true;
}

int64_t gate_charge_now(unsigned device)
{
    struct admission admission = {.device = device};
    return ask(&admission) && admission.percent ? admission.balance_ns : INT64_MIN;
}

/* Whether the stream is one of several of its context that launch. */
static bool has_streams_beside(const struct meter_record *record, uint64_t now_ns)
{
    LOCKED_TO_END(meters_lock);
    return events_beside(record, now_ns);
}

/* One sleep of a launch that has to wait. */
static void wait_once(const struct admission *admission, bool busy)
{
    if (policy_hold()) {
        policy_explain_pause();
        channels_note_held();
        govern_note_held(admission->now_ns);
        policy_wait(HOLD_WAIT_NS);
        return;
    }
    govern_note_wait(admission->device, admission->now_ns);
    sleep_ns(wait_ns(admission, busy));
}

int64_t gate_wait(const struct meter_record *record, uint32_t id, uint64_t coming_ns,
    void (*before)(const struct meter_record *, uint32_t), bool *ret_waited)
{
    unsigned device = (unsigned)record->device, outstanding = record->meter.count;
    struct admission admission = {.device = device, .coming_ns = (int64_t)coming_ns};
    struct stall stall = {.since_ns = 0};
    *ret_waited = false;
    share_charge_later(device, (int64_t)events_blind_ns(device, clock_now_ns()));
    while (!ask(&admission)) {
        if (!*ret_waited) {
            before(record, id);
            admission.streams = has_streams_beside(record, admission.now_ns);
            admission.since_ns = admission.now_ns;
        }
        *ret_waited = true;
        unsigned depth = halt_suspend();
        wait_once(&admission, outstanding > 0);
        halt_resume(depth);
        (void)gate_poll(record, &outstanding);
        /* What passed here was spent waiting. */
        (void)events_blind_ns(device, clock_now_ns());
        channels_look_after();
        if (policy_hold() || channels_are_closed(device)) {
            stall.since_ns = 0;
        } else if (is_stalled(&stall, outstanding)) {
            share_charge_later(device, admission.coming_ns);
            break;
        }
    }
    if (*ret_waited) {
        uint64_t now_ns = clock_now_ns();
        govern_note_admitted(device, now_ns);
        account_note_hold(device, admission.since_ns, now_ns);
    }
    return admission.balance_ns;
}

/* True if the launch waits; `vain`: it waited too long. */
static bool too_many_unknown(struct meter_record *record, bool vain)
{
    LOCKED_TO_END(meters_lock);
    bool many = events_unknown(record->device) >= UNKNOWN_MAX && !record->stuck;
    if (many && vain)
        record->stuck = true;
    return many && !vain;
}

void gate_wait_until_known(struct meter_record *record, uint64_t key)
{
    uint64_t start = clock_now_ns(), pause_ns = UNKNOWN_LOOK_NS;
    unsigned on_device;
    while (
        !duration_of(key) && too_many_unknown(record, clock_now_ns() - start > UNKNOWN_WAIT_NS)) {
        sleep_ns(pause_ns);
        pause_ns = 2 * pause_ns < UNKNOWN_LOOK_MOST_NS ? 2 * pause_ns : UNKNOWN_LOOK_MOST_NS;
        (void)gate_poll(record, &on_device);
    }
}

void gate_reset(void)
{
    memset(&gate, 0, sizeof(gate));
}
