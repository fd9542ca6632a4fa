/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline without what is gone: groups and slots that end, channels that are disabled, and an
 * owner of the lock that died. */
#include "sim/machine/machine_timeline.h"

#include "abi/rm.h"

/* Out of the list that begins at *head: the rings of a group. */
static void list_filter(uint32_t *head, uint32_t group)
{
    while (*head != SIM_NONE) {
        if (ring_at(*head)->group == group)
            *head = ring_at(*head)->next;
        else
            head = &ring_at(*head)->next;
    }
}

/* What it marks is as much done as it ever will be. */
static void ring_drop(uint32_t index)
{
    struct sim_ring *ring = ring_at(index);
    for (uint32_t i = ring->first; i != ring->end; i++) {
        const struct sim_op *op = &ring->ops[i % SIM_OPS_MAX];
        if (op->kind == SIM_OP_MARK)
            sim_mark_write_locked(op);
    }
    sim_ring_free_locked(index);
}

static void engine_forget(struct sim_engine *engine, uint32_t group)
{
    if (engine->turn == group) {
        engine->turn = SIM_NONE;
        engine->running = SIM_NONE;
    }
    if (engine->resident == group)
        engine->resident = SIM_NONE;
}

static void group_drop(uint32_t index)
{
    struct sim_group *group = group_at(index);
    set_word(&group->live, 0);
    group->first_ready = group->marked = SIM_NONE;
    sim_group_refresh_locked(index);
    engine_forget(&timeline()->engines[group->device], index);
    list_filter(&timeline()->delayed, index);
    list_filter(&timeline()->waiting, index);
    for (uint32_t i = 0; i < timeline()->rings_end; i++) {
        if (ring_at(i)->live && ring_at(i)->group == index)
            ring_drop(i);
    }
    while (timeline()->groups_end > 0 && !group_at(timeline()->groups_end - 1)->live)
        timeline()->groups_end--;
}

void sim_timeline_drop_group_locked(uint32_t index)
{
    (void)sim_timeline_advance_locked();
    group_drop(index);
    sim_timeline_update_locked();
}

void sim_timeline_drop_slot_locked(uint32_t slot)
{
    (void)sim_timeline_advance_locked();
    sim_events_drop_slot_locked(slot);
    for (uint32_t i = timeline()->groups_end; i-- > 0;) {
        if (group_at(i)->live && group_at(i)->slot == slot)
            group_drop(i);
    }
    for (uint32_t i = 0; i < timeline()->marks_end; i++) {
        struct sim_mark_slot *mark = &timeline()->marks[i];
        if (mark->live && mark->slot == slot) {
            set_word(&mark->live, 0);
            mark->next_free = timeline()->free_mark;
            timeline()->free_mark = i;
        }
    }
    sim_timeline_update_locked();
}

static bool channels_all_disabled(uint32_t object)
{
    uint32_t child = sim_machine->objects[object].first_child;
    bool any = false;
    for (; child != SIM_NONE; child = sim_machine->objects[child].sibling_next) {
        const struct sim_object *channel = &sim_machine->objects[child];
        if (!RM_CLASS_IS_CHANNEL(channel->class_id))
            continue;
        if (!channel->disabled)
            return false;
        any = true;
    }
    return any;
}

static uint32_t group_of_object(uint32_t object)
{
    for (uint32_t i = 0; object != SIM_NONE && i < timeline()->groups_end; i++) {
        if (group_at(i)->live && group_at(i)->object == object)
            return i;
    }
    return SIM_NONE;
}

bool sim_timeline_fail_restored_locked(uint32_t object)
{
    uint32_t index = group_of_object(object);
    if (index == SIM_NONE || !group_at(index)->restored)
        return false;
    (void)sim_timeline_advance_locked();
    const struct sim_engine *engine = &timeline()->engines[group_at(index)->device];
    if (engine->running == SIM_NONE || ring_at(engine->running)->group != index)
        return false;
    group_at(index)->failed = 1;
    return true;
}

void sim_timeline_channels_changed_locked(uint32_t object)
{
    uint32_t index = group_of_object(object);
    if (index == SIM_NONE)
        return;
    (void)sim_timeline_advance_locked();
    group_at(index)->stopped = channels_all_disabled(object);
    sim_group_refresh_locked(index);
    sim_timeline_update_locked();
}

void sim_timeline_object_gone_locked(uint32_t object)
{
    uint32_t index = group_of_object(object);
    if (index != SIM_NONE)
        group_at(index)->object = SIM_NONE;
}

/* ---- beginnings ---- */

static void lists_clear(struct sim_timeline *line)
{
    line->delayed = SIM_NONE;
    line->delayed_ns = UINT64_MAX;
    line->waiting = SIM_NONE;
    line->free_ring = SIM_NONE;
    line->free_mark = SIM_NONE;
    for (uint32_t i = 0; i < SIM_DEVICES_MAX; i++) {
        line->engines[i].runnable_groups = 0;
        line->engines[i].turn = SIM_NONE;
        line->engines[i].running = SIM_NONE;
    }
}

void sim_timeline_init(struct sim_machine *machine)
{
    lists_clear(&machine->timeline);
    machine->timeline.now_ns = sim_clock_ns();
    for (uint32_t i = 0; i < SIM_DEVICES_MAX; i++) {
        machine->timeline.engines[i].resident = SIM_NONE;
        machine->timeline.engines[i].last = SIM_NONE;
    }
}

/* The kernel that ran is stopped where it was, if that can be known. */
static void recover_engines(void)
{
    for (uint32_t i = 0; i < sim_machine->device_count; i++) {
        struct sim_engine *engine = &timeline()->engines[i];
        if (engine->running < SIM_RINGS_MAX && ring_at(engine->running)->live &&
            ring_at(engine->running)->first != ring_at(engine->running)->end &&
            first_op(ring_at(engine->running))->kind == SIM_WORK_KERNEL &&
            engine->run_start_ns <= timeline()->now_ns)
            sim_engine_preempt_locked(engine);
    }
}

static void recover_groups(void)
{
    timeline()->groups_end = SIM_GROUPS_MAX;
    for (uint32_t i = 0; i < SIM_GROUPS_MAX; i++) {
        struct sim_group *group = group_at(i);
        if (group->live && !sim_machine->slots[group->slot].live)
            group->live = 0;
        group->first_ready = group->marked = SIM_NONE;
        group->runnable = 0;
        if (group->object != SIM_NONE &&
            (!sim_machine->objects[group->object].live ||
                sim_machine->objects[group->object].class_id != RM_CLASS_CHANNEL_GROUP))
            group->object = SIM_NONE;
        group->stopped = group->object != SIM_NONE && channels_all_disabled(group->object);
    }
    while (timeline()->groups_end > 0 && !group_at(timeline()->groups_end - 1)->live)
        timeline()->groups_end--;
}

static void recover_marks(void)
{
    for (uint32_t i = 0; i < timeline()->marks_end; i++) {
        struct sim_mark_slot *mark = &timeline()->marks[i];
        if (mark->live && sim_machine->slots[mark->slot].live)
            continue;
        mark->live = 0;
        mark->next_free = timeline()->free_mark;
        timeline()->free_mark = i;
    }
}

void sim_timeline_recover_locked(void)
{
    recover_engines();
    lists_clear(timeline());
    recover_groups();
    recover_marks();
    sim_events_recover_locked();
    for (uint32_t i = 0; i < timeline()->rings_end; i++) {
        struct sim_ring *ring = ring_at(i);
        bool whole = ring->live && ring->end - ring->first <= SIM_OPS_MAX;
        if (whole && group_at(ring->group)->live)
            sim_ring_settle_locked(i);
        else if (whole)
            ring_drop(i);
        else
            sim_ring_free_locked(i);
    }
    sim_timeline_update_locked();
}
