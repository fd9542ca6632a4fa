/* SPDX-License-Identifier: Apache-2.0 */
/* What is in force, as it was last read. */
#include "pace/policy.h"

#include "base/atomic.h"
#include "base/lock.h"
#include "base/log.h"
#include "compute/budget.h"
#include "compute/gang.h"
#include "container/container.h"
#include "pace/governor.h"
#include "region/account.h"

#include <string.h>
#include <unistd.h>

/* Who has all of the device for a while still launches no further ahead than under a limit: it is
 * to be given back at once. */
#define SOFT_MOST 99u

/* HAMi's monitor counts down each 5 s. */
#define NOTE_NS 1000000000ull

/* What is read anew where the epoch is still the one that was read: HAMi's monitor raises none. */
#define READ_NS 25000000ull

#define BOARD_LOOK_NS 1000000000ull
#define LIMITED_BESIDE_NS 2000000000ull

bool policy_limited;
uint32_t policy_changes;

/* The part that is others': 1,000 less ours, and what they likely leave of it. */
struct policy_away {
    uint16_t least, likely;
    uint32_t others_us;
};

static struct {
    struct lock lock; /* for writing what was read; a leaf */
    uint64_t number;  /* of the reading that is in force */
    uint64_t looked_ns, read_ns, board_looked_ns, noted_ns;
    uint32_t epoch;
    unsigned priority;
    unsigned char hard[VGPU_REGION_DEVICES], soft[VGPU_REGION_DEVICES];
    struct policy_away now[VGPU_REGION_DEVICES];
    struct policy_away beside[VGPU_REGION_DEVICES]; /* when others were seen at work last */
    uint64_t beside_ns[VGPU_REGION_DEVICES];        /* and when that was; 0: never */
    bool soft_is_on[VGPU_REGION_DEVICES], higher_work[VGPU_REGION_DEVICES];
    bool watched; /* has a priority, and there may be others to give way to; or others need to know
                   */
    uint64_t limited_beside_ns; /* when somebody with a limit was seen at work; 0 never */
    bool board_exists;
    bool given, has_priority, paused, preempted;
    bool by_monitor; /* HAMi's monitor paused it, which wakes nobody when it lets go on */
    bool finished;
    bool gang;
    int32_t explained; /* the pause was, once */
} policy = {.priority = VGPU_PRIORITY_DEFAULT};

/* ---- reading ---- */

bool policy_may_have_neighbours(uint64_t now_ns)
{
    if (!load_relaxed(&policy.board_looked_ns) ||
        now_ns - load_relaxed(&policy.board_looked_ns) > BOARD_LOOK_NS) {
        const char *directory = container_config()->board_directory;
        store_relaxed(&policy.board_exists, *directory && access(directory, X_OK) == 0);
        store_relaxed(&policy.board_looked_ns, now_ns);
    }
    return load_relaxed(&policy.board_exists);
}

static bool is_beside_limited(uint64_t now_ns)
{
    uint64_t seen = load_relaxed(&policy.limited_beside_ns);
    return seen && (now_ns < seen || now_ns - seen < LIMITED_BESIDE_NS);
}

/* A region's word may be anything. */
static bool is_gang(const struct account_control *orders, uint64_t now_ns)
{
    uint64_t passed = now_ns - orders->coupled_ns;
    return orders->coupled_ns && now_ns >= orders->coupled_ns && passed < GANG_HOLDS_NS;
}

static bool differs(const struct account_control *orders) REQUIRES(policy.lock)
{
    bool differs = policy.paused != (orders->paused || orders->held);
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++)
        differs |= policy.hard[d] != orders->percent[d] || policy.soft[d] != orders->soft[d];
    return differs;
}

static void take_in(const struct account_control *orders, bool watched, bool limited, bool gang)
    REQUIRES(policy.lock)
{
    bool news = differs(orders);
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        store_relaxed(&policy.hard[d], orders->percent[d]);
        store_relaxed(&policy.soft[d], orders->soft[d]);
    }
    store_relaxed(&policy.gang, gang);
    policy.number = orders->number;
    store_relaxed(&policy.epoch, orders->epoch);
    store_relaxed(&policy.priority, orders->priority);
    store_relaxed(&policy.has_priority, orders->has_priority);
    store_relaxed(&policy.watched, watched);
    store_relaxed(&policy.given, orders->has_limits || orders->has_priority);
    store_relaxed(&policy.paused, orders->paused || orders->held);
    store_relaxed(&policy.by_monitor, orders->held && !orders->paused);
    store_relaxed(&policy_limited, limited && !load_relaxed(&policy.finished));
    if (news)
        policy_note_news();
}

/* A thread that was kept from running since it read leaves what was read later as it is. */
bool policy_read(uint64_t now_ns, uint32_t *ret_epoch)
{
    struct account_control orders;
    store_relaxed(&policy.looked_ns, now_ns);
    store_relaxed(&policy.read_ns, now_ns);
    bool any = account_control(&orders);
    bool watched =
        (orders.has_priority || is_beside_limited(now_ns)) && policy_may_have_neighbours(now_ns);
    lock_take(&policy.lock);
    if (orders.number > policy.number)
        take_in(&orders, watched, any || watched, is_gang(&orders, now_ns));
    lock_release(&policy.lock);
    *ret_epoch = orders.epoch;
    return load_relaxed(&policy_limited);
}

static bool is_due(uint64_t now_ns)
{
    return now_ns - load_relaxed(&policy.looked_ns) >= POLICY_LOOK_NS;
}

static bool note_is_due(uint64_t now_ns)
{
    return now_ns - load_relaxed(&policy.noted_ns) >= NOTE_NS;
}

/* Where nothing is in force, and nobody raised the epoch since that was read: the governor, who
 * sleeps on it, would have read what came; without one it is asked for by one system call instead
 * of four, which a launch that comes alone makes with cold caches. */
static bool stands(uint64_t now_ns)
{
    if (load_relaxed(&policy_limited) || now_ns - load_relaxed(&policy.read_ns) >= READ_NS ||
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
    /* Who waits until the container may work at all does not work. */
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

void policy_reset(void)
{
    memset(&policy, 0, sizeof(policy));
    policy.priority = VGPU_PRIORITY_DEFAULT;
    store_relaxed(&policy_limited, false);
}
