/* SPDX-License-Identifier: Apache-2.0 */
/* Kubernetes objects as jansson values: accessors that bear with any shape. What is missing, or of
 * another type than it should be, reads as absent. All results are borrowed from the object. */
#ifndef VGPU_KUBE_OBJECT_H
#define VGPU_KUBE_OBJECT_H

#include "kube/quantity.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* More containers than this of one kind in a Pod are not looked at. */
#define OBJECT_CONTAINERS_MAX 256

enum object_container_kind {
    OBJECT_INIT_CONTAINERS,
    OBJECT_CONTAINERS, /* the application's */
};

/* The member at the end of the keys, which end with NULL; NULL where there is none. */
json_t *object_get(const json_t *object, ...) __attribute__((sentinel));
/* The same as a string without NUL bytes in it, or NULL. */
const char *object_string(const json_t *object, ...) __attribute__((sentinel));

/* metadata.name and the like; "" where it is missing. */
const char *object_name(const json_t *object);
const char *object_namespace(const json_t *object);
const char *object_uid(const json_t *object);
const char *object_resource_version(const json_t *object);
/* NULL where it is missing. */
const char *object_annotation(const json_t *object, const char *key);
const char *object_label(const json_t *object, const char *key);

/* Whether metadata.deletionTimestamp is set. */
bool object_is_terminating(const json_t *object);

/* A Pod's: whether it has ended for good (phase Succeeded or Failed), and its node ("": none). */
bool object_pod_has_ended(const json_t *pod);
const char *object_pod_node(const json_t *pod);

size_t object_container_count(const json_t *pod, enum object_container_kind kind);
/* NULL from object_container_count on. */
json_t *object_container(const json_t *pod, enum object_container_kind kind, size_t at);
/* A sidecar: an init container with restartPolicy Always. */
bool object_container_is_sidecar(const json_t *container);

/* The amount of `resource` in the container's "limits" or "requests". Returns 0, -ENOENT, or
 * -EINVAL: not a quantity. Whole numbers may stand without quotes. */
int object_resource(const json_t *container, const char *part, const char *resource,
    struct quantity *ret_amount) __attribute__((warn_unused_result));

#endif
