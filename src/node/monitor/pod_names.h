/* SPDX-License-Identifier: Apache-2.0 */
/* The Pods of this node, as the monitor knows them: whose a container's directory is, and whether
 * its Pod is gone. One watch; a Pod is kept as its names alone. In the loop's thread. */
#ifndef VGPU_NODE_MONITOR_POD_NAMES_H
#define VGPU_NODE_MONITOR_POD_NAMES_H

#include "kube/client.h"
#include "net/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POD_NAMES_NODE_LABEL "hami.io/vgpu-node"
#define POD_NAMES_MIG_ANNOTATION "hami.io/vgpu-mig-allocations"
#define POD_NAMES_MIG_MAX 64
#define POD_NAMES_TEXT_BYTES 64

/* A MIG device that was made for a container, from POD_NAMES_MIG_ANNOTATION. */
struct pod_names_mig {
    const char *container; /* a name of the Pod's */
    uint64_t device_index, gpu_instance, compute_instance;
    char gpu_uuid[POD_NAMES_TEXT_BYTES], mig_uuid[POD_NAMES_TEXT_BYTES];
    char profile[POD_NAMES_TEXT_BYTES];
};

struct pod_names_pod {
    char *uid, *namespace_name, *name;
    bool labelled;     /* HAMi's scheduler, or ours, has assigned devices on this node */
    char **containers; /* init containers first */
    size_t container_count;
    struct pod_names_mig *migs;
    size_t mig_count;
};

struct pod_names;

/* Follows the Pods of the node from the loop on. Returns NULL with one line in `error`. */
struct pod_names *pod_names_create(
    struct kube_client *client, const char *node_name, struct error *error);
void pod_names_destroy(struct pod_names *names);

/* NULL where there is none. Valid until the loop goes on. */
const struct pod_names_pod *pod_names_find(const struct pod_names *names, const char *uid);
/* The container's name as the Pod has it, or NULL. */
const char *pod_names_container(const struct pod_names_pod *pod, const char *container);

/* The `at`-th, NULL behind the last. */
const struct pod_names_pod *pod_names_at(const struct pod_names *names, size_t at);

/* How long it has been known which Pods there are, without a gap since: the list was complete, and
 * the watch has its hold. 0: it is not known. `now_ns`: CLOCK_MONOTONIC. */
uint64_t pod_names_known_ns(const struct pod_names *names, uint64_t now_ns);

#endif
