/* SPDX-License-Identifier: Apache-2.0 */
/* What holds in a region, for programs. */
#include "host/limits.h"

#include "host/json_write.h"

#include <stdio.h>

static void write_region(struct json *json, const struct chosen_region *chosen)
{
    json_write_string(json, "region", chosen->path);
    json_write_string(json, "reason", chosen->reason);
}

static void write_state(struct json *json, const struct region_state *state)
{
    json_write_bool(json, "paused", state->paused);
    json_write_bool(json, "held", state->held);
    json_write_bool(json, "lifted", state->lifted);
    json_write_number(
        json, "priority", state->has_priority ? state->priority : VGPU_PRIORITY_DEFAULT);
    json_write_bool(json, "priority_given", state->has_priority);
}

static void write_limits(struct json *json, const struct vgpu_device *device)
{
    json_write_number(json, "memory_limit", device->memory_limit);
    json_write_bool(json, "closed", device->memory_closed != 0);
    json_write_number(json, "core_limit", device->core_limit);
    json_write_number(json, "core_soft_limit", device->core_soft_limit);
}

static void write_device(struct json *json, int number, const struct region_look *look)
{
    json_write_begin_object(json, NULL);
    json_write_signed(json, "device", number);
    json_write_string(json, "uuid", look->device.uuid);
    write_limits(json, &look->device);
    json_write_number(json, "used", look->used_bytes);
    json_write_end_inner(json);
}

/* All that is written, so that nothing is said where something cannot be read. */
struct seen {
    struct region_state state;
    struct region_look devices[VGPU_REGION_DEVICES], others;
    int first, end; /* of the devices that are asked for */
};

static int see(struct chosen_region *chosen, int device, int count, struct seen *ret_seen)
{
    bool all = device == REGION_ALL_DEVICES;
    int error = region_set_state(&chosen->region, &ret_seen->state);
    if (!error)
        error = region_set_look(&chosen->region, REGION_ALL_DEVICES, &ret_seen->others);
    ret_seen->first = all ? 0 : device;
    ret_seen->end = all ? count : device + 1;
    for (int i = ret_seen->first; i < ret_seen->end && !error; i++)
        error = region_set_look(&chosen->region, i, &ret_seen->devices[i]);
    return error;
}

static void write_seen(
    const struct chosen_region *chosen, const struct seen *seen, const char *command)
{
    struct json json;
    json_write_begin(&json, stdout);
    json_write_number(&json, command, 1);
    write_region(&json, chosen);
    write_state(&json, &seen->state);
    json_write_begin_array(&json, "devices");
    for (int i = seen->first; i < seen->end; i++)
        write_device(&json, i, &seen->devices[i]);
    json_write_end_inner(&json);
    json_write_begin_object(&json, "other_devices");
    write_limits(&json, &seen->others.device);
    json_write_end_inner(&json);
    json_write_end(&json);
}

int limits_change_json(struct chosen_region *chosen, int device, const struct region_change *change)
{
    static struct seen seen;
    int count = region_set_device_count(&chosen->region);
    int error = count < 0 ? count : region_set_limits(&chosen->region, device, change);
    if (!error)
        error = see(chosen, device, count, &seen);
    if (error)
        return limits_refuse_device(chosen, device, count, error);
    write_seen(chosen, &seen, "set");
    for (int i = seen.first; i < seen.end; i++)
        limits_warn(i, &seen.devices[i], change);
    if (device == REGION_ALL_DEVICES && !count)
        limits_warn(REGION_ALL_DEVICES, &seen.others, change);
    if (change->memory)
        limits_warn_of_little_memory(change->memory_bytes);
    return 0;
}

static void write_living(struct json *json, const struct living *living)
{
    json_write_number(json, "process_count", living->count);
    json_write_begin_array(json, "processes");
    for (unsigned i = 0; i < living->count && i < LIVING_SHOWN; i++) {
        json_write_begin_object(json, NULL);
        json_write_signed(json, "pid", living->shown[i].pid);
        json_write_string(json, "command", living->shown[i].command);
        json_write_end_inner(json);
    }
    json_write_end_inner(json);
}

static void write_release(struct json *json, const struct release_outcome *release)
{
    json_write_begin_object(json, "release");
    json_write_number(json, "released", release->released_bytes);
    json_write_number(json, "movable", release->left_bytes);
    json_write_number(json, "context", release->context_bytes);
    json_write_number(json, "module", release->module_bytes);
    json_write_number(json, "other", release->other_bytes);
    json_write_number(json, "unexplained", release->unexplained_bytes);
    json_write_number(json, "moved", release->moved);
    json_write_number(json, "back", release->back);
    json_write_number(json, "partly", release->partly);
    json_write_number(json, "not_drained", release->not_drained);
    json_write_number(json, "captures", release->captures);
    json_write_number(json, "parked", release->parked);
    json_write_number(json, "checkpointed", release->checkpointed);
    json_write_number(json, "checkpoint_refused", release->checkpoint.refused);
    json_write_number(json, "silent", release->silent);
    json_write_end_inner(json);
}

void limits_pause_json(const char *command, const struct chosen_region *chosen,
    const struct pause_outcome *outcome, const struct release_outcome *release)
{
    struct json json;
    json_write_begin(&json, stdout);
    json_write_number(&json, command, 1);
    write_region(&json, chosen);
    json_write_bool(&json, "was_paused", outcome->was);
    write_state(&json, &outcome->state);
    if (release)
        write_release(&json, release);
    write_living(&json, &outcome->living);
    json_write_end(&json);
}
