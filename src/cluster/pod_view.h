/* SPDX-License-Identifier: Apache-2.0 */
/* What the node's side reads of a Pod. Pure. */
#ifndef VGPU_CLUSTER_POD_VIEW_H
#define VGPU_CLUSTER_POD_VIEW_H

#include "cluster/request.h"
#include "net/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POD_ANNOTATION_NODE "hami.io/vgpu-node" /* a label too */
#define POD_ANNOTATION_TIME "hami.io/vgpu-time"
#define POD_ANNOTATION_TO_ALLOCATE "hami.io/vgpu-devices-to-allocate"
#define POD_ANNOTATION_ALLOCATED "hami.io/vgpu-devices-allocated"
#define POD_ANNOTATION_BIND_PHASE "hami.io/bind-phase"
#define POD_ANNOTATION_BIND_TIME "hami.io/bind-time"
#define POD_ANNOTATION_PROOF "vgpu.io/proof"

#define POD_BIND_ALLOCATING "allocating"
#define POD_BIND_SUCCESS "success"
#define POD_BIND_FAILED "failed"

struct pod_container {
    const char *name;
    bool init;             /* sidecars too */
    bool sidecar;          /* an init container that is restarted always */
    bool control_disabled; /* CUDA_DISABLE_CONTROL is true in its environment */
    int32_t asked;         /* devices; 0: none */
};

/* Texts are of the JSON that it was read from, and "" where that lacks them. Annotations that are
 * absent are NULL. */
struct pod_view {
    const char *pod_namespace, *name, *uid;
    const char *node_name; /* where it is bound to */
    const char *phase;
    const char *assigned_node, *to_allocate, *allocated, *bind_phase, *bind_time, *proof;
    bool deleting;
    struct pod_container *containers; /* as in device strings: init containers, then the others */
    size_t container_count;
};

/* Reads a Pod object, which must outlive the view. Returns 0, -EINVAL where it has no name, or
 * -ENOMEM. The caller finishes it. */
int pod_view_read(const json_t *pod, const struct request_config *config, struct pod_view *ret_view,
    struct error *error) __attribute__((warn_unused_result));

void pod_view_finish(struct pod_view *view);

/* How many containers ask for devices. */
size_t pod_view_asking(const struct pod_view *view);

#endif
