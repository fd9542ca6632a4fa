/* SPDX-License-Identifier: Apache-2.0 */
/* How processes put work on the timeline and ask for it: groups, queues, tickets and marks. */
#include "sim/machine/machine.h"

#include "abi/rm.h"
#include "sim/machine/machine_layout.h"
#include "sim/machine/rm.h"
#include "sim/machine/rm_objects.h"

#include <errno.h>

/* A kernel that never ends counts as much in what a ring has to do. */
#define LOAD_MAX_NS (1ull << 40)
/* When to ask again for what is not running, for what another process must let go on, and at the
 * latest. */
#define LOOK_SOON_NS 100000ull
#define LOOK_STOPPED_NS 1000000ull
#define LOOK_LATEST_NS 20000000ull

static struct sim_timeline *timeline(void)
{
    return &sim_machine->timeline;
}

/* ---- groups ---- */

static uint32_t group_object(uint32_t slot, uint32_t client_handle, uint32_t handle)
{
    uint32_t client, object;
    if (handle == 0 || sim_rm_client_locked(slot, client_handle, &client) != RM_OK ||
        sim_rm_object_locked(client, handle, &object) != RM_OK || object == SIM_NONE ||
        sim_machine->objects[object].class_id != RM_CLASS_CHANNEL_GROUP)
        return SIM_NONE;
    return object;
}

static int group_create_locked(
    uint32_t slot, unsigned device, uint32_t object, struct sim_group_id *ret_group)
{
    uint32_t index = 0;
    while (index < SIM_GROUPS_MAX && timeline()->groups[index].live)
        index++;
    if (slot == SIM_NONE || index == SIM_GROUPS_MAX)
        return slot == SIM_NONE ? -EBADF : -ENOSPC;
    struct sim_group *group = &timeline()->groups[index];
    *group = (struct sim_group){.generation = group->generation + 1 ? group->generation + 1 : 1,
        .slot = slot,
        .device = device,
        .object = object,
        .pid = sim_machine->slots[slot].pid,
        .first_ready = SIM_NONE,
        .marked = SIM_NONE};
    if (index >= timeline()->groups_end)
        timeline()->groups_end = index + 1;
    *ret_group = (struct sim_group_id){index, group->generation};
    atomic_signal_fence(memory_order_seq_cst);
    *(volatile uint32_t *)&group->live = 1;
    if (object != SIM_NONE)
        sim_timeline_channels_changed_locked(object);
    return 0;
}

int sim_group_create(
    int fd, unsigned device, uint32_t client, uint32_t object, struct sim_group_id *ret_group)
{
    sim_lock();
    uint32_t slot = sim_slot_of_locked(fd);
    uint32_t known = slot == SIM_NONE ? SIM_NONE : group_object(slot, client, object);
    int error = group_create_locked(slot, device, known, ret_group);
    if (error == -ENOSPC) {
        sim_reap_locked();
        error = group_create_locked(slot, device, known, ret_group);
    }
    sim_unlock();
    return error;
}

static struct sim_group *group_find_locked(const struct sim_group_id *id)
{
    struct sim_group *group = &timeline()->groups[id->index];
    return id->generation != 0 && group->live && group->generation == id->generation ? group : NULL;
}

bool sim_group_restore(
    const struct sim_group_id *id, int fd, uint32_t client, uint32_t object_handle)
{
    sim_lock();
    uint32_t slot = sim_slot_of_locked(fd);
    uint32_t object = slot == SIM_NONE ? SIM_NONE : group_object(slot, client, object_handle);
    struct sim_group *group = group_find_locked(id);
    bool known = group && object != SIM_NONE;
    if (known) {
        group->object = object;
        group->restored = 1;
        sim_timeline_channels_changed_locked(object);
    }
    sim_unlock();
    return known;
}

bool sim_group_is_failed(const struct sim_group_id *id)
{
    sim_lock();
    const struct sim_group *group = group_find_locked(id);
    bool failed = group && group->failed;
    sim_unlock();
    return failed;
}

void sim_group_destroy(const struct sim_group_id *id)
{
    sim_lock();
    if (group_find_locked(id) != NULL)
        sim_timeline_drop_group_locked(id->index);
    sim_unlock();
}

/* ---- rings ---- */

static bool ticket_passed_locked(const struct sim_ticket *ticket)
{
    return sim_timeline_passed_locked(ticket->ring, ticket->generation, ticket->sequence);
}

/* A new ring, empty; SIM_NONE: all are in use. */
static uint32_t ring_claim_locked(uint32_t group)
{
    uint32_t index = timeline()->free_ring;
    if (index != SIM_NONE)
        timeline()->free_ring = timeline()->rings[index].next;
    else if (timeline()->rings_end < SIM_RINGS_MAX)
        index = timeline()->rings_end++;
    else
        return SIM_NONE;
    struct sim_ring *ring = &timeline()->rings[index];
    ring->generation = ring->generation + 1 ? ring->generation + 1 : 1;
    ring->group = group;
    ring->first = ring->end = 1;
    ring->waited = 0;
    ring->issued_ns = ring->executed_ns = 0;
    atomic_signal_fence(memory_order_seq_cst);
    *(volatile uint32_t *)&ring->live = 1;
    return index;
}

static void ring_append(struct sim_ring *ring, const struct sim_op *op)
{
    ring->ops[ring->end % SIM_OPS_MAX] = *op;
    atomic_signal_fence(memory_order_seq_cst);
    *(volatile uint32_t *)&ring->end = ring->end + 1;
}

static void ring_append_work(struct sim_ring *ring, const struct sim_work *work)
{
    struct sim_op op = {.kind = work->kind};
    if (work->kind == SIM_WORK_AFTER) {
        op.index = work->after.ring;
        op.generation = work->after.generation;
        op.sequence = work->after.sequence;
    } else {
        op.value_ns = work->duration_ns;
        op.meeting = work->meeting;
        op.index = work->parties;
        ring->issued_ns += work->duration_ns < LOAD_MAX_NS ? work->duration_ns : LOAD_MAX_NS;
    }
    ring_append(ring, &op);
}

/* ---- marks ---- */

static struct sim_mark_slot *mark_find_locked(const struct sim_mark *mark)
{
    struct sim_mark_slot *slot = &timeline()->marks[mark->index];
    return mark->generation != 0 && slot->live && slot->generation == mark->generation ? slot
                                                                                       : NULL;
}

static void mark_drop_locked(struct sim_mark *mark)
{
    struct sim_mark_slot *slot = mark_find_locked(mark);
    if (slot != NULL) {
        *(volatile uint32_t *)&slot->live = 0;
        slot->next_free = timeline()->free_mark;
        timeline()->free_mark = mark->index;
    }
    *mark = (struct sim_mark){0};
}

static bool mark_claim_locked(uint32_t slot, struct sim_mark *mark)
{
    uint32_t index = timeline()->free_mark;
    if (index != SIM_NONE)
        timeline()->free_mark = timeline()->marks[index].next_free;
    else if (timeline()->marks_end < SIM_MARKS_MAX)
        index = timeline()->marks_end++;
    else
        return false;
    struct sim_mark_slot *claimed = &timeline()->marks[index];
    uint32_t generation = claimed->generation + 1 ? claimed->generation + 1 : 1;
    *claimed = (struct sim_mark_slot){.generation = generation, .slot = slot};
    atomic_signal_fence(memory_order_seq_cst);
    *(volatile uint32_t *)&claimed->live = 1;
    *mark = (struct sim_mark){.index = index, .generation = generation};
    return true;
}

static bool mark_read_locked(struct sim_mark *mark)
{
    const struct sim_mark_slot *slot = mark_find_locked(mark);
    if (slot == NULL || slot->at_ns == 0)
        return false;
    uint64_t at = slot->at_ns;
    mark_drop_locked(mark);
    mark->at_ns = at;
    return true;
}

bool sim_mark_read(struct sim_mark *mark, uint64_t *ret_at_ns)
{
    if (mark->at_ns == 0 && mark->generation != 0) {
        sim_lock();
        (void)sim_timeline_look_locked();
        (void)mark_read_locked(mark);
        sim_unlock();
    }
    if (mark->at_ns != 0)
        *ret_at_ns = mark->at_ns;
    return mark->at_ns != 0;
}

void sim_mark_drop(struct sim_mark *mark)
{
    if (mark->generation != 0) {
        sim_lock();
        (void)sim_timeline_look_locked();
        mark_drop_locked(mark);
        sim_timeline_released_locked();
        sim_unlock();
    }
    *mark = (struct sim_mark){0};
}

/* ---- queues ---- */

static void ring_append_mark(struct sim_ring *ring, uint32_t kind, const struct sim_mark *mark)
{
    struct sim_op op = {.kind = kind, .index = mark->index, .generation = mark->generation};
    ring_append(ring, &op);
}

/* Either the work, or the mark as that kind. */
static bool queue_add_locked(
    struct sim_queue *queue, const struct sim_work *work, uint32_t kind, struct sim_mark *mark)
{
    const struct sim_group *group = group_find_locked(&queue->group);
    if (group == NULL) { /* its context is gone */
        queue->last = (struct sim_ticket){0};
        if (mark != NULL)
            mark->at_ns = timeline()->now_ns;
        return true;
    }
    bool idle = ticket_passed_locked(&queue->last);
    uint32_t index = idle ? ring_claim_locked(queue->group.index) : queue->last.ring;
    struct sim_ring *ring = index == SIM_NONE ? NULL : &timeline()->rings[index];
    if (ring == NULL || ring->end - ring->first == SIM_OPS_MAX)
        return false;
    if (work != NULL)
        ring_append_work(ring, work);
    else if (mark_claim_locked(group->slot, mark))
        ring_append_mark(ring, kind, mark);
    queue->last = (struct sim_ticket){.ring = index,
        .generation = ring->generation,
        .sequence = ring->end - 1,
        .load_ns = ring->issued_ns};
    if (idle)
        sim_timeline_begin_locked(index);
    queue->seen = ring->first - 1;
    return true;
}

/* Finds rings of the dead where there is no other. */
static void rings_look_locked(void)
{
    if (timeline()->free_ring == SIM_NONE && timeline()->rings_end == SIM_RINGS_MAX)
        sim_reap_locked();
}

bool sim_queue_add(struct sim_queue *queue, const struct sim_work *work)
{
    sim_lock();
    (void)sim_timeline_look_locked();
    bool added = queue_add_locked(queue, work, 0, NULL);
    if (!added)
        rings_look_locked();
    sim_unlock();
    return added;
}

static bool queue_add_mark(struct sim_queue *queue, uint32_t kind, struct sim_mark *mark)
{
    sim_lock();
    (void)sim_timeline_look_locked();
    mark_drop_locked(mark);
    bool added = queue_add_locked(queue, NULL, kind, mark);
    if (added)
        (void)mark_read_locked(mark);
    else
        rings_look_locked();
    sim_unlock();
    return added;
}

bool sim_queue_record(struct sim_queue *queue, struct sim_mark *mark)
{
    return queue_add_mark(queue, SIM_OP_MARK, mark);
}

bool sim_queue_hold(struct sim_queue *queue, struct sim_mark *mark)
{
    return queue_add_mark(queue, SIM_OP_HOLD, mark);
}

unsigned sim_queue_length(struct sim_queue *queue, unsigned enough)
{
    if (queue->last.generation == 0)
        return 0;
    if (queue->last.sequence - queue->seen <= enough)
        return queue->last.sequence - queue->seen;
    sim_lock();
    (void)sim_timeline_look_locked();
    queue->seen = ticket_passed_locked(&queue->last)
                      ? queue->last.sequence
                      : timeline()->rings[queue->last.ring].first - 1;
    sim_unlock();
    return queue->last.sequence - queue->seen;
}

/* ---- tickets ---- */

static uint64_t look_ns_locked(const struct sim_ticket *ticket)
{
    const struct sim_ring *ring = &timeline()->rings[ticket->ring];
    const struct sim_group *group = &timeline()->groups[ring->group];
    const struct sim_engine *engine = &timeline()->engines[group->device];
    const struct sim_op *op = &ring->ops[ring->first % SIM_OPS_MAX];
    uint64_t now = timeline()->now_ns;
    uint64_t executed = ring->executed_ns;
    uint64_t least = 0;
    if (engine->running == ticket->ring && engine->run_start_ns != SIM_NEVER)
        executed += now - engine->run_start_ns;
    else if (engine->running == ticket->ring)
        least = LOOK_SOON_NS;
    else if (op->kind == SIM_WORK_COPY)
        executed += op->value_ns - (op->wake_ns - now);
    else
        least = group->stopped ? LOOK_STOPPED_NS : LOOK_SOON_NS;
    uint64_t left = ticket->load_ns > executed ? ticket->load_ns - executed : 0;
    left = left < least ? least : left;
    return now + (left < LOOK_LATEST_NS ? left : LOOK_LATEST_NS);
}

bool sim_ticket_done(const struct sim_ticket *ticket, uint64_t *ret_look_ns)
{
    if (ticket->generation == 0)
        return true;
    sim_lock();
    (void)sim_timeline_look_locked();
    bool done = ticket_passed_locked(ticket);
    if (!done && ret_look_ns != NULL)
        *ret_look_ns = look_ns_locked(ticket);
    sim_unlock();
    return done;
}
