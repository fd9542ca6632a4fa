/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices the kubelet has given to which container: its pod-resources service (v1), asked
 * without waiting. All of it belongs to the thread of the event loop. */
#ifndef VGPU_NODE_POD_RESOURCES_H
#define VGPU_NODE_POD_RESOURCES_H

#include <stddef.h>

#include "net/error.h"
#include "net/grpc_status.h"

struct event_base;
struct pod_resources;

struct pod_resources_device {
    const char *resource; /* "nvidia.com/gpu" */
    const char *const *ids;
    size_t id_count;
};

struct pod_resources_container {
    const char *name;
    const struct pod_resources_device *devices;
    size_t device_count;
};

struct pod_resources_pod {
    const char *space, *name; /* namespace and name; the service does not tell the UID */
    const struct pod_resources_container *containers;
    size_t container_count;
};

/* Called once for each question that was accepted. With GRPC_OK the Pods, which are valid during
 * the call; otherwise none, and `text` tells why (the kubelet's words, or ours: no answer in time,
 * not decodable). The kubelet answers at most 100 questions a second on the average
 * (RESOURCE_EXHAUSTED), and GRPC_UNKNOWN or GRPC_NOT_FOUND to Get where it lacks the method or the
 * Pod. */
typedef void pod_resources_answer(void *context, enum grpc_status status, const char *text,
    const struct pod_resources_pod *pods, size_t count);

/* `path` NULL: /var/lib/kubelet/pod-resources/kubelet.sock; it need not be there yet. NULL without
 * memory. */
struct pod_resources *pod_resources_create(struct event_base *base, const char *path);

/* Questions that are not answered are dropped. Also from within an answer. Accepts NULL. */
void pod_resources_destroy(struct pod_resources *resources);

/* All Pods of the node. 0, or the error of connect(2): then there is no answer. */
__attribute__((warn_unused_result)) int pod_resources_list(struct pod_resources *resources,
    unsigned timeout_ms, pod_resources_answer *answer, void *context, struct error *error);

/* One Pod: the answer has one. */
__attribute__((warn_unused_result)) int pod_resources_get(struct pod_resources *resources,
    const char *space, const char *name, unsigned timeout_ms, pod_resources_answer *answer,
    void *context, struct error *error);

#endif
