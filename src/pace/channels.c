/* SPDX-License-Identifier: Apache-2.0 */
/* Closing and opening channels. */
#include "pace/channels.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "pace/governor.h"
#include "pace/policy.h"
#include "compute/budget.h"
#include "container/container.h"
#include "rm/rm_channels.h"
#include "account/account.h"

#include <errno.h>
#include <string.h>

/* Nanoseconds after which a closure is overdue and any thread opens it: the governor is late by
 * less on a loaded machine. */
#define OVERDUE_NS 100000000ull
/* Percent of a control's time after which the GPU has stopped: 0.36 of 0.62 ms (H200, driver
 * 580.159.04). */
#define STOPPED_PERCENT 58
/* Nanoseconds. While a context ends all channels are open: until 0.5 s of GPU time is overdrawn, or
 * for 1 s of a pause or beside a tenant of higher priority. Then the end goes on in windows. */
#define HELD_OVERDRAWN_NS 500000000
#define HELD_MAX_NS 1000000000ull

uint64_t channels_due_ns;

static struct {
    struct closed_times times;
    bool told; /* the log says whether its channels can be closed */
} devices[VGPU_REGION_DEVICES];

/* Threads that end contexts. */
static struct {
    uint64_t since_ns; /* one held channels open when they were last to be closed; 0: none did */
    bool are_ended;    /* ends of contexts open nothing: too much is overdrawn */
} holds;

/* Channels that could not be switched, or were held open, are open without a note: their time
 * counts again. */
static void end_closure(unsigned device)
{
    if (closed_is_running(&devices[device].times))
        closed_end(&devices[device].times, clock_now_ns());
}

static void note_closed(unsigned device, const struct rm_channels_times *times)
{
    uint64_t took = times->after_ns - times->before_ns;
    if (!times->after_ns)
        return;
    closed_begin(&devices[device].times, times->before_ns + took / 100 * STOPPED_PERCENT);
    /* A thread that holds it open may have ended the closure before it was noted. */
    if (!rm_channels_is_closed(device))
        end_closure(device);
}

/* Once for a process and device, when it is first needed. Only while nothing is closed: a terminal
 * may block the writer, and then no thread would open them. */
void channels_tell(unsigned device)
{
    char words[RM_CHANNELS_WORDS];
    if (devices[device].told || rm_channels_any_closed())
        return;
    enum rm_channels_state state = rm_channels_test(device);
    if (state == RM_CHANNELS_UNTESTED)
        return;
    devices[device].told = true;
    rm_channels_describe(device, words);
    if (state == RM_CHANNELS_WORKS)
        log_info("device %u: the channel gate %s: what runs for long is taken off the GPU", device,
            words);
    else
        log_warning("device %u: the channel gate %s; launches wait, but one kernel that never ends "
                    "is not stopped ('vgpu doctor' tells more)",
            device, words);
}

/* False if a thread holds them open, or opened them meanwhile. */
static bool close_channels(void)
{
    bool held = false;
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        struct rm_channels_times times;
        if (rm_channels_is_closed(d))
            continue;
        end_closure(d);
        int switched = rm_channels_count(d) ? rm_channels_close(d, &times) : 0;
        if (switched > 0)
            note_closed(d, &times);
        held |= switched == -EBUSY || switched == -ECANCELED;
    }
    return !held;
}

struct debt {
    unsigned percent;
    bool is_large;
};

static void read_debt(struct vgpu_compute *words, struct vgpu_usage *own, void *argument)
{
    struct debt *debt = argument;
    (void)own;
    debt->is_large |= budget_refill(words, debt->percent, clock_now_ns()) < -HELD_OVERDRAWN_NS;
}

static bool is_overdrawn(unsigned bound)
{
    struct debt debt = {.is_large = false};
    for (unsigned d = 0; d < bound; d++) {
        debt.percent = policy_percent(d);
        if (budget_is_limited(debt.percent))
            (void)account_visit_compute(d, read_debt, &debt);
    }
    return debt.is_large;
}

static void end_holds(void)
{
    store_relaxed(&holds.are_ended, true);
    rm_channels_end_holds();
}

void channels_close_all(uint64_t due_ns, unsigned bound)
{
    store_relaxed(&channels_due_ns, due_ns); /* launches wait, too */
    if (container_config()->gate == GATE_LAUNCH)
        return;
    for (unsigned d = 0; d < bound; d++)
        channels_tell(d);
    if (is_overdrawn(bound))
        end_holds();
    uint64_t now = clock_now_ns();
    if (close_channels())
        holds.since_ns = 0;
    else if (!holds.since_ns)
        holds.since_ns = now;
    else if (policy_hold() && now - holds.since_ns >= HELD_MAX_NS)
        end_holds();
}

static void open_channels(void)
{
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        struct rm_channels_times times;
        if (!rm_channels_is_closed(d)) {
            end_closure(d);
            continue;
        }
        (void)rm_channels_open(d, &times);
        closed_end(&devices[d].times, times.after_ns ? times.after_ns : clock_now_ns());
    }
}

/* What could not be opened is still due: the next look tries again, or a call if no look comes. */
static uint64_t due_after_opening(void)
{
    return rm_channels_any_closed() ? clock_now_ns() : 0;
}

void channels_open_all(void)
{
    uint64_t due = load_relaxed(&channels_due_ns);
    store_relaxed(&holds.are_ended, false);
    holds.since_ns = 0;
    open_channels();
    (void)swap_seq_cst(&channels_due_ns, due, due_after_opening()); /* or closed anew meanwhile */
}

bool channels_are_closed(unsigned device)
{
    return rm_channels_is_closed(device);
}

struct closed_times *channels_closed_times(unsigned device)
{
    return &devices[device].times;
}

uint64_t channels_gate(unsigned device)
{
    bool channel = container_config()->gate != GATE_LAUNCH &&
                   rm_channels_state(device) == RM_CHANNELS_WORKS && governor_works();
    return channel ? VGPU_GATE_CHANNEL : VGPU_GATE_LAUNCH;
}

void channels_hold_open(void)
{
    if (load_relaxed(&holds.are_ended))
        return;
    rm_channels_hold_open();
    uint64_t now = clock_now_ns();
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++)
        closed_end(&devices[d].times, now);
}

/* A pause's next look may be a second away. */
void channels_let_close(void)
{
    rm_channels_release();
    if (load_relaxed(&channels_due_ns) || policy_hold())
        account_control_wake(); /* what closed them may hold still */
}

void channels_note_held(void)
{
    (void)swap_seq_cst(&channels_due_ns, (uint64_t)0, clock_now_ns());
}

void channels_open_overdue(void)
{
    uint64_t due = load_relaxed(&channels_due_ns), now = clock_now_ns();
    /* A forked child has no right to open its parent's channels; its parent looks after them. */
    if (!due || now <= due + OVERDUE_NS || fork_is_unentered_child())
        return;
    policy_refresh(now);
    if (policy_pause())
        return;
    policy_forget_neighbours();
    /* One thread opens them; the governor may meanwhile set when the next closure is due. */
    if (!swap_seq_cst(&channels_due_ns, due, (uint64_t)0))
        return;
    open_channels();
    (void)swap_seq_cst(&channels_due_ns, (uint64_t)0, due_after_opening());
}

bool channels_are_held(void)
{
    return holds.since_ns != 0;
}

void channels_finish(void)
{
    rm_channels_finish();
    store_relaxed(&channels_due_ns, (uint64_t)0);
}

void channels_reset(void)
{
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        closed_reset(&devices[d].times);
        devices[d].told = false;
    }
    memset(&holds, 0, sizeof(holds));
    store_relaxed(&channels_due_ns, (uint64_t)0);
}
