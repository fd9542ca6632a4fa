/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu ps for programs: docs/tools.md describes the members. */
#include "tool/ps.h"

#include "tool/json.h"

#include <stdio.h>

static void write_memory(
    struct json *json, const struct collected_bytes *memory, const uint64_t *limit)
{
    json_begin_object(json, "memory");
    json_number(json, "bytes", memory->bytes);
    if (limit)
        json_number(json, "limit", *limit);
    json_number(json, "context", memory->context);
    json_number(json, "module", memory->module);
    json_number(json, "buffer", memory->buffer);
    json_number(json, "managed", memory->managed);
    json_number(json, "unexplained", memory->unexplained);
    json_end_inner(json);
}

static void write_share(struct json *json, const char *name, double share)
{
    if (share < 0)
        json_null(json, name);
    else
        json_fraction(json, name, share, 1);
}

static void write_device(
    struct json *json, const struct collected_container *container, unsigned number)
{
    const struct collected_device *device = &container->devices[number];
    json_begin_object(json, NULL);
    json_number(json, "device", number);
    json_string(json, "uuid", device->uuid);
    json_string(json, "state", ps_state(container, device));
    json_bool(json, "throttled", device->throttled);
    json_bool(json, "closed", device->memory_closed);
    write_memory(json, &device->memory, &device->memory_limit);
    json_begin_object(json, "gpu");
    write_share(json, "now", device->share_now);
    write_share(json, "minute", device->share_minute);
    json_number(json, "limit", device->core_limit);
    json_number(json, "soft_limit", device->core_soft_limit);
    json_number(json, "busy_ns", device->busy_ns);
    json_end_inner(json);
    json_end_inner(json);
}

static void write_process(struct json *json, const struct collected_container *container,
    const struct collected_process *process)
{
    json_begin_object(json, NULL);
    if (process->host_pid)
        json_signed(json, "pid", process->host_pid);
    else
        json_null(json, "pid");
    json_signed(json, "container_pid", process->pid);
    json_string(json, "command", process->command);
    json_string(json, "ledger", process->ledger ? ps_ledger(process->ledger) : NULL);
    json_begin_array(json, "devices");
    for (unsigned d = 0; d < container->device_count; d++) {
        enum collected_gate gate = process->uses[d].gate;
        json_begin_object(json, NULL);
        json_number(json, "device", d);
        json_string(json, "gate", gate ? ps_gate(gate) : NULL);
        write_memory(json, &process->uses[d].memory, NULL);
        json_end_inner(json);
    }
    json_end_inner(json);
    json_end_inner(json);
}

static const char *said(const char *text)
{
    return *text ? text : NULL;
}

static void write_container(struct json *json, const struct collected_container *container)
{
    json_begin_object(json, NULL);
    json_string(json, "region", container->path);
    json_string(json, "namespace", said(container->pod_namespace));
    json_string(json, "pod", said(container->pod_name));
    json_string(json, "pod_uid", said(container->pod_uid));
    json_string(json, "container", said(container->container_name));
    json_number(json, "owner", container->owner);
    json_bool(json, "deleted", container->deleted);
    json_bool(json, "paused", container->paused);
    json_bool(json, "held", container->held);
    json_bool(json, "lifted", container->lifted);
    json_number(json, "priority", container->priority);
    json_bool(json, "priority_given", container->has_priority);
    json_begin_array(json, "devices");
    for (unsigned d = 0; d < container->device_count; d++)
        write_device(json, container, d);
    json_end_inner(json);
    json_begin_array(json, "processes");
    for (unsigned i = 0; i < container->process_count; i++)
        write_process(json, container, &container->processes[i]);
    json_end_inner(json);
    json_end_inner(json);
}

void ps_print_json(const struct collection *collection)
{
    struct json json;
    json_begin(&json, stdout);
    json_number(&json, "ps", 1);
    json_number(&json, "unreadable", collection->unreadable);
    json_begin_array(&json, "containers");
    for (size_t i = 0; i < collection->count; i++)
        write_container(&json, &collection->containers[i]);
    json_end_inner(&json);
    json_end(&json);
}
