/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of the simulated resource manager: finding, allocating and freeing them. */
#include "sim/machine/rm.h"

#include "sim/machine/machine.h"
#include "sim/machine/machine_layout.h"
#include "sim/machine/rm_objects.h"

#include <string.h>
#include <unistd.h>

#define KIB 1024ull
#define MIB (1024 * KIB)
#define MEMORY_PARAMS_MIN (offsetof(struct rm_memory_params, alignment) + sizeof(uint64_t))

/* GET_TIMESLICE seen on H200, driver 580.159.04. */
#define TIMESLICE_COMPUTE_US 2048
#define TIMESLICE_COPY_US 1024

uint32_t sim_rm_client_locked(uint32_t slot, uint32_t handle, uint32_t *ret_client)
{
    uint32_t client = sim_client_find_locked(handle);
    if (client == SIM_NONE)
        return RM_ERR_INVALID_CLIENT;
    uint32_t owner = sim_machine->clients[client].slot;
    if (owner != slot && sim_machine->slots[owner].pid != sim_machine->slots[slot].pid)
        return RM_ERR_INSUFFICIENT_PERMISSIONS;
    *ret_client = client;
    return RM_OK;
}

uint32_t sim_rm_object_locked(uint32_t client, uint32_t handle, uint32_t *ret_object)
{
    uint32_t object = SIM_NONE;
    if (handle != sim_machine->clients[client].handle) {
        object = sim_object_find_locked(client, handle);
        if (object == SIM_NONE)
            return RM_ERR_OBJECT_NOT_FOUND;
    }
    *ret_object = object;
    return RM_OK;
}

uint32_t sim_rm_handle_free_locked(uint32_t client, uint32_t handle)
{
    bool used = handle != 0 && (handle == sim_machine->clients[client].handle ||
                                   sim_object_find_locked(client, handle) != SIM_NONE);
    return used ? RM_ERR_DUPLICATE_NAME : RM_OK;
}

static uint32_t alloc_client_locked(uint32_t slot, struct sim_rm_alloc *call)
{
    if (call->object != 0 && sim_client_find_locked(call->object) != SIM_NONE)
        return RM_ERR_DUPLICATE_NAME;
    uint32_t client = sim_client_create_locked(slot, call->object, getpid());
    if (client == SIM_NONE) {
        sim_reap_locked();
        if (!sim_machine->slots[slot].live) /* closed meanwhile by another thread */
            return RM_ERR_INVALID_CLIENT;
        client = sim_client_create_locked(slot, call->object, getpid());
    }
    if (client == SIM_NONE)
        return RM_ERR_INSUFFICIENT_RESOURCES;
    call->object = sim_machine->clients[client].handle;
    if (call->params != NULL)
        memcpy(call->params, &call->object, sizeof call->object);
    return RM_OK;
}

/*
 * Sizes round up to pages of 64 KiB, from 2 MiB on of 2 MiB, unless attr bits 24:23 name 4 KiB, 64
 * KiB or 2 MiB. Assumed; every size seen on H200 (driver 580.159.04) was a multiple of what this
 * gives.
 */
static uint64_t round_memory(uint64_t bytes, uint32_t attr)
{
    static const uint64_t named[] = {0, 4 * KIB, 64 * KIB, 2 * MIB};
    uint64_t page = named[attr >> 23 & 3];
    if (page == 0)
        page = bytes >= 2 * MIB ? 2 * MIB : 64 * KIB;
    return bytes > UINT64_MAX - page ? bytes : (bytes + page - 1) / page * page;
}

static bool is_device_memory(const struct rm_memory_params *params)
{
    return RM_MEMORY_LOCATION(params->attr) == RM_MEMORY_LOCATION_VIDEO &&
           (params->flags & RM_MEMORY_FLAG_VIRTUAL) == 0;
}

/* What the class adds to the request; params stay the caller's, and are written only by
 * finish_params(). */
static uint32_t fill_request(const struct sim_rm_alloc *call, struct sim_object_request *request)
{
    if (call->class_id == RM_CLASS_DEVICE) {
        uint32_t index = 0; /* no parameters: the first device */
        if (call->params != NULL && call->params_size >= sizeof index)
            memcpy(&index, call->params, sizeof index);
        if (index >= sim_machine->device_count)
            return RM_ERR_INVALID_DEVICE;
        request->device = index;
    } else if (call->class_id == RM_CLASS_CHANNEL_GROUP) {
        struct rm_channel_group_params params = {.engine_type = RM_ENGINE_GR0};
        if (call->params != NULL && call->params_size >= sizeof params)
            memcpy(&params, call->params, sizeof params);
        request->engine_type = params.engine_type;
        request->timeslice_us =
            RM_ENGINE_IS_GR(params.engine_type) ? TIMESLICE_COMPUTE_US : TIMESLICE_COPY_US;
    } else if (call->class_id == RM_CLASS_MEMORY_LOCAL) {
        struct rm_memory_params params = {0};
        if (call->params == NULL || call->params_size < MEMORY_PARAMS_MIN)
            return RM_ERR_INVALID_PARAM_STRUCT;
        size_t length = call->params_size < sizeof params ? call->params_size : sizeof params;
        memcpy(&params, call->params, length);
        if (!is_device_memory(&params))
            return RM_OK;
        if (params.size == 0)
            return RM_ERR_INVALID_ARGUMENT;
        if (request->device == SIM_NONE)
            return RM_ERR_INVALID_PARENT;
        request->bytes = round_memory(params.size, params.attr);
    }
    return RM_OK;
}

static void finish_params(const struct sim_rm_alloc *call, uint64_t bytes)
{
    if (call->class_id == RM_CLASS_MEMORY_LOCAL && bytes > 0 && call->params != NULL)
        memcpy(
            (char *)call->params + offsetof(struct rm_memory_params, size), &bytes, sizeof bytes);
}

static uint32_t alloc_object_locked(uint32_t slot, struct sim_rm_alloc *call)
{
    for (bool reaped = false;; reaped = true) {
        struct sim_object_request request = {.handle = call->object,
            .class_id = call->class_id,
            .device = SIM_NONE,
            .memory = SIM_NONE};
        uint32_t status = sim_rm_client_locked(slot, call->client, &request.client);
        if (status == RM_OK)
            status = sim_rm_object_locked(request.client, call->parent, &request.parent);
        if (status == RM_OK)
            status = sim_rm_handle_free_locked(request.client, request.handle);
        if (status == RM_OK && request.parent != SIM_NONE)
            request.device = sim_machine->objects[request.parent].device;
        if (status == RM_OK)
            status = fill_request(call, &request);
        if (status != RM_OK)
            return status;
        if (request.bytes == 0 || sim_memory_fits_locked(request.device, request.bytes)) {
            uint32_t object = sim_object_create_locked(&request);
            if (object == SIM_NONE)
                return RM_ERR_INSUFFICIENT_RESOURCES;
            call->object = sim_machine->objects[object].handle;
            finish_params(call, request.bytes);
            return RM_OK;
        }
        if (reaped)
            return RM_ERR_NO_MEMORY;
        sim_reap_locked();
    }
}

/* libcuda gives no size for the classes that the kernel knows (seen on H200, driver 580.159.04). */
static uint32_t class_params_size(uint32_t class_id)
{
    if (RM_CLASS_IS_CHANNEL(class_id))
        return sizeof(struct rm_channel_params);
    switch (class_id) {
    case RM_CLASS_CLIENT:
    case RM_CLASS_CLIENT_0:
        return sizeof(struct rm_client_params);
    case RM_CLASS_DEVICE:
        return sizeof(struct rm_device_params);
    case RM_CLASS_SUBDEVICE:
        return sizeof(struct rm_subdevice_params);
    case RM_CLASS_CHANNEL_GROUP:
        return sizeof(struct rm_channel_group_params);
    case RM_CLASS_MEMORY_LOCAL:
    case RM_CLASS_MEMORY_SYSTEM:
        return sizeof(struct rm_memory_params);
    default:
        return 0;
    }
}

/* The classes of a driver to come stand for those that it had before. */
static uint32_t class_meant(uint32_t class_id)
{
    const struct sim_description *own = sim_description();
    if (class_id != 0 && (class_id == own->memory_class || class_id == own->vmm_class))
        return RM_CLASS_MEMORY_LOCAL;
    if (own->new_objects && class_id == SIM_RM_CLASS_NEW_GROUP)
        return RM_CLASS_CHANNEL_GROUP;
    if (own->new_objects && class_id == SIM_RM_CLASS_NEW_CHANNEL)
        return RM_CLASS_CHANNEL_HOPPER;
    return class_id;
}

uint32_t sim_rm_alloc_locked(uint32_t slot, struct sim_rm_alloc *call)
{
    const struct sim_rule *rule;
    if (sim_rule_hits(SIM_RULE_RM_NUMBER, NULL, call->class_id, &rule))
        return rule->code;
    call->class_id = class_meant(call->class_id);
    if (call->params != NULL && call->params_size == 0)
        call->params_size = class_params_size(call->class_id);
    bool is_client = call->class_id == RM_CLASS_CLIENT || call->class_id == RM_CLASS_CLIENT_0;
    return is_client ? alloc_client_locked(slot, call) : alloc_object_locked(slot, call);
}

uint32_t sim_rm_free_locked(uint32_t slot, uint32_t client_handle, uint32_t handle)
{
    const struct sim_rule *rule;
    uint32_t client, object;
    if (sim_rule_hits(SIM_RULE_RM_FREE, NULL, 0, &rule))
        return rule->code;
    uint32_t status = sim_rm_client_locked(slot, client_handle, &client);
    if (status == RM_OK)
        status = sim_rm_object_locked(client, handle, &object);
    if (status != RM_OK)
        return status;
    if (object == SIM_NONE)
        sim_client_destroy_locked(client);
    else
        sim_object_destroy_locked(object);
    return RM_OK;
}
