/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline's rings of work, one operation after another, and the groups that they belong to. */
#include "sim/machine/machine_timeline.h"

/* A group without a channel group of its own, as GET_TIMESLICE gives it for the others. */
#define TIMESLICE_NS 2048000ull

/* ---- groups ---- */

uint64_t sim_group_slice_ns_locked(const struct sim_group *group)
{
    uint64_t us = group->object == SIM_NONE ? 0 : sim_machine->objects[group->object].timeslice_us;
    return us == 0 ? TIMESLICE_NS : us * 1000;
}

/* A group that was alone had slice after slice; the one that comes waits for the present one's end.
 */
static void slice_renew(struct sim_engine *engine)
{
    uint64_t now = timeline()->now_ns;
    if (engine->turn == SIM_NONE || now <= engine->slice_start_ns)
        return;
    uint64_t slice = sim_group_slice_ns_locked(group_at(engine->turn));
    engine->slice_start_ns += (now - engine->slice_start_ns) / slice * slice;
}

void sim_group_refresh_locked(uint32_t index)
{
    struct sim_group *group = group_at(index);
    struct sim_engine *engine = &timeline()->engines[group->device];
    bool any = group->first_ready != SIM_NONE || group->marked != SIM_NONE;
    uint32_t runnable = group->live && !group->stopped && any;
    if (runnable == group->runnable)
        return;
    group->runnable = runnable;
    engine->runnable_groups += runnable ? 1u : ~0u;
    if (runnable && engine->runnable_groups == 2)
        slice_renew(engine);
    timeline()->changed = 1;
}

static void group_append(uint32_t index, uint32_t ring)
{
    struct sim_group *group = group_at(index);
    ring_at(ring)->next = SIM_NONE;
    if (group->first_ready == SIM_NONE)
        group->first_ready = ring;
    else
        ring_at(group->last_ready)->next = ring;
    group->last_ready = ring;
    sim_group_refresh_locked(index);
}

/* A mark is reached by the channel that brings the work, which is only looked at in its group's
 * turn. */
static bool group_reaches_marks(uint32_t index)
{
    const struct sim_group *group = group_at(index);
    const struct sim_engine *engine = &timeline()->engines[group->device];
    bool there = engine->resident == index && engine->slice_start_ns <= timeline()->now_ns;
    return !group->stopped && (there || engine->resident == SIM_NONE);
}

static void group_add_marked(uint32_t index, uint32_t ring)
{
    ring_at(ring)->next = group_at(index)->marked;
    group_at(index)->marked = ring;
    sim_group_refresh_locked(index);
}

/* ---- rings ---- */

bool sim_timeline_passed_locked(uint32_t index, uint32_t generation, uint32_t sequence)
{
    if (generation == 0 || index >= SIM_RINGS_MAX)
        return true;
    const struct sim_ring *ring = ring_at(index);
    return !ring->live || ring->generation != generation || (int32_t)(sequence - ring->first) < 0;
}

static bool mark_lives(const struct sim_op *op)
{
    const struct sim_mark_slot *mark = &timeline()->marks[op->index];
    return mark->live && mark->generation == op->generation;
}

void sim_mark_write_locked(const struct sim_op *op)
{
    struct sim_mark_slot *mark = &timeline()->marks[op->index];
    if (mark_lives(op) && mark->at_ns == 0)
        mark->at_ns = timeline()->now_ns;
}

static void waiting_add(uint32_t index)
{
    ring_at(index)->next = timeline()->waiting;
    timeline()->waiting = index;
}

void sim_ring_pop_locked(struct sim_ring *ring)
{
    const struct sim_op *op = first_op(ring);
    if (op->kind == SIM_WORK_KERNEL || op->kind == SIM_WORK_COPY)
        ring->executed_ns += op->value_ns;
    set_word(&ring->first, ring->first + 1);
    if (ring->waited)
        timeline()->changed = 1;
}

void sim_ring_free_locked(uint32_t index)
{
    struct sim_ring *ring = ring_at(index);
    set_word(&ring->live, 0);
    ring->next = timeline()->free_ring;
    timeline()->free_ring = index;
    if (ring->waited)
        timeline()->changed = 1;
}

void sim_ring_settle_locked(uint32_t index)
{
    struct sim_ring *ring = ring_at(index);
    uint64_t now = timeline()->now_ns;
    bool copied = false; /* the channel of the copy is another */
    while (ring->first != ring->end) {
        struct sim_op *op = first_op(ring);
        if (op->kind == SIM_WORK_KERNEL && op->value_ns > 0) {
            group_append(ring->group, index);
            return;
        }
        if (op->kind == SIM_WORK_COPY && op->wake_ns == 0)
            op->wake_ns = add_saturating(now, op->value_ns);
        if (op->kind == SIM_WORK_COPY && op->wake_ns > now) {
            ring->next = timeline()->delayed;
            timeline()->delayed = index;
            if (op->wake_ns < timeline()->delayed_ns)
                timeline()->delayed_ns = op->wake_ns;
            return;
        }
        if (op->kind == SIM_WORK_AFTER &&
            !sim_timeline_passed_locked(op->index, op->generation, op->sequence)) {
            ring_at(op->index)->waited = 1;
            waiting_add(index);
            return;
        }
        if (op->kind == SIM_OP_HOLD && mark_lives(op)) {
            waiting_add(index);
            return;
        }
        if (op->kind == SIM_OP_MARK && !copied && !group_reaches_marks(ring->group)) {
            group_add_marked(ring->group, index);
            return;
        }
        if (op->kind == SIM_OP_MARK)
            sim_mark_write_locked(op);
        copied = op->kind == SIM_WORK_COPY || (copied && op->kind == SIM_OP_MARK);
        sim_ring_pop_locked(ring);
    }
    sim_ring_free_locked(index);
}
