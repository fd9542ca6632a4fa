/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the simulated resource manager share: one function per kind of call, under the
 * machine's lock. */
#ifndef VGPU_SIM_MACHINE_RM_H
#define VGPU_SIM_MACHINE_RM_H

#include "abi/rm.h"

#include <stddef.h>
#include <stdint.h>

/* Statuses that the library never names. */
#define RM_ERR_DUPLICATE_NAME 0x19u
#define RM_ERR_INSUFFICIENT_RESOURCES 0x1Au
#define RM_ERR_INVALID_DEVICE 0x26u
#define RM_ERR_INVALID_PARENT 0x36u
#define RM_ERR_INVALID_PARAM_STRUCT 0x3Bu

/*
 * Whether the caller on this slot may use the client, and its index: 0, RM_ERR_INVALID_CLIENT, or
 * RM_ERR_INSUFFICIENT_PERMISSIONS for a client of another process (assumed: the owner's token
 * decides).
 */
uint32_t sim_rm_client_locked(uint32_t slot, uint32_t handle, uint32_t *ret_client);

/* Index of the object, or SIM_NONE with RM_OK where the handle is the client's own. */
uint32_t sim_rm_object_locked(uint32_t client, uint32_t handle, uint32_t *ret_object);

/* An allocation, whichever form it came in. */
struct sim_rm_alloc {
    uint32_t client;
    uint32_t parent;
    uint32_t object; /* in and out */
    uint32_t class_id;
    void *params;
    uint32_t params_size;
};

/* Carries it out; returns the status. */
uint32_t sim_rm_alloc_locked(uint32_t slot, struct sim_rm_alloc *call);
uint32_t sim_rm_free_locked(uint32_t slot, uint32_t client_handle, uint32_t handle);

/* The calls of every form that allocate, each with its structure and size: 0 or an errno. */
int sim_rm_call_alloc(uint32_t slot, void *arg, size_t size);
int sim_rm_call_alloc_memory(uint32_t slot, void *arg, size_t size);
int sim_rm_call_vid_heap(uint32_t slot, void *arg, size_t size);

/* RM_ALLOC of a driver to come, and a number that no header has (new-objects, long-calls). */
struct sim_rm_alloc_long {
    struct rm_alloc64 call;
    uint64_t more;
};
#define SIM_RM_NR_NEW 0x61u
#define SIM_RM_CLASS_NEW_GROUP 0xD06Cu
#define SIM_RM_CLASS_NEW_CHANNEL 0xD170u
#define SIM_RM_CLASS_NEW_THING 0xD1F0u

/* A control: its object (SIM_NONE: the client itself) and its parameters, size as the table in
 * rm_control.c says. */
struct sim_rm_control {
    uint32_t slot;
    uint32_t client;
    uint32_t object;
    void *params;
};

/* RM_NR_EXPORT_TO_DMABUF, with the descriptor that it makes opened already where it is to make one:
 * the status. */
uint32_t sim_rm_export_dmabuf(const struct rm_export_dmabuf *form, int fd);

/* Controls on the client by which memory goes to descriptors and comes from them. */
uint32_t sim_rm_export_object(const struct sim_rm_control *control);
uint32_t sim_rm_export_objects(const struct sim_rm_control *control);
uint32_t sim_rm_get_export_info(const struct sim_rm_control *control);
uint32_t sim_rm_import_object(const struct sim_rm_control *control);
uint32_t sim_rm_import_objects(const struct sim_rm_control *control);

/* RM_CONTROL; returns the status. */
uint32_t sim_rm_control_locked(uint32_t slot, const struct rm_control *call);

/* Whether a handle can be given to a new object of the client: 0 or RM_ERR_DUPLICATE_NAME. */
uint32_t sim_rm_handle_free_locked(uint32_t client, uint32_t handle);

#endif
