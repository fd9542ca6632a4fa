/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens on the machine as time passes: lanes of work, one after another; groups that share
 * a compute engine by time slices; advanced from event to event by whoever looks.
 */
#include "sim/machine/machine.h"

#include "abi/rm.h"
#include "sim/machine/machine_layout.h"

#include <time.h>

/* Two busy groups at slices of 2,048 µs then get 0.917 of the engine together, 0.982 at 10 ms
 * (0.917 and 0.970 seen on H200, driver 580.159.04); the same where a disabled group comes back
 * (0.24 ms of each period of the channel gate were lost). */
#define SWITCH_NS 185000ull
/* A group without a channel group of its own, as GET_TIMESLICE gives it for the others. */
#define TIMESLICE_NS 2048000ull
#define REAP_NS 5000000ull
/* Nobody's state, and yet it costs a switch to go on. */
#define TAKEN_OFF (SIM_NONE - 1)

uint64_t sim_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static struct sim_timeline *timeline(void)
{
    return &sim_machine->timeline;
}

static struct sim_lane *lane_at(uint32_t index)
{
    return &timeline()->lanes[index];
}

static struct sim_group *group_at(uint32_t index)
{
    return &timeline()->groups[index];
}

static struct sim_op *first_op(struct sim_lane *lane)
{
    return &lane->ops[lane->first % SIM_OPS_MAX];
}

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

/* A kill falls between two instructions: what is written before stays before, as far as the
 * compiler goes. */
static void set_word(uint32_t *word, uint32_t value)
{
    atomic_signal_fence(memory_order_seq_cst);
    *(volatile uint32_t *)word = value;
    atomic_signal_fence(memory_order_seq_cst);
}

/* ---- groups and engines ---- */

static uint64_t group_slice_ns(const struct sim_group *group)
{
    uint64_t us = group->object == SIM_NONE ? 0 : sim_machine->objects[group->object].timeslice_us;
    return us == 0 ? TIMESLICE_NS : us * 1000;
}

static uint64_t slice_end_ns(const struct sim_engine *engine)
{
    return engine->slice_start_ns + group_slice_ns(group_at(engine->turn));
}

/* A group that was alone had slice after slice; the one that comes waits for the present one's end.
 */
static void slice_renew(struct sim_engine *engine)
{
    uint64_t now = timeline()->now_ns;
    if (engine->turn == SIM_NONE || now <= engine->slice_start_ns)
        return;
    uint64_t slice = group_slice_ns(group_at(engine->turn));
    engine->slice_start_ns += (now - engine->slice_start_ns) / slice * slice;
}

static void group_refresh(uint32_t index)
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

static void group_append(uint32_t index, uint32_t lane)
{
    struct sim_group *group = group_at(index);
    lane_at(lane)->next = SIM_NONE;
    if (group->first_ready == SIM_NONE)
        group->first_ready = lane;
    else
        lane_at(group->last_ready)->next = lane;
    group->last_ready = lane;
    group_refresh(index);
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

static void group_add_marked(uint32_t index, uint32_t lane)
{
    lane_at(lane)->next = group_at(index)->marked;
    group_at(index)->marked = lane;
    group_refresh(index);
}

/* ---- lanes ---- */

bool sim_timeline_passed_locked(uint32_t index, uint32_t generation, uint32_t sequence)
{
    if (generation == 0 || index >= SIM_LANES_MAX)
        return true;
    const struct sim_lane *lane = lane_at(index);
    return !lane->live || lane->generation != generation || (int32_t)(sequence - lane->first) < 0;
}

static bool mark_lives(const struct sim_op *op)
{
    const struct sim_mark_slot *mark = &timeline()->marks[op->index];
    return mark->live && mark->generation == op->generation;
}

static void mark_write(const struct sim_op *op)
{
    struct sim_mark_slot *mark = &timeline()->marks[op->index];
    if (mark_lives(op) && mark->at_ns == 0)
        mark->at_ns = timeline()->now_ns;
}

static void waiting_add(uint32_t index)
{
    lane_at(index)->next = timeline()->waiting;
    timeline()->waiting = index;
}

static void lane_pop(struct sim_lane *lane)
{
    const struct sim_op *op = first_op(lane);
    if (op->kind == SIM_WORK_KERNEL || op->kind == SIM_WORK_COPY)
        lane->executed_ns += op->value_ns;
    set_word(&lane->first, lane->first + 1);
    if (lane->waited)
        timeline()->changed = 1;
}

static void lane_free(uint32_t index)
{
    struct sim_lane *lane = lane_at(index);
    set_word(&lane->live, 0);
    lane->next = timeline()->free_lane;
    timeline()->free_lane = index;
    if (lane->waited)
        timeline()->changed = 1;
}

/* Puts the lane where its first work belongs; what takes no time, and what is over, goes at once.
 */
static void lane_settle(uint32_t index)
{
    struct sim_lane *lane = lane_at(index);
    uint64_t now = timeline()->now_ns;
    bool copied = false; /* the channel of the copy is another */
    while (lane->first != lane->end) {
        struct sim_op *op = first_op(lane);
        if (op->kind == SIM_WORK_KERNEL && op->value_ns > 0) {
            group_append(lane->group, index);
            return;
        }
        if (op->kind == SIM_WORK_COPY && op->wake_ns == 0)
            op->wake_ns = add_saturating(now, op->value_ns);
        if (op->kind == SIM_WORK_COPY && op->wake_ns > now) {
            lane->next = timeline()->delayed;
            timeline()->delayed = index;
            if (op->wake_ns < timeline()->delayed_ns)
                timeline()->delayed_ns = op->wake_ns;
            return;
        }
        if (op->kind == SIM_WORK_AFTER &&
            !sim_timeline_passed_locked(op->index, op->generation, op->sequence)) {
            lane_at(op->index)->waited = 1;
            waiting_add(index);
            return;
        }
        if (op->kind == SIM_OP_HOLD && mark_lives(op)) {
            waiting_add(index);
            return;
        }
        if (op->kind == SIM_OP_MARK && !copied && !group_reaches_marks(lane->group)) {
            group_add_marked(lane->group, index);
            return;
        }
        if (op->kind == SIM_OP_MARK)
            mark_write(op);
        copied = op->kind == SIM_WORK_COPY || (copied && op->kind == SIM_OP_MARK);
        lane_pop(lane);
    }
    lane_free(index);
}

/* ---- engines ---- */

static uint64_t run_end_ns(const struct sim_engine *engine)
{
    return add_saturating(engine->run_start_ns, first_op(lane_at(engine->running))->value_ns);
}

static void note_run(const struct sim_engine *engine, struct sim_lane *lane)
{
    struct sim_op *op = first_op(lane);
    if (op->value_ns == SIM_NEVER || engine->run_start_ns == SIM_NEVER)
        return;
    uint64_t ran = timeline()->now_ns - engine->run_start_ns;
    op->value_ns -= ran < op->value_ns ? ran : op->value_ns;
    lane->executed_ns += ran;
}

/* Takes the kernel that runs off the engine; it goes on later. */
static void engine_preempt(struct sim_engine *engine)
{
    if (engine->running == SIM_NONE)
        return;
    struct sim_lane *lane = lane_at(engine->running);
    note_run(engine, lane);
    engine->running = SIM_NONE;
}

/* ---- kernels that meet ---- */

static struct sim_op *running_op(const struct sim_engine *engine)
{
    return engine->running == SIM_NONE ? NULL : first_op(lane_at(engine->running));
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
        note_run(engine, lane_at(engine->running));
        engine->run_start_ns = SIM_NEVER;
    }
}

static void engine_complete(struct sim_engine *engine)
{
    uint32_t index = engine->running;
    struct sim_lane *lane = lane_at(index);
    struct sim_group *group = group_at(lane->group);
    engine->running = SIM_NONE;
    group->first_ready = lane->next;
    lane_pop(lane);
    lane_settle(index);
    group_refresh((uint32_t)(group - timeline()->groups));
}

/* The marks that waited for the group's turn. */
static void engine_reach_marks(const struct sim_engine *engine)
{
    struct sim_group *group = group_at(engine->turn);
    uint32_t lane = group->marked;
    if (lane == SIM_NONE)
        return;
    group->marked = SIM_NONE;
    while (lane != SIM_NONE) {
        uint32_t next = lane_at(lane)->next;
        lane_settle(lane);
        lane = next;
    }
    group_refresh(engine->turn);
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
            engine_preempt(engine);
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
        uint32_t next = lane_at(index)->next;
        lane_settle(index);
        index = next;
    }
}

static void waiting_update(void)
{
    uint32_t index = timeline()->waiting;
    timeline()->waiting = SIM_NONE;
    while (index != SIM_NONE) {
        uint32_t next = lane_at(index)->next;
        lane_settle(index);
        index = next;
    }
}

/* All that happens at this very time. */
static void update(void)
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
        update();
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

/* Somebody waits for what another process has on its way, and which may have died. */
static bool waits_for_others(void)
{
    for (uint32_t i = timeline()->waiting; i != SIM_NONE; i = lane_at(i)->next) {
        const struct sim_op *op = first_op(lane_at(i));
        if (op->kind == SIM_WORK_AFTER &&
            group_at(lane_at(op->index)->group)->slot != group_at(lane_at(i)->group)->slot)
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

void sim_timeline_begin_locked(uint32_t lane)
{
    lane_settle(lane);
    update();
}

void sim_timeline_released_locked(void)
{
    update();
}

/* ---- changes from outside ---- */

/* Out of the list that begins at *head: the lanes of a group. */
static void list_filter(uint32_t *head, uint32_t group)
{
    while (*head != SIM_NONE) {
        if (lane_at(*head)->group == group)
            *head = lane_at(*head)->next;
        else
            head = &lane_at(*head)->next;
    }
}

/* What it marks is as much done as it ever will be. */
static void lane_drop(uint32_t index)
{
    struct sim_lane *lane = lane_at(index);
    for (uint32_t i = lane->first; i != lane->end; i++) {
        const struct sim_op *op = &lane->ops[i % SIM_OPS_MAX];
        if (op->kind == SIM_OP_MARK)
            mark_write(op);
    }
    lane_free(index);
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
    group_refresh(index);
    engine_forget(&timeline()->engines[group->device], index);
    list_filter(&timeline()->delayed, index);
    list_filter(&timeline()->waiting, index);
    for (uint32_t i = 0; i < timeline()->lanes_end; i++) {
        if (lane_at(i)->live && lane_at(i)->group == index)
            lane_drop(i);
    }
    while (timeline()->groups_end > 0 && !group_at(timeline()->groups_end - 1)->live)
        timeline()->groups_end--;
}

void sim_timeline_drop_group_locked(uint32_t index)
{
    (void)sim_timeline_advance_locked();
    group_drop(index);
    update();
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
    update();
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

void sim_timeline_channels_changed_locked(uint32_t object)
{
    uint32_t index = group_of_object(object);
    if (index == SIM_NONE)
        return;
    (void)sim_timeline_advance_locked();
    group_at(index)->stopped = channels_all_disabled(object);
    group_refresh(index);
    update();
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
    line->free_lane = SIM_NONE;
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
        if (engine->running < SIM_LANES_MAX && lane_at(engine->running)->live &&
            lane_at(engine->running)->first != lane_at(engine->running)->end &&
            first_op(lane_at(engine->running))->kind == SIM_WORK_KERNEL &&
            engine->run_start_ns <= timeline()->now_ns)
            engine_preempt(engine);
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
    for (uint32_t i = 0; i < timeline()->lanes_end; i++) {
        struct sim_lane *lane = lane_at(i);
        bool whole = lane->live && lane->end - lane->first <= SIM_OPS_MAX;
        if (whole && group_at(lane->group)->live)
            lane_settle(i);
        else if (whole)
            lane_drop(i);
        else
            lane_free(i);
    }
    update();
}
