/* SPDX-License-Identifier: Apache-2.0 */
/* Events that several processes know. */
#include "sim/machine/machine.h"

#include "sim/machine/machine_layout.h"

#include <errno.h>

static struct sim_event_slot *slot_at(uint32_t index)
{
    return &sim_machine->timeline.events[index];
}

static struct sim_event_slot *find_locked(const struct sim_event *event)
{
    if (event->generation == 0 || event->index >= SIM_EVENTS_MAX)
        return NULL;
    struct sim_event_slot *slot = slot_at(event->index);
    return slot->live && slot->generation == event->generation ? slot : NULL;
}

static int create_locked(
    uint32_t maker, const struct sim_ticket *ticket, struct sim_event *ret_event)
{
    uint32_t index = 0;
    while (index < SIM_EVENTS_MAX && slot_at(index)->live)
        index++;
    if (maker == SIM_NONE || index == SIM_EVENTS_MAX)
        return maker == SIM_NONE ? -EBADF : -ENOSPC;
    struct sim_event_slot *slot = slot_at(index);
    uint32_t generation = slot->generation + 1 ? slot->generation + 1 : 1;
    *slot = (struct sim_event_slot){.generation = generation, .slot = maker, .ticket = *ticket};
    if (index >= sim_machine->timeline.events_end)
        sim_machine->timeline.events_end = index + 1;
    *ret_event = (struct sim_event){index, generation};
    atomic_signal_fence(memory_order_seq_cst);
    *(volatile uint32_t *)&slot->live = 1;
    return 0;
}

int sim_event_create(int fd, const struct sim_ticket *ticket, struct sim_event *ret_event)
{
    sim_lock();
    uint32_t maker = sim_slot_of_locked(fd);
    int error = create_locked(maker, ticket, ret_event);
    if (error == -ENOSPC) {
        sim_reap_locked();
        error = create_locked(maker, ticket, ret_event);
    }
    sim_unlock();
    return error;
}

void sim_event_destroy(const struct sim_event *event)
{
    sim_lock();
    struct sim_event_slot *slot = find_locked(event);
    if (slot != NULL)
        slot->live = 0;
    sim_unlock();
}

bool sim_event_lives(const struct sim_event *event)
{
    sim_lock();
    bool lives = find_locked(event) != NULL;
    sim_unlock();
    return lives;
}

void sim_event_record(const struct sim_event *event, const struct sim_ticket *ticket)
{
    sim_lock();
    struct sim_event_slot *slot = find_locked(event);
    if (slot != NULL)
        slot->ticket = *ticket;
    sim_unlock();
}

struct sim_ticket sim_event_ticket(const struct sim_event *event)
{
    sim_lock();
    sim_timeline_look_for_dead_locked();
    const struct sim_event_slot *slot = find_locked(event);
    struct sim_ticket ticket = slot != NULL ? slot->ticket : (struct sim_ticket){0};
    sim_unlock();
    return ticket;
}

void sim_events_drop_slot_locked(uint32_t slot)
{
    for (uint32_t i = 0; i < sim_machine->timeline.events_end; i++) {
        if (slot_at(i)->live && slot_at(i)->slot == slot)
            slot_at(i)->live = 0;
    }
}

void sim_events_recover_locked(void)
{
    sim_machine->timeline.events_end = SIM_EVENTS_MAX;
    for (uint32_t i = 0; i < SIM_EVENTS_MAX; i++) {
        if (slot_at(i)->live && !sim_machine->slots[slot_at(i)->slot].live)
            slot_at(i)->live = 0;
    }
}
