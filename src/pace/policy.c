/* SPDX-License-Identifier: Apache-2.0 */
/* The effective policy as it was last read. */
#include "pace/policy.h"

#include "base/atomic.h"
#include "base/lock.h"
#include "base/log.h"
#include "compute/budget.h"
#include "compute/gang.h"
#include "container/container.h"
#include "pace/governor.h"
#include "account/account.h"

#include <string.h>
#include <unistd.h>

/* Percent. A container that has all of a device for a while launches no further ahead than under a
 * limit, because it must give the rest back at once. */
#define SOFT_MOST 99u

/* Nanoseconds between two signs of life for HAMi's monitor, which counts down every 5 s. */
#define NOTE_NS 1000000000ull

/* Nanoseconds after which the control words are read even if the epoch is the same: HAMi's monitor
 * raises none. */
#define READ_NS 25000000ull

/* Nanoseconds between two looks for a directory of registries, each a system call. */
#define REGISTRY_LOOK_NS 1000000000ull
#define LIMITED_BESIDE_NS 2000000000ull

bool policy_limited;
uint32_t policy_changes;

/* The others' part: 1,000 less the container's, and less what they likely leave. */
struct policy_away {
    uint16_t least, likely;
    uint32_t others_us;
};

static struct lock policy_lock; /* a leaf lock */
/* What is read from the region is written under the lock; single values are read without it. */
static struct {
    uint64_t number GUARDED_BY(policy_lock); /* of the last reading */
    uint64_t looked_ns, read_ns, registry_looked_ns, noted_ns;
    uint32_t epoch GUARDED_BY(policy_lock);
    unsigned priority GUARDED_BY(policy_lock);
    unsigned char hard[VGPU_REGION_DEVICES] GUARDED_BY(policy_lock);
    unsigned char soft[VGPU_REGION_DEVICES] GUARDED_BY(policy_lock);
    struct policy_away now[VGPU_REGION_DEVICES];
    struct policy_away beside[VGPU_REGION_DEVICES]; /* when others last worked */
    uint64_t beside_ns[VGPU_REGION_DEVICES];        /* and that time; 0: never */
    bool soft_is_on[VGPU_REGION_DEVICES], higher_work[VGPU_REGION_DEVICES];
    /* It has a priority, and there may be tenants to give way to; or others need to know. */
    bool watched GUARDED_BY(policy_lock);
    uint64_t limited_beside_ns; /* when a tenant with a limit last worked; 0 never */
    bool registry_exists;
    bool given GUARDED_BY(policy_lock);
    bool has_priority GUARDED_BY(policy_lock);
    bool paused GUARDED_BY(policy_lock);
    bool preempted;
    /* HAMi's monitor paused it, and wakes no thread when it resumes. */
    bool by_monitor GUARDED_BY(policy_lock);
    bool finished;
    bool gang GUARDED_BY(policy_lock);
    int32_t explained; /* the pause was, once */
} policy = {.priority = VGPU_PRIORITY_DEFAULT};

/* ---- reading ---- */

bool policy_may_have_neighbours(uint64_t now_ns)
{
    if (!load_relaxed(&policy.registry_looked_ns) ||
        now_ns - load_relaxed(&policy.registry_looked_ns) > REGISTRY_LOOK_NS) {
        const char *directory = container_config()->registry_directory;
        store_relaxed(&policy.registry_exists, *directory && access(directory, X_OK) == 0);
        store_relaxed(&policy.registry_looked_ns, now_ns);
    }
    return load_relaxed(&policy.registry_exists);
}

static bool is_beside_limited(uint64_t now_ns)
{
    uint64_t seen = load_relaxed(&policy.limited_beside_ns);
    return seen && (now_ns < seen || now_ns - seen < LIMITED_BESIDE_NS);
}

/* A region's word may have any value. */
static bool is_gang(const struct account_control *control, uint64_t now_ns)
{
    uint64_t passed = now_ns - control->coupled_ns;
    return control->coupled_ns && now_ns >= control->coupled_ns && passed < GANG_HOLDS_NS;
}

static bool differs(const struct account_control *control) REQUIRES(policy_lock)
{
    bool differs = policy.paused != (control->paused || control->held);
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++)
        differs |= policy.hard[d] != control->percent[d] || policy.soft[d] != control->soft[d];
    return differs;
}

static void take_in(const struct account_control *control, bool watched, bool limited, bool gang)
    REQUIRES(policy_lock)
{
    bool news = differs(control);
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        store_relaxed(&policy.hard[d], control->percent[d]);
        store_relaxed(&policy.soft[d], control->soft[d]);
    }
    store_relaxed(&policy.gang, gang);
    policy.number = control->number;
    store_relaxed(&policy.epoch, control->epoch);
    store_relaxed(&policy.priority, control->priority);
    store_relaxed(&policy.has_priority, control->has_priority);
    store_relaxed(&policy.watched, watched);
    store_relaxed(&policy.given, control->has_limits || control->has_priority);
    store_relaxed(&policy.paused, control->paused || control->held);
    store_relaxed(&policy.by_monitor, control->held && !control->paused);
    store_relaxed(&policy_limited, limited && !load_relaxed(&policy.finished));
    if (news)
        policy_note_news();
}

/* A thread that was preempted after it read does not overwrite a later reading. The time of the
 * reading is stored last: until then other threads read for themselves, and none goes on by the
 * values before the first reading, which are no limit. */
bool policy_read(uint64_t now_ns, uint32_t *ret_epoch)
{
    struct account_control control;
    bool any = account_control(&control);
    bool watched =
        (control.has_priority || is_beside_limited(now_ns)) && policy_may_have_neighbours(now_ns);
    LOCKED(policy_lock) {
        if (control.number > policy.number)
            take_in(&control, watched, any || watched, is_gang(&control, now_ns));
    }
    store_release(&policy.read_ns, now_ns);
    store_release(&policy.looked_ns, now_ns);
    *ret_epoch = control.epoch;
    return load_relaxed(&policy_limited);
}

static bool is_due(uint64_t now_ns)
{
    return now_ns - load_acquire(&policy.looked_ns) >= POLICY_LOOK_NS;
}

static bool note_is_due(uint64_t now_ns)
{
    return now_ns - load_relaxed(&policy.noted_ns) >= NOTE_NS;
}

/* Whether nothing is in force, and the epoch was not raised since it was read. The governor sleeps
 * on the epoch and would have read a change. Without a governor one system call asks for it instead
 * of four, which a single launch makes with cold caches. */
static bool stands(uint64_t now_ns)
{
    if (load_relaxed(&policy_limited) || now_ns - load_acquire(&policy.read_ns) >= READ_NS ||
        note_is_due(now_ns))
        return false;
    return governor_is_awake() || account_control_stands(load_relaxed(&policy.epoch));
}

bool policy_look(uint64_t now_ns)
{
    uint32_t epoch;
    if (!is_due(now_ns))
        return load_relaxed(&policy_limited);
    if (stands(now_ns)) {
        store_relaxed(&policy.looked_ns, now_ns);
        return false;
    }
    /* A thread that waits while the container is held does not work. */
    if (!policy_hold() && note_is_due(now_ns)) {
        store_relaxed(&policy.noted_ns, now_ns);
        account_note_activity();
    }
    return policy_read(now_ns, &epoch);
}

void policy_refresh(uint64_t now_ns)
{
    uint32_t epoch;
    if (is_due(now_ns))
        (void)policy_read(now_ns, &epoch);
}

/* ---- what is in force ---- */

unsigned policy_hard_percent(unsigned device)
{
    return load_relaxed(&policy.hard[device]);
}

unsigned policy_soft_percent(unsigned device)
{
    return load_relaxed(&policy.soft[device]);
}

unsigned policy_percent(unsigned device)
{
    unsigned hard = policy_hard_percent(device), soft = policy_soft_percent(device);
    if (load_relaxed(&policy.finished))
        return 0;
    if (!hard)
        return load_relaxed(&policy.watched) ? POLICY_WATCHED : 0;
    if (!soft || !load_relaxed(&policy.soft_is_on[device]))
        return hard;
    return soft < SOFT_MOST ? soft : SOFT_MOST;
}

bool policy_is_given(void)
{
    return load_relaxed(&policy.given);
}

bool policy_pause(void)
{
    return load_relaxed(&policy.paused) && !load_relaxed(&policy.finished);
}

bool policy_pause_is_the_monitors(void)
{
    return load_relaxed(&policy.by_monitor);
}

bool policy_hold(void)
{
    return policy_pause() || (load_relaxed(&policy.preempted) && !load_relaxed(&policy.finished));
}

void policy_explain_pause(void)
{
    if (!policy_pause() || !swap_seq_cst(&policy.explained, (int32_t)0, (int32_t)1))
        return;
    if (policy_pause_is_the_monitors())
        log_message(
            "the container is paused by HAMi's monitor: work for the GPU waits until it lets "
            "the container go on");
    else
        log_message("the container is paused: work for the GPU waits until 'vgpu resume --pid %d'",
            (int)getpid());
}

unsigned policy_priority(void)
{
    return load_relaxed(&policy.priority);
}

bool policy_has_priority(void)
{
    return load_relaxed(&policy.has_priority);
}

static struct slices_part part_left(const struct policy_away *away)
{
    return (struct slices_part){.permille = 1000u - load_relaxed(&away->least),
        .likely = 1000u - load_relaxed(&away->likely),
        .others_us = load_relaxed(&away->others_us)};
}

struct slices_part policy_part(unsigned device)
{
    return part_left(&policy.now[device]);
}

struct slices_part policy_part_since(unsigned device, uint64_t since_ns)
{
    bool beside = load_relaxed(&policy.beside_ns[device]) > since_ns;
    return part_left(beside ? &policy.beside[device] : &policy.now[device]);
}

void policy_wait(uint64_t timeout_ns)
{
    account_control_wait(load_relaxed(&policy.epoch), timeout_ns);
}

/* ---- the governor's and the process's part ---- */

static void set_away(struct policy_away *away, const struct slices_part *part)
{
    store_relaxed(&away->least, (uint16_t)(1000u - part->permille));
    store_relaxed(&away->likely, (uint16_t)(1000u - part->likely));
    store_relaxed(&away->others_us, (uint32_t)part->others_us);
}

void policy_set_neighbours(
    unsigned device, const struct policy_neighbours *neighbours, uint64_t now_ns)
{
    bool preempted = false, former = load_relaxed(&policy.preempted);
    bool news = load_relaxed(&policy.soft_is_on[device]) != neighbours->soft_is_on;
    set_away(&policy.now[device], &neighbours->part);
    if (neighbours->part.permille < 1000) {
        set_away(&policy.beside[device], &neighbours->part);
        store_relaxed(&policy.beside_ns[device], now_ns);
    }
    store_relaxed(&policy.soft_is_on[device], neighbours->soft_is_on);
    store_relaxed(&policy.higher_work[device], neighbours->higher_work);
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++)
        preempted |= load_relaxed(&policy.higher_work[d]);
    store_relaxed(&policy.preempted, preempted);
    if (news || preempted != former)
        policy_note_news();
}

bool policy_has_gang(void)
{
    return load_relaxed(&policy.gang);
}

bool policy_only_channels(void)
{
    enum gate_choice gate = container_config()->gate;
    return gate == GATE_CHANNEL || (gate == GATE_AUTO && policy_has_gang());
}

void policy_note_limited_beside(uint64_t now_ns)
{
    store_relaxed(&policy.limited_beside_ns, now_ns);
}

void policy_forget_neighbours(void)
{
    const struct policy_neighbours none = {.part = {.permille = 1000, .likely = 1000}};
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++)
        policy_set_neighbours(d, &none, 0);
}

void policy_finish(void)
{
    store_relaxed(&policy.finished, true);
    store_relaxed(&policy_limited, false);
}

bool policy_is_finished(void)
{
    return load_relaxed(&policy.finished);
}

void policy_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&policy_lock);
    memset(&policy, 0, sizeof(policy));
    policy.priority = VGPU_PRIORITY_DEFAULT;
    store_relaxed(&policy_limited, false);
}
