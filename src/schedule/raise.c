/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/raise.h"

#include "cluster/limits_wish.h"
#include "codec/no_memory.h"
#include "cluster/pod_devices.h"
#include "cluster/pod_view.h"
#include "schedule/ask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const json_t *annotations_of(const json_t *pod)
{
    return json_object_get(json_object_get(pod, "metadata"), "annotations");
}

static const char *annotation(const json_t *pod, const char *key)
{
    return json_string_value(json_object_get(annotations_of(pod), key));
}

static int raise_container(struct pod_devices_container *container, const char *name,
    const struct limits_wish *wish, bool *raises, struct error *error)
{
    for (size_t i = 0; i < container->count; i++) {
        struct pod_device *device = &container->devices[i];
        if (wish->has_cores && device->cores_percent && !wish->cores_percent)
            return error_set(
                error, EINVAL, "container %.64s: gpucores 0, no limit, cannot be granted", name);
        if (wish->has_memory && wish->memory_mib > device->memory_mib) {
            device->memory_mib = wish->memory_mib;
            *raises = true;
        }
        if (wish->has_cores && device->cores_percent &&
            wish->cores_percent > device->cores_percent) {
            device->cores_percent = wish->cores_percent;
            *raises = true;
        }
    }
    return 0;
}

static int raise_devices(
    const json_t *pod, struct pod_devices *devices, bool *raises, struct error *error)
{
    const char *text = annotation(pod, LIMITS_WISH_ANNOTATION);
    int result = 0;
    for (size_t i = 0; !result && i < devices->count; i++) {
        const char *name = json_string_value(json_object_get(ask_container_at(pod, i), "name"));
        struct limits_wish wish;
        if (!name)
            return error_set(error, EINVAL, "its devices are not in the order of its containers");
        result = limits_wish_read(text, name, &wish, error);
        if (!result)
            result = raise_container(&devices->containers[i], name, &wish, raises, error);
    }
    return result;
}

/* The Pod with another annotation; its texts are the same ones. The caller releases it. */
static json_t *with_devices(const json_t *pod, const char *text)
{
    json_t *copy = json_copy((json_t *)pod);
    json_t *metadata = json_copy(json_object_get(pod, "metadata"));
    json_t *annotations = json_copy((json_t *)annotations_of(pod));
    if (annotations &&
        !json_object_set_new(annotations, POD_ANNOTATION_ALLOCATED, json_string(text)) &&
        metadata && !json_object_set(metadata, "annotations", annotations) && copy &&
        !json_object_set(copy, "metadata", metadata)) {
        json_decref(annotations);
        json_decref(metadata);
        return copy;
    }
    json_decref(annotations);
    json_decref(metadata);
    json_decref(copy);
    return NULL;
}

int raise_read(const json_t *pod, const struct request_config *config, struct claim *ret_claim,
    bool *ret_raises, struct error *error)
{
    const char *allocated = annotation(pod, POD_ANNOTATION_ALLOCATED);
    struct pod_devices devices;
    bool raises = false;
    if (!allocated || !annotation(pod, LIMITS_WISH_ANNOTATION)) {
        *ret_raises = false;
        return 0;
    }
    int result = pod_devices_decode(allocated, &devices, error);
    if (result)
        return result;
    result = raise_devices(pod, &devices, &raises, error);
    char *text = !result && raises ? pod_devices_encode(&devices) : NULL;
    pod_devices_finish(&devices);
    json_t *raised = text ? with_devices(pod, text) : NULL;
    if (!result && raises)
        result = raised ? claim_read(raised, config, ret_claim, error)
                        : no_memory(error, "a wish for other limits");
    free(text);
    json_decref(raised);
    if (!result)
        *ret_raises = raises;
    return result;
}
