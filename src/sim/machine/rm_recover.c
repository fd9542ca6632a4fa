/* SPDX-License-Identifier: Apache-2.0 */
/* After an owner of the lock died: links, counts and totals follow from the live entries. */
#include "sim/machine/rm_objects.h"
#include "sim/machine/rm_objects_parts.h"

static void recover_clients(void)
{
    fill_none(sim_machine->client_buckets, SIM_CLIENTS_MAX);
    sim_machine->clients_end = SIM_CLIENTS_MAX;
    for (uint32_t i = 0; i < SIM_CLIENTS_MAX; i++) {
        struct sim_client *client = client_at(i);
        if (client->live && !sim_machine->slots[client->slot].live)
            client->live = 0;
        client->first_child = SIM_NONE;
        memset(client->channel_groups, 0, sizeof client->channel_groups);
        memset(client->bytes, 0, sizeof client->bytes);
        if (client->live)
            sim_client_link_locked(i);
    }
}

/* A parent's entry is given to another only after its children are gone, so a live parent is the
 * right one. */
static void recover_drop_orphans(void)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < sim_machine->objects_end; i++) {
            struct sim_object *object = object_at(i);
            if (!object->live)
                continue;
            if (client_at(object->client)->live &&
                (object->parent == SIM_NONE || object_at(object->parent)->live))
                continue;
            object->live = 0;
            changed = true;
        }
    }
}

static void recover_objects(void)
{
    fill_none(sim_machine->object_buckets, SIM_OBJECT_BUCKETS);
    sim_machine->free_object = SIM_NONE;
    for (uint32_t i = 0; i < sim_machine->objects_end; i++)
        object_at(i)->first_child = SIM_NONE;
    for (uint32_t i = 0; i < sim_machine->objects_end; i++) {
        struct sim_object *object = object_at(i);
        if (!object->live) {
            sim_object_give_locked(i);
            continue;
        }
        sim_object_link_locked(i);
        uint32_t device = group_device(object);
        if (device != SIM_NONE)
            client_at(object->client)->channel_groups[device]++;
    }
}

static void recover_memories(void)
{
    memset(sim_machine->used_bytes, 0, sizeof sim_machine->used_bytes);
    sim_machine->free_memory = SIM_NONE;
    for (uint32_t i = 0; i < sim_machine->memories_end; i++) {
        struct sim_memory *memory = memory_at(i);
        memory->references = 0;
        memory->mappings = 0;
        memory->first_handle = SIM_NONE;
        if (memory->owner != SIM_NONE &&
            (!object_at(memory->owner)->live || object_at(memory->owner)->memory != i))
            memory->owner = SIM_NONE;
    }
    for (uint32_t i = 0; i < sim_machine->objects_end; i++) {
        if (!object_at(i)->live || object_at(i)->memory == SIM_NONE)
            continue;
        struct sim_memory *memory = memory_at(object_at(i)->memory);
        sim_memory_link_handle_locked(memory, i);
        memory->references++;
        memory->mappings += object_at(i)->mapped;
        if (memory->owner == SIM_NONE)
            memory->owner = i;
    }
    for (uint32_t i = 0; i < SIM_SLOTS_MAX; i++) {
        const struct sim_export *exported = &sim_machine->slots[i].exported;
        for (uint32_t m = 0; sim_machine->slots[i].live && m < exported->max_objects; m++) {
            if (exported->memories[m] != SIM_NONE)
                memory_at(exported->memories[m])->references++;
        }
    }
    for (uint32_t i = 0; i < sim_machine->memories_end; i++) {
        struct sim_memory *memory = memory_at(i);
        sim_machine->used_bytes[memory->device] += memory->bytes;
        sim_memory_account_locked(memory, memory->bytes);
        sim_memory_free_if_unused_locked(i);
    }
}

void sim_objects_recover_locked(void)
{
    recover_clients();
    recover_drop_orphans();
    recover_objects();
    recover_memories();
    sim_timeline_recover_locked();
}
