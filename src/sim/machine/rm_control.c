/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated resource manager's controls. Unknown ones answer NV_ERR_NOT_SUPPORTED. */
#include "sim/machine/rm.h"

#include "sim/machine/machine.h"
#include "sim/machine/machine_layout.h"
#include "sim/machine/rm_objects.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static struct sim_object *control_object(const struct sim_rm_control *control)
{
    return &sim_machine->objects[control->object];
}

static uint32_t get_gid_info(const struct sim_rm_control *control)
{
    struct rm_gid_info *params = control->params;
    /* The card's, also on one in MIG mode (open kernel modules, 580.95.05: gpuGetGidInfo). */
    const struct sim_device *device =
        sim_device_card(&sim_machine->devices[control_object(control)->device]);
    memset(params->data, 0, sizeof params->data);
    if ((params->flags & 3u) == RM_GID_FLAGS_ASCII) {
        memcpy(params->data, device->uuid, sizeof device->uuid);
        params->length = (uint32_t)strlen(device->uuid) + 1;
    } else {
        memcpy(params->data, device->uuid_bytes, sizeof device->uuid_bytes);
        params->length = sizeof device->uuid_bytes;
    }
    return RM_OK;
}

/* The pid of a client that a caller means by this pid, or -1. */
static int32_t pid_meant(uint32_t pid)
{
    switch (sim_description()->nvml_pid) {
    case SIM_NVML_PID_NONE:
        return -1;
    case SIM_NVML_PID_HOST:
        return pid > SIM_NVML_PID_HOST_SHIFT ? (int32_t)(pid - SIM_NVML_PID_HOST_SHIFT) : -1;
    default:
        return (int32_t)pid;
    }
}

static uint32_t get_pid_info(const struct sim_rm_control *control)
{
    struct rm_pid_info_list *params = control->params;
    uint32_t device = control_object(control)->device;
    if (sim_description()->vgpu_guest)
        return RM_ERR_NOT_SUPPORTED;
    if (params->count > RM_PID_INFO_MAX)
        return RM_ERR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < params->count; i++) {
        struct rm_pid_info *info = &params->list[i];
        uint32_t pid = info->pid, index = info->index;
        *info = (struct rm_pid_info){
            .pid = pid, .index = index, .compute_instance = ~0u, .gpu_instance = ~0u};
        if (index != RM_PID_INFO_INDEX_VIDEO_MEMORY) {
            info->result = RM_ERR_INVALID_ARGUMENT;
            continue;
        }
        int32_t meant = pid_meant(pid);
        for (uint32_t c = 0; c < sim_machine->clients_end; c++) {
            const struct sim_client *client = &sim_machine->clients[c];
            if (!client->live || client->pid != meant)
                continue;
            info->private_bytes += client->bytes[device][SIM_PRIVATE];
            info->shared_owned_bytes += client->bytes[device][SIM_SHARED_OWNED];
            info->shared_duped_bytes += client->bytes[device][SIM_SHARED_DUPED];
        }
    }
    return RM_OK;
}

static uint32_t pid_shown(int32_t pid)
{
    return (uint32_t)pid +
           (sim_description()->nvml_pid == SIM_NVML_PID_HOST ? SIM_NVML_PID_HOST_SHIFT : 0);
}

/* From a sibling PID namespace no process is to be seen. */
static uint32_t get_pids(const struct sim_rm_control *control)
{
    struct rm_pids *params = control->params;
    uint32_t device = control_object(control)->device;
    if (params->id_type != RM_PIDS_BY_CLASS)
        return RM_ERR_INVALID_ARGUMENT;
    params->count = 0;
    for (uint32_t c = 0; c < sim_machine->clients_end; c++) {
        const struct sim_client *client = &sim_machine->clients[c];
        if (!client->live || params->count == RM_PIDS_MAX ||
            sim_description()->nvml_pid == SIM_NVML_PID_NONE ||
            (params->class_id != RM_CLASS_SUBDEVICE && client->channel_groups[device] == 0))
            continue;
        uint32_t pid = pid_shown(client->pid), at = 0;
        while (at < params->count && params->pids[at] != pid)
            at++;
        params->pids[at] = pid;
        params->count += at == params->count;
    }
    return RM_OK;
}

/* What a control takes of its caller, in which others may have the lock: mid of what was seen of 8
 * channels while a persistent kernel ran (H200, driver 580.159.04). The kernel stops some time
 * before the call returns; it goes on 36 us after the call that lets it. */
#define ENABLE_NS 310000ull
#define DISABLE_NS 358000ull
#define DISABLED_NS 262000ull
#define SET_TIMESLICE_NS 390000ull

static void take_time(uint64_t ns)
{
    uint64_t until = sim_clock_ns() + ns;
    struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    sim_unlock();
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
    sim_lock();
}

/* All are looked up before any changes. Channels of another client than the subdevice's are refused
 * with INVALID_CLIENT (seen on H200, driver 580.159.04), those of another GPU with INVALID_DEVICE
 * (assumed). */
static uint32_t find_channels(
    const struct sim_rm_control *control, uint32_t ret_channels[RM_DISABLE_CHANNELS_MAX])
{
    const struct rm_disable_channels *params = control->params;
    for (uint32_t i = 0; i < params->count; i++) {
        uint32_t client;
        uint32_t status = sim_rm_client_locked(control->slot, params->clients[i], &client);
        if (status != RM_OK)
            return status;
        if (client != control->client)
            return RM_ERR_INVALID_CLIENT;
        ret_channels[i] = sim_object_find_locked(client, params->channels[i]);
        if (ret_channels[i] == SIM_NONE)
            return RM_ERR_OBJECT_NOT_FOUND;
        if (!RM_CLASS_IS_CHANNEL(sim_machine->objects[ret_channels[i]].class_id))
            return RM_ERR_INVALID_OBJECT_HANDLE;
        if (sim_machine->objects[ret_channels[i]].device != control_object(control)->device)
            return RM_ERR_INVALID_DEVICE;
    }
    return RM_OK;
}

static uint32_t disable_channels(const struct sim_rm_control *control)
{
    const struct rm_disable_channels *params = control->params;
    uint32_t channels[RM_DISABLE_CHANNELS_MAX];
    if (sim_description()->no_gsp)
        return RM_ERR_NOT_SUPPORTED;
    if (params->count > RM_DISABLE_CHANNELS_MAX)
        return RM_ERR_INVALID_ARGUMENT;
    uint32_t status = find_channels(control, channels);
    if (status == RM_OK) {
        take_time(params->disable ? DISABLE_NS : ENABLE_NS);
        status = find_channels(control, channels);
    }
    if (status != RM_OK)
        return status;
    for (uint32_t i = 0; params->disable && i < params->count; i++) {
        if (sim_timeline_fail_restored_locked(sim_machine->objects[channels[i]].parent))
            return RM_ERR_BUSY_RETRY;
    }
    for (uint32_t i = 0; i < params->count; i++)
        sim_machine->objects[channels[i]].disabled = params->disable != 0;
    for (uint32_t i = 0; i < params->count; i++)
        sim_timeline_channels_changed_locked(sim_machine->objects[channels[i]].parent);
    if (params->disable)
        take_time(DISABLED_NS);
    return RM_OK;
}

static uint32_t get_timeslice(const struct sim_rm_control *control)
{
    struct rm_timeslice *params = control->params;
    params->timeslice_us = control_object(control)->timeslice_us;
    return RM_OK;
}

static uint32_t set_timeslice(const struct sim_rm_control *control)
{
    const struct rm_timeslice *params = control->params;
    if (params->timeslice_us == 0 || params->timeslice_us > UINT32_MAX)
        return RM_ERR_INVALID_ARGUMENT;
    (void)sim_timeline_advance_locked();
    control_object(control)->timeslice_us = (uint32_t)params->timeslice_us;
    take_time(SET_TIMESLICE_NS);
    return RM_OK;
}

static uint32_t schedule(const struct sim_rm_control *control)
{
    (void)control; /* NV_OK and no effect, also to disable (seen on H200, driver 580.159.04) */
    return RM_OK;
}

#define ON_CLIENT 0xffffffffu

static const struct {
    uint32_t cmd;
    uint32_t class_id; /* of the object, or ON_CLIENT */
    uint32_t params_size;
    uint32_t (*execute)(const struct sim_rm_control *control);
} controls[] = {
    {RM_CTRL_EXPORT_OBJECT_TO_FD, ON_CLIENT, sizeof(struct rm_export_object), sim_rm_export_object},
    {RM_CTRL_IMPORT_OBJECT_FROM_FD, ON_CLIENT, sizeof(struct rm_import_object),
        sim_rm_import_object},
    {RM_CTRL_GET_EXPORT_OBJECT_INFO, ON_CLIENT, sizeof(struct rm_export_info),
        sim_rm_get_export_info},
    {RM_CTRL_EXPORT_OBJECTS_TO_FD, ON_CLIENT, sizeof(struct rm_export_objects),
        sim_rm_export_objects},
    {RM_CTRL_IMPORT_OBJECTS_FROM_FD, ON_CLIENT, sizeof(struct rm_import_objects),
        sim_rm_import_objects},
    {RM_CTRL_GPU_GET_GID_INFO, RM_CLASS_SUBDEVICE, sizeof(struct rm_gid_info), get_gid_info},
    {RM_CTRL_GPU_GET_PIDS, RM_CLASS_SUBDEVICE, sizeof(struct rm_pids), get_pids},
    {RM_CTRL_GPU_GET_PID_INFO, RM_CLASS_SUBDEVICE, sizeof(struct rm_pid_info_list), get_pid_info},
    {RM_CTRL_FIFO_DISABLE_CHANNELS, RM_CLASS_SUBDEVICE, sizeof(struct rm_disable_channels),
        disable_channels},
    {RM_CTRL_GPFIFO_SCHEDULE, RM_CLASS_CHANNEL_GROUP, sizeof(struct rm_schedule), schedule},
    {RM_CTRL_SET_TIMESLICE, RM_CLASS_CHANNEL_GROUP, sizeof(struct rm_timeslice), set_timeslice},
    {RM_CTRL_GET_TIMESLICE, RM_CLASS_CHANNEL_GROUP, sizeof(struct rm_timeslice), get_timeslice},
};

uint32_t sim_rm_control_locked(uint32_t slot, const struct rm_control *call)
{
    const struct sim_rule *rule;
    struct sim_rm_control control = {
        .slot = slot, .params = (void *)(uintptr_t)call->params}; // NOLINT
    if (sim_rule_hits(SIM_RULE_RM_NUMBER, NULL, call->cmd, &rule))
        return rule->code;
    if (call->cmd == RM_CTRL_GPU_GET_PID_INFO || call->cmd == RM_CTRL_GPU_GET_PIDS)
        sim_reap_locked();
    uint32_t status = sim_rm_client_locked(slot, call->client, &control.client);
    if (status == RM_OK)
        status = sim_rm_object_locked(control.client, call->object, &control.object);
    if (status != RM_OK)
        return status;
    for (size_t i = 0; i < sizeof controls / sizeof controls[0]; i++) {
        if (controls[i].cmd != call->cmd)
            continue;
        uint32_t class_id =
            control.object == SIM_NONE ? ON_CLIENT : control_object(&control)->class_id;
        if (class_id != controls[i].class_id)
            return RM_ERR_INVALID_OBJECT_HANDLE;
        if (class_id == RM_CLASS_SUBDEVICE && control_object(&control)->device == SIM_NONE)
            return RM_ERR_INVALID_DEVICE;
        if (call->params == 0 || call->params_size != controls[i].params_size)
            return RM_ERR_INVALID_PARAM_STRUCT;
        return controls[i].execute(&control);
    }
    return RM_ERR_NOT_SUPPORTED;
}
