/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the simulated resource manager share: one function per kind of call, under the
 * machine's lock. */
#ifndef VGPU_SIM_RM_H
#define VGPU_SIM_RM_H

#include "abi/rm.h"

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

/* A control: its object (SIM_NONE: the client itself) and its parameters, size as the table in
 * rm_control.c says. */
struct sim_rm_control {
    uint32_t slot;
    uint32_t client;
    uint32_t object;
    void *params;
};

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
