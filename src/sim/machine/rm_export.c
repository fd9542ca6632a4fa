/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated resource manager's exports of memory to descriptors and imports from them. The
 * list forms are what libcuda uses (seen on H200, driver 580.159.04); refusals are assumed.
 */
#include "sim/machine/rm.h"

#include "sim/machine/machine_layout.h"
#include "sim/machine/rm_objects.h"

#include <string.h>

_Static_assert(SIM_METADATA_BYTES == RM_EXPORT_METADATA_BYTES, "an export's metadata");

/* What was exported to fd, or NULL where fd is no descriptor of the machine. */
static struct sim_export *export_of(int fd)
{
    uint32_t slot = sim_slot_of_locked(fd);
    return slot == SIM_NONE ? NULL : &sim_machine->slots[slot].exported;
}

/* The same, NULL also where nothing was. */
static struct sim_export *export_made(int fd)
{
    struct sim_export *exported = export_of(fd);
    return exported != NULL && exported->max_objects > 0 ? exported : NULL;
}

static void export_start(struct sim_export *exported, uint32_t device, uint32_t max_objects)
{
    memset(exported->metadata, 0, sizeof exported->metadata);
    memset(exported->memories, 0xff, sizeof exported->memories);
    exported->device = device;
    exported->max_objects = max_objects;
}

static void export_put(struct sim_export *exported, uint32_t place, uint32_t memory)
{
    uint32_t former = exported->memories[place];
    exported->memories[place] = memory;
    if (memory != SIM_NONE)
        sim_memory_hold_locked(memory);
    if (former != SIM_NONE)
        sim_memory_release_locked(former);
}

static uint32_t memory_of(uint32_t client, uint32_t handle, uint32_t *ret_memory)
{
    uint32_t object = sim_object_find_locked(client, handle);
    if (object == SIM_NONE)
        return RM_ERR_OBJECT_NOT_FOUND;
    if (sim_machine->objects[object].memory == SIM_NONE)
        return RM_ERR_NOT_SUPPORTED;
    *ret_memory = sim_machine->objects[object].memory;
    return RM_OK;
}

uint32_t sim_rm_export_object(const struct sim_rm_control *control)
{
    const struct rm_export_object *params = control->params;
    struct sim_export *exported = export_of(params->fd);
    uint32_t memory;
    if (params->type != RM_EXPORT_TYPE_RM || exported == NULL || exported->max_objects > 0)
        return RM_ERR_INVALID_ARGUMENT;
    uint32_t status = memory_of(control->client, params->object, &memory);
    if (status != RM_OK)
        return status;
    export_start(exported, sim_machine->memories[memory].device, 1);
    export_put(exported, 0, memory);
    return RM_OK;
}

/* Whether the list may go into the export (made or not yet), and the memories that it names. */
static uint32_t check_list(const struct sim_rm_control *control, const struct sim_export *exported,
    uint32_t device, uint32_t ret_memories[SIM_EXPORTS_MAX])
{
    const struct rm_export_objects *params = control->params;
    if (params->max_objects == 0 || params->max_objects > SIM_EXPORTS_MAX ||
        params->index > params->max_objects || params->count > params->max_objects - params->index)
        return RM_ERR_INVALID_ARGUMENT;
    if (exported->max_objects > 0 &&
        (exported->max_objects != params->max_objects || exported->device != device))
        return RM_ERR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < params->count; i++) {
        ret_memories[i] = SIM_NONE;
        if (params->objects[i] == 0)
            continue;
        uint32_t status = memory_of(control->client, params->objects[i], &ret_memories[i]);
        if (status != RM_OK)
            return status;
        bool taken = exported->max_objects > 0 && exported->memories[params->index + i] != SIM_NONE;
        if (taken || sim_machine->memories[ret_memories[i]].device != device)
            return RM_ERR_INVALID_ARGUMENT;
    }
    return RM_OK;
}

uint32_t sim_rm_export_objects(const struct sim_rm_control *control)
{
    const struct rm_export_objects *params = control->params;
    struct sim_export *exported = export_of(params->fd);
    uint32_t memories[SIM_EXPORTS_MAX];
    if (exported == NULL)
        return RM_ERR_INVALID_ARGUMENT;
    uint32_t parent = sim_object_find_locked(control->client, params->device);
    if (parent == SIM_NONE)
        return RM_ERR_OBJECT_NOT_FOUND;
    uint32_t device = sim_machine->objects[parent].device;
    if (device == SIM_NONE)
        return RM_ERR_INVALID_DEVICE;
    uint32_t status = check_list(control, exported, device, memories);
    if (status != RM_OK)
        return status;
    if (exported->max_objects == 0) {
        export_start(exported, device, params->max_objects);
        memcpy(exported->metadata, params->metadata, sizeof exported->metadata);
    }
    for (uint32_t i = 0; i < params->count; i++)
        export_put(exported, params->index + i, memories[i]);
    return RM_OK;
}

uint32_t sim_rm_export_dmabuf(const struct rm_export_dmabuf *form, int fd)
{
    struct sim_export *exported = export_of(fd);
    uint32_t client = sim_client_find_locked(form->client);
    uint32_t memories[SIM_EXPORTS_MAX];
    if (exported == NULL || form->count == 0 || form->total_objects > SIM_EXPORTS_MAX ||
        form->index > form->total_objects || form->count > form->total_objects - form->index)
        return RM_ERR_INVALID_ARGUMENT;
    if (client == SIM_NONE)
        return RM_ERR_INVALID_CLIENT;
    for (uint32_t i = 0; i < form->count; i++) {
        uint32_t status = memory_of(client, form->objects[i], &memories[i]);
        if (status != RM_OK)
            return status;
    }
    if (exported->max_objects == 0)
        export_start(exported, sim_machine->memories[memories[0]].device, form->total_objects);
    for (uint32_t i = 0; i < form->count; i++)
        export_put(exported, form->index + i, memories[i]);
    return RM_OK;
}

uint32_t sim_rm_get_export_info(const struct sim_rm_control *control)
{
    struct rm_export_info *params = control->params;
    const struct sim_export *exported = export_made(params->fd);
    if (exported == NULL)
        return RM_ERR_INVALID_ARGUMENT;
    params->device_instance = exported->device;
    params->max_objects = (uint16_t)exported->max_objects;
    memcpy(params->metadata, exported->metadata, sizeof params->metadata);
    return RM_OK;
}

/* handle: in and out. */
static uint32_t import_memory(uint32_t client, uint32_t parent, uint32_t memory, uint32_t *handle)
{
    struct sim_object_request request = {
        .client = client, .handle = *handle, .class_id = RM_CLASS_MEMORY_LOCAL, .memory = memory};
    if (memory == SIM_NONE)
        return RM_ERR_OBJECT_NOT_FOUND;
    uint32_t status = sim_rm_object_locked(client, parent, &request.parent);
    if (status == RM_OK)
        status = sim_rm_handle_free_locked(client, *handle);
    if (status != RM_OK)
        return status;
    request.device = sim_machine->memories[memory].device;
    uint32_t object = sim_object_create_locked(&request);
    if (object == SIM_NONE)
        return RM_ERR_INSUFFICIENT_RESOURCES;
    *handle = sim_machine->objects[object].handle;
    return RM_OK;
}

uint32_t sim_rm_import_object(const struct sim_rm_control *control)
{
    struct rm_import_object *params = control->params;
    const struct sim_export *exported = export_made(params->fd);
    if (exported == NULL)
        return RM_ERR_INVALID_ARGUMENT;
    uint32_t status =
        import_memory(control->client, params->parent, exported->memories[0], &params->object);
    if (status == RM_OK)
        params->type = RM_EXPORT_TYPE_RM;
    return status;
}

/* All or none. */
uint32_t sim_rm_import_objects(const struct sim_rm_control *control)
{
    struct rm_import_objects *params = control->params;
    const struct sim_export *exported = export_made(params->fd);
    if (exported == NULL || params->count > RM_IMPORT_OBJECTS_MAX ||
        params->index > exported->max_objects ||
        params->count > exported->max_objects - params->index)
        return RM_ERR_INVALID_ARGUMENT;
    uint32_t status = RM_OK, done = 0;
    while (done < params->count) {
        status = import_memory(control->client, params->parent,
            exported->memories[params->index + done], &params->objects[done]);
        if (status != RM_OK)
            break;
        params->types[done++] = RM_IMPORT_TYPE_VIDEO;
    }
    while (status != RM_OK && done > 0)
        sim_object_destroy_locked(sim_object_find_locked(control->client, params->objects[--done]));
    return status;
}
