/* SPDX-License-Identifier: Apache-2.0 */
/* What happens on the machine as time passes: groups that share a compute engine by time slices,
 * advanced from event to event by any process that looks. */
#include "sim/machine/machine_timeline.h"

#include <time.h>

/* Two busy groups at slices of 2,048 µs then get 0.917 of the engine together, 0.982 at 10 ms
 * (0.917 and 0.970 seen on H200, driver 580.159.04); the same where a disabled group comes back
 * (0.24 ms of each period of the channel gate were lost). */
#define SWITCH_NS 185000ull
#define REAP_NS 5000000ull
/* No group's state; to go on costs a switch all the same. */
#define TAKEN_OFF (SIM_NONE - 1)

uint64_t sim_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* ---- engines ---- */

static uint64_t slice_end_ns(const struct sim_engine *engine)
{
    return engine->slice_start_ns + sim_group_slice_ns_locked(group_at(engine->turn));
}

static uint64_t run_end_ns(const struct sim_engine *engine)
{
    return add_saturating(engine->run_start_ns, first_op(ring_at(engine->running))->value_ns);
}

static void note_run(const struct sim_engine *engine, struct sim_ring *ring)
{
    struct sim_op *op = first_op(ring);
    if (op->value_ns == SIM_NEVER || engine->run_start_ns == SIM_NEVER)
        return;
    uint64_t ran = timeline()->now_ns - engine->run_start_ns;
    op->value_ns -= ran < op->value_ns ? ran : op->value_ns;
    ring->executed_ns += ran;
}

void sim_engine_preempt_locked(struct sim_engine *engine)
{
    if (engine->running == SIM_NONE)
        return;
    struct sim_ring *ring = ring_at(engine->running);
    note_run(engine, ring);
    engine->running = SIM_NONE;
}

/* ---- kernels that meet ---- */

static struct sim_op *running_op(const struct sim_engine *engine)
{
    return engine->running == SIM_NONE ? NULL : first_op(ring_at(engine->running));
}

/* Only while all are there do they go on. They begin, go on and end at the same moments, so that
 * the same is left of each. */
static void meeting_update(struct sim_engine *engine)
{
    struct sim_op *op = running_op(engine);
    uint32_t there = 0;
    if (op == NULL || op->index == 0)
        return;
    for (uint32_t device = 0; device < sim_machine->device_count; device++) {
        const struct sim_op *other = running_op(&timeline()->engines[device]);
        there += other != NULL && other->index == op->index && other->meeting == op->meeting;
    }
    if (there >= op->index && engine->run_start_ns == SIM_NEVER) {
        engine->run_start_ns = timeline()->now_ns;
    } else if (there < op->index && engine->run_start_ns != SIM_NEVER) {
        note_run(engine, ring_at(engine->running));
        engine->run_start_ns = SIM_NEVER;
    }
}

static void engine_complete(struct sim_engine *engine)
{
    uint32_t index = engine->running;
    struct sim_ring *ring = ring_at(index);
    struct sim_group *group = group_at(ring->group);
    engine->running = SIM_NONE;
    group->first_ready = ring->next;
    sim_ring_pop_locked(ring);
    sim_ring_settle_locked(index);
    sim_group_refresh_locked((uint32_t)(group - timeline()->groups));
}

/* The marks that waited for the group's turn. */
static void engine_reach_marks(const struct sim_engine *engine)
{
    struct sim_group *group = group_at(engine->turn);
    uint32_t ring = group->marked;
    if (ring == SIM_NONE)
        return;
    group->marked = SIM_NONE;
    while (ring != SIM_NONE) {
        uint32_t next = ring_at(ring)->next;
        sim_ring_settle_locked(ring);
        ring = next;
    }
    sim_group_refresh_locked(engine->turn);
}

/* The next group in turn; there is one. */
static uint32_t engine_pick(uint32_t device)
{
    uint32_t end = timeline()->groups_end;
    uint32_t index = timeline()->engines[device].last;
    for (uint32_t i = 0; i < end; i++) {
        index = index >= end - 1 ? 0 : index + 1;
        if (group_at(index)->runnable && group_at(index)->device == device)
            return index;
    }
    return SIM_NONE;
}

static void engine_switch(uint32_t device)
{
    struct sim_engine *engine = &timeline()->engines[device];
    uint32_t next = engine_pick(device);
    if (next == SIM_NONE)
        return;
    bool costs = engine->resident != SIM_NONE && engine->resident != next;
    engine->slice_start_ns = timeline()->now_ns + (costs ? SWITCH_NS : 0);
    engine->resident = next;
    engine->last = next;
    engine->turn = next;
}

static void engine_update(uint32_t device)
{
    struct sim_engine *engine = &timeline()->engines[device];
    uint64_t now = timeline()->now_ns;
    if (engine->running != SIM_NONE && run_end_ns(engine) <= now)
        engine_complete(engine);
    if (engine->turn != SIM_NONE) {
        const struct sim_group *group = group_at(engine->turn);
        if (!group->runnable || (engine->runnable_groups > 1 && slice_end_ns(engine) <= now)) {
            sim_engine_preempt_locked(engine);
            if (group->stopped)
                engine->resident = TAKEN_OFF;
            engine->turn = SIM_NONE;
        }
    }
    if (engine->turn == SIM_NONE && engine->runnable_groups > 0)
        engine_switch(device);
    if (engine->turn == SIM_NONE || engine->slice_start_ns > now)
        return;
    engine_reach_marks(engine);
    if (engine->running == SIM_NONE && group_at(engine->turn)->first_ready != SIM_NONE) {
        engine->running = group_at(engine->turn)->first_ready;
        engine->run_start_ns = running_op(engine)->index ? SIM_NEVER : now;
    }
}

static uint64_t engine_next_ns(const struct sim_engine *engine)
{
    if (engine->turn == SIM_NONE)
        return UINT64_MAX;
    if (engine->running == SIM_NONE)
        return engine->slice_start_ns;
    uint64_t end = run_end_ns(engine);
    if (engine->runnable_groups > 1 && slice_end_ns(engine) < end)
        end = slice_end_ns(engine);
    return end;
}

/* The engine counts as busy while it changes groups: NVML's samples read 99 while two shared a card
 * (seen on H200, driver 580.159.04). */
static void engine_account(uint32_t device, uint64_t from_ns, uint64_t to_ns)
{
    struct sim_engine *engine = &timeline()->engines[device];
    if (engine->turn == SIM_NONE || from_ns >= to_ns)
        return;
    const struct sim_group *group = group_at(engine->turn);
    struct sim_slot *slot = &sim_machine->slots[group->slot];
    sim_windows_add(engine->windows, group->pid, from_ns, to_ns);
    if (engine->running != SIM_NONE && slot->live)
        slot->busy_ns[device] += to_ns - from_ns;
}

/* ---- time ---- */

static void delayed_update(void)
{
    uint64_t now = timeline()->now_ns;
    uint32_t index = timeline()->delayed;
    if (timeline()->delayed_ns > now)
        return;
    timeline()->delayed = SIM_NONE;
    timeline()->delayed_ns = UINT64_MAX;
    while (index != SIM_NONE) {
        uint32_t next = ring_at(index)->next;
        sim_ring_settle_locked(index);
        index = next;
    }
}

static void waiting_update(void)
{
    uint32_t index = timeline()->waiting;
    timeline()->waiting = SIM_NONE;
    while (index != SIM_NONE) {
        uint32_t next = ring_at(index)->next;
        sim_ring_settle_locked(index);
        index = next;
    }
}

void sim_timeline_update_locked(void)
{
    do {
        timeline()->changed = 0;
        delayed_update();
        waiting_update();
        for (uint32_t device = 0; device < sim_machine->device_count; device++)
            engine_update(device);
        for (uint32_t device = 0; device < sim_machine->device_count; device++)
            meeting_update(&timeline()->engines[device]);
    } while (timeline()->changed);
}

static uint64_t next_ns(void)
{
    uint64_t next = timeline()->delayed_ns;
    for (uint32_t device = 0; device < sim_machine->device_count; device++) {
        uint64_t own = engine_next_ns(&timeline()->engines[device]);
        if (own < next)
            next = own;
    }
    return next;
}

uint64_t sim_timeline_advance_locked(void)
{
    uint64_t now = sim_clock_ns();
    for (;;) {
        uint64_t next = next_ns();
        uint64_t from = timeline()->now_ns;
        uint64_t to = next < now ? next : now;
        if (to > from) {
            for (uint32_t device = 0; device < sim_machine->device_count; device++)
                engine_account(device, from, to);
            timeline()->now_ns = to;
        }
        if (next > now)
            return now;
        sim_timeline_update_locked();
    }
}

static bool contended(void)
{
    for (uint32_t device = 0; device < sim_machine->device_count; device++) {
        if (timeline()->engines[device].runnable_groups > 1)
            return true;
    }
    return false;
}

/* A ring waits for work of another process, which may have died. */
static bool waits_for_others(void)
{
    for (uint32_t i = timeline()->waiting; i != SIM_NONE; i = ring_at(i)->next) {
        const struct sim_op *op = first_op(ring_at(i));
        if (op->kind == SIM_WORK_AFTER &&
            group_at(ring_at(op->index)->group)->slot != group_at(ring_at(i)->group)->slot)
            return true;
    }
    return false;
}

void sim_timeline_look_for_dead_locked(void)
{
    uint64_t now = sim_timeline_advance_locked();
    if (now - timeline()->reaped_ns <= REAP_NS)
        return;
    timeline()->reaped_ns = now;
    sim_reap_locked();
}

uint64_t sim_timeline_look_locked(void)
{
    uint64_t now = sim_timeline_advance_locked();
    if (contended() || waits_for_others())
        sim_timeline_look_for_dead_locked();
    return now;
}

void sim_timeline_begin_locked(uint32_t ring)
{
    sim_ring_settle_locked(ring);
    sim_timeline_update_locked();
}

void sim_timeline_released_locked(void)
{
    sim_timeline_update_locked();
}
