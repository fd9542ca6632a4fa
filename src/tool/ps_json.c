/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu ps for programs: docs/tools.md describes the members. */
#include "tool/ps.h"

#include "host/json_write.h"

#include <stdio.h>

static void write_memory(
    struct json *json, const struct collected_bytes *memory, const uint64_t *limit)
{
    json_write_begin_object(json, "memory");
    json_write_number(json, "bytes", memory->bytes);
    if (limit)
        json_write_number(json, "limit", *limit);
    json_write_number(json, "context", memory->context);
    json_write_number(json, "module", memory->module);
    json_write_number(json, "buffer", memory->buffer);
    json_write_number(json, "managed", memory->managed);
    json_write_number(json, "unexplained", memory->unexplained);
    json_write_number(json, "spilled", memory->spilled);
    json_write_end_inner(json);
}

static void write_share(struct json *json, const char *name, double share)
{
    if (share < 0)
        json_write_null(json, name);
    else
        json_write_fraction(json, name, share, 1);
}

static void write_device(
    struct json *json, const struct collected_container *container, unsigned number)
{
    const struct collected_device *device = &container->devices[number];
    json_write_begin_object(json, NULL);
    json_write_number(json, "device", number);
    json_write_string(json, "uuid", device->uuid);
    json_write_string(json, "state", collect_words_state(container, device));
    json_write_bool(json, "throttled", device->throttled);
    json_write_bool(json, "closed", device->memory_closed);
    write_memory(json, &device->memory, &device->memory_limit);
    json_write_begin_object(json, "gpu");
    write_share(json, "now", device->share_now);
    write_share(json, "minute", device->share_minute);
    json_write_number(json, "limit", device->core_limit);
    json_write_number(json, "soft_limit", device->core_soft_limit);
    json_write_number(json, "busy_ns", device->busy_ns);
    json_write_end_inner(json);
    json_write_end_inner(json);
}

static void write_process(struct json *json, const struct collected_container *container,
    const struct collected_process *process)
{
    json_write_begin_object(json, NULL);
    if (process->host_pid)
        json_write_signed(json, "pid", process->host_pid);
    else
        json_write_null(json, "pid");
    json_write_signed(json, "container_pid", process->pid);
    json_write_string(json, "command", process->command);
    json_write_string(
        json, "ledger", process->ledger ? collect_words_ledger(process->ledger) : NULL);
    json_write_string(json, "release", collect_words_release(process->release_state));
    json_write_number(json, "released", process->released_bytes);
    json_write_begin_array(json, "devices");
    for (unsigned d = 0; d < container->device_count; d++) {
        enum collected_gate gate = process->uses[d].gate;
        json_write_begin_object(json, NULL);
        json_write_number(json, "device", d);
        json_write_string(json, "gate", gate ? collect_words_gate(gate) : NULL);
        write_memory(json, &process->uses[d].memory, NULL);
        json_write_end_inner(json);
    }
    json_write_end_inner(json);
    json_write_end_inner(json);
}

static const char *said(const char *text)
{
    return *text ? text : NULL;
}

static void write_container(struct json *json, const struct collected_container *container)
{
    json_write_begin_object(json, NULL);
    json_write_string(json, "region", container->path);
    json_write_string(json, "namespace", said(container->pod_namespace));
    json_write_string(json, "pod", said(container->pod_name));
    json_write_string(json, "pod_uid", said(container->pod_uid));
    json_write_string(json, "container", said(container->container_name));
    json_write_number(json, "owner", container->owner);
    json_write_bool(json, "deleted", container->deleted);
    json_write_bool(json, "paused", container->paused);
    json_write_bool(json, "released", container->released);
    json_write_bool(json, "held", container->held);
    json_write_bool(json, "lifted", container->lifted);
    json_write_number(json, "priority", container->priority);
    json_write_bool(json, "priority_given", container->has_priority);
    json_write_begin_array(json, "devices");
    for (unsigned d = 0; d < container->device_count; d++)
        write_device(json, container, d);
    json_write_end_inner(json);
    json_write_begin_array(json, "processes");
    for (unsigned i = 0; i < container->process_count; i++)
        write_process(json, container, &container->processes[i]);
    json_write_end_inner(json);
    json_write_end_inner(json);
}

void ps_print_json(const struct collection *collection)
{
    struct json json;
    json_write_begin(&json, stdout);
    json_write_number(&json, "ps", 1);
    json_write_number(&json, "unreadable", collection->unreadable);
    json_write_begin_array(&json, "containers");
    for (size_t i = 0; i < collection->count; i++)
        write_container(&json, &collection->containers[i]);
    json_write_end_inner(&json);
    json_write_end(&json);
}
