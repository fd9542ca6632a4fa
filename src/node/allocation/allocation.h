/* SPDX-License-Identifier: Apache-2.0 */
/* From kubelet's Allocate to a container's limits. All of it belongs to the thread of the event
 * loop.
 *
 * Allocate does not tell whose devices they are. A Pod is chosen (cluster/allocate_candidates.h),
 * its container gets a directory, a region, a grant and a durable record, and then kubelet its
 * answer; what the API server is to be told follows by itself, is tried until it succeeds, and
 * after a restart again: it is worked out from the records and the Pods' annotations, not queued.
 * No request stands between Allocate and its answer where the watch knows the Pod. Where it does
 * not, the Node and its Pods are asked for, for at most ALLOCATION_ASK_MS.
 *
 * PreStartContainer comes before a container's program: pod-resources then tells whose the device
 * IDs are, and where the choice was another, the limits of the right container are written into the
 * grant that is mounted, and both Pods' annotations are put right. */
#ifndef VGPU_NODE_ALLOCATION_H
#define VGPU_NODE_ALLOCATION_H

#include "net/error.h"
#include "node/kubelet.h"

#include <stddef.h>

#define ALLOCATION_ASK_MS 20000
/* How long PreStartContainer waits for pod-resources; kubelet waits 30 s for it. */
#define ALLOCATION_IDENTIFY_MS 3000

struct allocation;
struct event_base;
struct inventory;
struct kube_client;
struct kube_events;
struct node_settings;
struct pod_resources;
struct pods;

/* All of it outlives the allocation; the settings and the inventory are read at each call. */
struct allocation_options {
    struct event_base *base;
    const struct node_settings *settings;
    const struct inventory *inventory;
    struct kube_client *client;
    struct pods *pods;
    struct pod_resources *pod_resources; /* NULL: nobody can be asked whose a device is */
    struct kube_events *events;          /* NULL: none are posted */
    unsigned remove_after_s; /* grants of Pods that are gone; the programs of one that was deleted
                                by force may end later */
    unsigned hold_s; /* while pod-resources does not answer, devices of a Pod that was guessed count
                        for so long after its end: they may be another's; 0: 3600 */
};

/* Reads the records below HOOK_PATH. NULL: it cannot, or no memory. */
struct allocation *allocation_create(const struct allocation_options *options, struct error *error);

/* Calls that are not answered are refused as unavailable: kubelet must have gone before. Accepts
 * NULL. */
void allocation_destroy(struct allocation *allocation);

/* For struct kubelet_callbacks of the whole cards' resource (node_settings.resource_name); context:
 * the allocation. */
void allocation_allocate(
    struct kubelet_call *call, const struct kubelet_ids *containers, size_t count, void *context);
void allocation_preferred(struct kubelet_call *call, const struct kubelet_preferred *containers,
    size_t count, void *context);
void allocation_pre_start(
    struct kubelet_call *call, const struct kubelet_ids *devices, void *context);

/* For the resource of MIG devices, which no scheduler of ours assigns: a container gets those that
 * kubelet names, and no limits. */
void allocation_allocate_mig(
    struct kubelet_call *call, const struct kubelet_ids *containers, size_t count, void *context);

/* For metrics: containers that have limits here. */
size_t allocation_count(const struct allocation *allocation);

#endif
