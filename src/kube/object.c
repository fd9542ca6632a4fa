/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/object.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

static json_t *walk(const json_t *object, va_list keys)
{
    json_t *at = (json_t *)object;
    for (const char *key; (key = va_arg(keys, const char *));)
        at = json_object_get(at, key);
    return at;
}

/* A NUL inside would make two different texts look the same. */
static const char *text_of(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

json_t *object_get(const json_t *object, ...)
{
    va_list keys;
    va_start(keys, object);
    json_t *value = walk(object, keys);
    va_end(keys);
    return value;
}

const char *object_string(const json_t *object, ...)
{
    va_list keys;
    va_start(keys, object);
    const json_t *value = walk(object, keys);
    va_end(keys);
    return text_of(value);
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

const char *object_name(const json_t *object)
{
    return or_empty(object_string(object, "metadata", "name", NULL));
}

const char *object_namespace(const json_t *object)
{
    return or_empty(object_string(object, "metadata", "namespace", NULL));
}

const char *object_uid(const json_t *object)
{
    return or_empty(object_string(object, "metadata", "uid", NULL));
}

const char *object_resource_version(const json_t *object)
{
    return or_empty(object_string(object, "metadata", "resourceVersion", NULL));
}

const char *object_annotation(const json_t *object, const char *key)
{
    return object_string(object, "metadata", "annotations", key, NULL);
}

const char *object_label(const json_t *object, const char *key)
{
    return object_string(object, "metadata", "labels", key, NULL);
}

bool object_is_terminating(const json_t *object)
{
    return object_string(object, "metadata", "deletionTimestamp", NULL) != NULL;
}

bool object_pod_has_ended(const json_t *pod)
{
    const char *phase = or_empty(object_string(pod, "status", "phase", NULL));
    return !strcmp(phase, "Succeeded") || !strcmp(phase, "Failed");
}

const char *object_pod_node(const json_t *pod)
{
    return or_empty(object_string(pod, "spec", "nodeName", NULL));
}

static json_t *containers(const json_t *pod, enum object_container_kind kind)
{
    const char *key = kind == OBJECT_INIT_CONTAINERS ? "initContainers" : "containers";
    return object_get(pod, "spec", key, NULL);
}

size_t object_container_count(const json_t *pod, enum object_container_kind kind)
{
    size_t count = json_array_size(containers(pod, kind));
    return count < OBJECT_CONTAINERS_MAX ? count : OBJECT_CONTAINERS_MAX;
}

json_t *object_container(const json_t *pod, enum object_container_kind kind, size_t at)
{
    return at < OBJECT_CONTAINERS_MAX ? json_array_get(containers(pod, kind), at) : NULL;
}

bool object_container_is_sidecar(const json_t *container)
{
    return !strcmp(or_empty(object_string(container, "restartPolicy", NULL)), "Always");
}

int object_resource(
    const json_t *container, const char *part, const char *resource, struct quantity *ret_amount)
{
    const json_t *value = object_get(container, "resources", part, resource, NULL);
    if (!value)
        return -ENOENT;
    if (json_is_integer(value)) {
        *ret_amount = quantity_of(json_integer_value(value));
        return 0;
    }
    const char *text = text_of(value);
    return text ? quantity_parse(text, ret_amount) : -EINVAL;
}
