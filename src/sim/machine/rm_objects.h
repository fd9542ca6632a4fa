/* SPDX-License-Identifier: Apache-2.0 */
/* The resource manager's clients, objects and memory in the machine file. All under the machine's
 * lock. */
#ifndef VGPU_SIM_MACHINE_RM_OBJECTS_H
#define VGPU_SIM_MACHINE_RM_OBJECTS_H

#include "sim/machine/machine_layout.h"

/* An empty machine, before anybody else sees it. */
void sim_objects_init(struct sim_machine *machine);

/* After an owner of the lock died: computes all links, counts and totals anew from the live
 * entries. */
void sim_objects_recover_locked(void);

/* Indexes, or SIM_NONE. */
uint32_t sim_client_find_locked(uint32_t handle);
uint32_t sim_object_find_locked(uint32_t client, uint32_t handle);

/* handle 0: picks one. SIM_NONE: the table is full. The handle must not be in use. */
uint32_t sim_client_create_locked(uint32_t slot, uint32_t handle, int32_t pid);
/* With all its objects. */
void sim_client_destroy_locked(uint32_t client);

/* What a new object is. parent is an object of the same client, or SIM_NONE for the client itself.
 */
struct sim_object_request {
    uint32_t client;
    uint32_t parent;
    uint32_t handle; /* 0: picks one */
    uint32_t class_id;
    uint32_t device;
    uint32_t engine_type;
    uint32_t timeslice_us;
    uint32_t memory; /* existing memory that it becomes a handle of, or SIM_NONE */
    uint64_t bytes;  /* above 0: new memory on device, if memory is SIM_NONE */
};
/*
 * Returns the object's index, or SIM_NONE: a table is full. Room on the device is the caller's to
 * check (sim_memory_fits_locked).
 */
uint32_t sim_object_create_locked(const struct sim_object_request *request);
/* With all below it. */
void sim_object_destroy_locked(uint32_t object);

/* Before a refusal, sim_reap_locked() may make room; every index must then be looked up again. */
bool sim_memory_fits_locked(uint32_t device, uint64_t bytes);

/* The object is one of memory. Doing it twice does nothing. */
void sim_object_map_locked(uint32_t object, bool mapped);

/* A reference without a handle: an exported descriptor. */
void sim_memory_hold_locked(uint32_t memory);
void sim_memory_release_locked(uint32_t memory);

#endif
