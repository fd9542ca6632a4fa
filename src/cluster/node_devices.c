/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/node_devices.h"

#include "codec/json_read.h"
#include "codec/no_memory.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHAT "register annotation"

struct node_device *node_devices_add(struct node_devices *devices)
{
    if (devices->count == NODE_DEVICES_MAX)
        return NULL;
    struct node_device *grown =
        reallocarray(devices->devices, devices->count + 1, sizeof(devices->devices[0]));
    if (!grown)
        return NULL;
    devices->devices = grown;
    struct node_device *device = &grown[devices->count++];
    memset(device, 0, sizeof(*device));
    return device;
}

static int read_placements(
    const json_t *value, struct node_device_profile *profile, struct error *error)
{
    const json_t *list = NULL;
    int result =
        json_read_array(WHAT, value, "placements", NODE_DEVICES_PLACEMENTS_MAX, &list, error);
    size_t count = json_array_size(list);
    if (result || !count)
        return result;
    profile->placements = calloc(count, sizeof(profile->placements[0]));
    if (!profile->placements)
        return no_memory(error, WHAT);
    profile->placement_count = count;
    for (size_t i = 0; i < count && !result; i++) {
        struct node_device_placement *placement = &profile->placements[i];
        const json_t *item = json_array_get(list, i);
        if (!json_is_object(item))
            return error_set(error, EINVAL, WHAT ": a placement is not an object");
        result = json_read_uint32(WHAT, item, "start", &placement->start, error);
        if (!result)
            result = json_read_uint32(WHAT, item, "size", &placement->size, error);
    }
    return result;
}

static int read_profile(
    const json_t *value, struct node_device_profile *profile, struct error *error)
{
    if (!json_is_object(value))
        return error_set(error, EINVAL, WHAT ": a MIG profile is not an object");
    int result = json_read_string(WHAT, value, "name", profile->name, sizeof(profile->name), error);
    if (!result)
        result = json_read_int32(WHAT, value, "memoryMB", &profile->memory_mib, error);
    if (!result)
        result = json_read_int32(WHAT, value, "core", &profile->cores_percent, error);
    if (!result)
        result = json_read_uint32(WHAT, value, "sliceCount", &profile->slices, error);
    return result ? result : read_placements(value, profile, error);
}

static int read_profiles(const json_t *value, struct node_device *device, struct error *error)
{
    const json_t *list = NULL;
    int result =
        json_read_array(WHAT, value, "migProfiles", NODE_DEVICES_PROFILES_MAX, &list, error);
    size_t count = json_array_size(list);
    if (result || !count)
        return result;
    device->profiles = calloc(count, sizeof(device->profiles[0]));
    if (!device->profiles)
        return no_memory(error, WHAT);
    device->profile_count = count;
    for (size_t i = 0; i < count && !result; i++)
        result = read_profile(json_array_get(list, i), &device->profiles[i], error);
    return result;
}

static int read_device(const json_t *value, struct node_device *device, struct error *error)
{
    if (!json_is_object(value))
        return error_set(error, EINVAL, WHAT ": a device is not an object");
    int result = json_read_string(WHAT, value, "id", device->id, sizeof(device->id), error);
    if (!result)
        result = json_read_uint32(WHAT, value, "index", &device->index, error);
    if (!result)
        result = json_read_int32(WHAT, value, "count", &device->count, error);
    if (!result)
        result = json_read_int32(WHAT, value, "devmem", &device->memory_mib, error);
    if (!result)
        result = json_read_int32(WHAT, value, "devcore", &device->cores_percent, error);
    if (!result)
        result = json_read_string(WHAT, value, "type", device->type, sizeof(device->type), error);
    if (!result)
        result = json_read_int32(WHAT, value, "numa", &device->numa, error);
    if (!result)
        result = json_read_string(WHAT, value, "mode", device->mode, sizeof(device->mode), error);
    if (!result)
        result = json_read_bool(WHAT, value, "health", &device->healthy, error);
    return result ? result : read_profiles(value, device, error);
}

int node_devices_decode_json(const char *text, struct node_devices *devices, struct error *error)
{
    json_t *list = json_read_text(WHAT, text, error);
    int result = list ? 0 : -EINVAL;
    if (!result && !json_is_array(list))
        result = error_set(error, EINVAL, WHAT ": not a list");
    if (!result && json_array_size(list) > NODE_DEVICES_MAX)
        result = error_set(error, E2BIG, WHAT ": more than %d devices", NODE_DEVICES_MAX);
    for (size_t i = 0; !result && i < json_array_size(list); i++) {
        struct node_device *device = node_devices_add(devices);
        result =
            device ? read_device(json_array_get(list, i), device, error) : no_memory(error, WHAT);
    }
    json_decref(list);
    return result;
}

int node_devices_decode(const char *text, struct node_devices *ret_devices, struct error *error)
{
    struct node_devices devices = {NULL, 0};
    size_t length = strlen(text);
    if (length > NODE_DEVICES_TEXT_MAX)
        return error_set(
            error, E2BIG, WHAT ": %zu bytes, more than %d", length, NODE_DEVICES_TEXT_MAX);
    int result = text[strspn(text, " \t\r\n")] == '['
                     ? node_devices_decode_json(text, &devices, error)
                     : node_devices_decode_csv(text, &devices, error);
    if (result)
        node_devices_finish(&devices);
    else
        *ret_devices = devices;
    return result;
}

/* Each puts a member unless it is zero, as Go's "omitempty". */
static int put_int(json_t *object, const char *key, int64_t number)
{
    return number ? json_object_set_new(object, key, json_integer(number)) : 0;
}

static int put_string(json_t *object, const char *key, const char *text)
{
    return *text ? json_object_set_new(object, key, json_string(text)) : 0;
}

static json_t *make_profile(const struct node_device_profile *profile)
{
    json_t *placements = json_array();
    for (size_t i = 0; i < profile->placement_count; i++)
        json_array_append_new(
            placements, json_pack("{sI sI}", "start", (json_int_t)profile->placements[i].start,
                            "size", (json_int_t)profile->placements[i].size));
    return json_pack("{ss sI sI sI so}", "name", profile->name, "memoryMB",
        (json_int_t)profile->memory_mib, "core", (json_int_t)profile->cores_percent, "sliceCount",
        (json_int_t)profile->slices, "placements", placements);
}

static json_t *make_device(const struct node_device *device)
{
    json_t *object = json_object(), *profiles = json_array();
    int failed = put_string(object, "id", device->id) | put_int(object, "index", device->index) |
                 put_int(object, "count", device->count) |
                 put_int(object, "devmem", device->memory_mib) |
                 put_int(object, "devcore", device->cores_percent) |
                 put_string(object, "type", device->type) | put_int(object, "numa", device->numa) |
                 put_string(object, "mode", device->mode);
    for (size_t i = 0; i < device->profile_count; i++)
        failed |= json_array_append_new(profiles, make_profile(&device->profiles[i]));
    if (device->profile_count)
        failed |= json_object_set(object, "migProfiles", profiles);
    if (device->healthy)
        failed |= json_object_set_new(object, "health", json_true());
    json_decref(profiles);
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static int compare_devices(const void *a, const void *b)
{
    const struct node_device *x = *(const struct node_device *const *)a;
    const struct node_device *y = *(const struct node_device *const *)b;
    return x->index != y->index ? (x->index > y->index) - (x->index < y->index)
                                : strcmp(x->id, y->id);
}

const struct node_device **node_devices_order(const struct node_devices *devices)
{
    const struct node_device **order = calloc(devices->count + 1, sizeof(void *));
    if (!order)
        return NULL;
    for (size_t i = 0; i < devices->count; i++)
        order[i] = &devices->devices[i];
    qsort(order, devices->count, sizeof(void *), compare_devices);
    return order;
}

int node_devices_encode_json(
    const struct node_devices *devices, char **ret_text, struct error *error)
{
    const struct node_device **order = node_devices_order(devices);
    json_t *list = json_array();
    int result = order && list ? 0 : no_memory(error, WHAT);
    for (size_t i = 0; !result && i < devices->count; i++)
        if (json_array_append_new(list, make_device(order[i])))
            result = error_set(error, EINVAL, WHAT ": a text of device %u is not UTF-8",
                (unsigned)order[i]->index);
    char *text = result ? NULL : json_dumps(list, JSON_COMPACT);
    if (!result && !text)
        result = no_memory(error, WHAT);
    if (!result)
        *ret_text = text;
    json_decref(list);
    free(order);
    return result;
}

void node_devices_format_type(const char *model, bool always, char type[NODE_DEVICES_TYPE_BYTES])
{
    bool prefix = always || strncmp(model, "NVIDIA", 6) != 0;
    snprintf(type, NODE_DEVICES_TYPE_BYTES, "%s%.100s", prefix ? "NVIDIA-" : "", model);
}

void node_devices_finish(struct node_devices *devices)
{
    for (size_t d = 0; d < devices->count; d++) {
        for (size_t p = 0; p < devices->devices[d].profile_count; p++)
            free(devices->devices[d].profiles[p].placements);
        free(devices->devices[d].profiles);
    }
    free(devices->devices);
    *devices = (struct node_devices){NULL, 0};
}
