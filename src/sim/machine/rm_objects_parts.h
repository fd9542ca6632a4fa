/* SPDX-License-Identifier: Apache-2.0 */
/* What rm_objects.c and rm_recover.c share. */
#ifndef VGPU_SIM_MACHINE_RM_OBJECTS_PARTS_H
#define VGPU_SIM_MACHINE_RM_OBJECTS_PARTS_H

#include "abi/rm.h"
#include "sim/machine/machine_layout.h"

#include <string.h>

static inline struct sim_client *client_at(uint32_t index)
{
    return &sim_machine->clients[index];
}

static inline struct sim_object *object_at(uint32_t index)
{
    return &sim_machine->objects[index];
}

static inline struct sim_memory *memory_at(uint32_t index)
{
    return &sim_machine->memories[index];
}

static inline void fill_none(uint32_t *words, uint32_t count)
{
    memset(words, 0xff, count * sizeof *words);
}

/* The device on which the object is a channel group, or SIM_NONE. */
static inline uint32_t group_device(const struct sim_object *object)
{
    return object->class_id == RM_CLASS_CHANNEL_GROUP ? object->device : SIM_NONE;
}

/* Into its bucket, and below its parent. */
void sim_client_link_locked(uint32_t index);
void sim_object_link_locked(uint32_t index);
/* Onto the free list. */
void sim_object_give_locked(uint32_t index);

/* Adds (or takes, with ~bytes + 1) the memory's bytes to what its handles' clients hold. */
void sim_memory_account_locked(const struct sim_memory *memory, uint64_t bytes);
void sim_memory_link_handle_locked(struct sim_memory *memory, uint32_t index);
void sim_memory_free_if_unused_locked(uint32_t index);

#endif
