/* SPDX-License-Identifier: Apache-2.0 */
/* Behaviour cases of what annotations hold: device strings, registered devices. */
#include "cases.h"

#include "cluster/node_devices.h"
#include "cluster/pod_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_device(struct behaviour_case *self, const char *where, const json_t *wanted,
    const struct pod_device *got)
{
    case_check(
        self, !strcmp(got->uuid, case_text(wanted, "uuid")), "%s: UUID %s", where, got->uuid);
    case_check(
        self, !strcmp(got->type, case_text(wanted, "type")), "%s: type %s", where, got->type);
    case_check(self, got->memory_mib == case_number(wanted, "mem"), "%s: memory %d", where,
        got->memory_mib);
    case_check(self, got->cores_percent == case_number(wanted, "cores"), "%s: cores %d", where,
        got->cores_percent);
}

static void check_containers(
    struct behaviour_case *self, const json_t *wanted, const struct pod_devices *got)
{
    size_t count = json_array_size(wanted), got_count = got->count;
    /* One empty container more at the end is allowed on either side. */
    while (count && !json_array_size(json_array_get(wanted, count - 1)))
        count--;
    while (got_count && !got->containers[got_count - 1].count)
        got_count--;
    case_check(self, got->count <= json_array_size(wanted) + 1, "%zu containers", got->count);
    if (!case_check(
            self, count == got_count, "%zu containers with devices, not %zu", got_count, count))
        return;
    for (size_t c = 0; c < count; c++) {
        const json_t *devices = json_array_get(wanted, c);
        if (!case_check(self, json_array_size(devices) == got->containers[c].count,
                "container %zu has %zu devices", c, got->containers[c].count))
            return;
        for (size_t d = 0; d < json_array_size(devices); d++) {
            char where[64];
            snprintf(where, sizeof(where), "container %zu, device %zu", c, d);
            check_device(self, where, json_array_get(devices, d), &got->containers[c].devices[d]);
        }
    }
}

void case_run_podstring_decode(struct behaviour_case *self)
{
    struct pod_devices devices;
    struct error error;
    bool failed = pod_devices_decode(case_text(self->input, "annotation"), &devices, &error);
    if (case_check_error(self, failed ? error.text : NULL))
        check_containers(self, case_expected(self, "containers"), &devices);
    if (failed)
        return;
    /* What was decoded is written so that it reads the same. */
    struct pod_devices again = {0};
    char *text = pod_devices_encode(&devices);
    case_check(self, text && !pod_devices_decode(text, &again, &error), "cannot be read again");
    case_check(self, again.count == devices.count, "it is another number of containers again");
    for (size_t c = 0; c < again.count && c < devices.count; c++)
        case_check(self, pod_devices_equal(&again.containers[c], &devices.containers[c]),
            "container %zu differs again", c);
    free(text);
    pod_devices_finish(&again);
    pod_devices_finish(&devices);
}

void case_run_podstring_encode(struct behaviour_case *self)
{
    const json_t *containers = json_object_get(self->input, "containers");
    struct pod_devices devices = {.count = json_array_size(containers)};
    devices.containers = calloc(devices.count + 1, sizeof(devices.containers[0]));
    for (size_t c = 0; c < devices.count; c++) {
        const json_t *list = json_array_get(containers, c);
        struct pod_devices_container *container = &devices.containers[c];
        container->count = json_array_size(list);
        container->devices = calloc(container->count + 1, sizeof(container->devices[0]));
        for (size_t d = 0; d < container->count; d++) {
            const json_t *item = json_array_get(list, d);
            struct pod_device *device = &container->devices[d];
            snprintf(device->uuid, sizeof(device->uuid), "%s", case_text(item, "uuid"));
            snprintf(device->type, sizeof(device->type), "%s", case_text(item, "type"));
            device->memory_mib = (int32_t)case_number(item, "mem");
            device->cores_percent = (int32_t)case_number(item, "cores");
        }
    }
    char *text = pod_devices_encode(&devices);
    case_check_text(self, "annotation", text);
    free(text);
    pod_devices_finish(&devices);
}

static json_t *describe_device(const struct node_device *device)
{
    json_t *profiles = json_array();
    for (size_t i = 0; i < device->profile_count; i++)
        json_array_append_new(profiles, json_string(device->profiles[i].name));
    return json_pack("{ss sI si si si ss si ss sb so}", "id", device->id, "index",
        (json_int_t)device->index, "count", device->count, "devmem", device->memory_mib, "devcore",
        device->cores_percent, "type", device->type, "numa", device->numa, "mode", device->mode,
        "health", device->healthy, "migProfiles", profiles);
}

static void check_node_device(
    struct behaviour_case *self, size_t place, const json_t *wanted, const struct node_device *got)
{
    json_t *description = describe_device(got), *value;
    const char *key;
    json_object_foreach((json_t *)wanted, key, value)
    {
        const json_t *own = json_object_get(description, key);
        char *text = json_dumps(own, JSON_ENCODE_ANY);
        case_check(self, json_equal(own, value), "device %zu: %s is %s", place, key,
            text ? text : "(none)");
        free(text);
    }
    json_decref(description);
}

void case_run_register_decode(struct behaviour_case *self)
{
    struct node_devices devices = {0};
    struct error error;
    bool failed = node_devices_decode(case_text(self->input, "annotation"), &devices, &error);
    if (case_check_error(self, failed ? error.text : NULL) && case_expected(self, "devices")) {
        const json_t *wanted = case_expected(self, "devices");
        case_check(self, devices.count == json_array_size(wanted), "%zu devices", devices.count);
        for (size_t d = 0; d < devices.count && d < json_array_size(wanted); d++)
            check_node_device(self, d, json_array_get(wanted, d), &devices.devices[d]);
    }
    case_check_truth(self, "node_usable", !failed && devices.count > 0);
    node_devices_finish(&devices);
}

static void make_profile(const json_t *value, struct node_device_profile *profile)
{
    const json_t *placements = json_object_get(value, "placements");
    snprintf(profile->name, sizeof(profile->name), "%s", case_text(value, "name"));
    profile->memory_mib = (int32_t)case_number(value, "memoryMB");
    profile->cores_percent = (int32_t)case_number(value, "core");
    profile->slices = (uint32_t)case_number(value, "sliceCount");
    profile->placement_count = json_array_size(placements);
    profile->placements = calloc(profile->placement_count + 1, sizeof(profile->placements[0]));
    for (size_t i = 0; i < profile->placement_count; i++) {
        const json_t *placement = json_array_get(placements, i);
        profile->placements[i].start = (uint32_t)case_number(placement, "start");
        profile->placements[i].size = (uint32_t)case_number(placement, "size");
    }
}

/* A device of the input, with the keys of the annotation's JSON. */
static void make_device(const json_t *item, struct node_device *device)
{
    const char *type = case_text(item, "type"), *mode = case_text(item, "mode");
    const json_t *profiles = json_object_get(item, "migProfiles");
    snprintf(device->id, sizeof(device->id), "%s", case_text(item, "id"));
    device->index = (uint32_t)case_number(item, "index");
    device->count = (int32_t)case_number(item, "count");
    device->memory_mib = (int32_t)case_number(item, "devmem");
    device->cores_percent = (int32_t)case_number(item, "devcore");
    snprintf(device->type, sizeof(device->type), "%s", type ? type : "");
    device->numa = (int32_t)case_number(item, "numa");
    snprintf(device->mode, sizeof(device->mode), "%s", mode ? mode : "");
    device->healthy = case_truth(item, "health");
    device->profile_count = json_array_size(profiles);
    device->profiles = calloc(device->profile_count + 1, sizeof(device->profiles[0]));
    for (size_t p = 0; p < device->profile_count; p++)
        make_profile(json_array_get(profiles, p), &device->profiles[p]);
}

static void check_csv(struct behaviour_case *self, const struct node_devices *devices,
    const char *key, unsigned fields)
{
    char *text = NULL;
    struct error error = {.text = ""};
    if (!case_expected(self, key))
        return;
    bool failed = node_devices_encode_csv(devices, fields, &text, &error);
    case_check(self, !failed, "%s", error.text);
    case_check_text(self, key, text);
    free(text);
}

void case_run_register_encode(struct behaviour_case *self)
{
    const json_t *list = json_object_get(self->input, "devices");
    const json_t *wanted = case_expected(self, "json");
    struct node_devices devices = {0};
    struct error error = {.text = ""};
    char *text = NULL;
    for (size_t i = 0; i < json_array_size(list); i++)
        make_device(json_array_get(list, i), node_devices_add(&devices));
    bool failed = node_devices_encode_json(&devices, &text, &error);
    case_check(self, !failed, "%s", error.text);
    json_t *got = text ? json_loads(text, 0, NULL) : NULL;
    if (wanted)
        case_check(self, json_equal(got, wanted), "%s", text ? text : "(none)");
    json_decref(got);
    free(text);
    check_csv(self, &devices, "csv7", 7);
    check_csv(self, &devices, "csv9", 9);
    node_devices_finish(&devices);
}
