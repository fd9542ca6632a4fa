/* SPDX-License-Identifier: Apache-2.0 */
/* Which containers of a Pod an Allocate is for. kubelet asks for containers in the order of the
 * Pod: init containers, sidecars among them, then the others. A container's devices lie in the slot
 * of the device string that has its position. Pure. */
#ifndef VGPU_CLUSTER_ALLOCATE_MATCH_H
#define VGPU_CLUSTER_ALLOCATE_MATCH_H

#include "cluster/pod_devices.h"
#include "cluster/pod_view.h"
#include "net/error.h"

#include <stddef.h>

/* One container's part of an AllocateRequest. */
struct allocate_request {
    const char *const *ids;
    size_t count;
};

struct allocate_step {
    size_t slot;      /* in the device string */
    size_t container; /* in the view */
};

/* For each request the next slot of `left` (the decoded to-allocate annotation) that is not empty,
 * and the container that it belongs to. HAMi 2.10 leaves out the empty slots in front of others:
 * where a slot lies at a container that asks for nothing, and there are as many slots in use as
 * containers that ask, the first slot in use belongs to the first of those, and so on. Which slots
 * were in use before some were served is read from the allocated annotation.
 * `ret_steps` has room for request_count. Returns 0; -ENOENT where nothing is left; -EPROTO where
 * a slot has another number of devices than was asked for; -EINVAL where a slot is no container's.
 */
int allocate_match(const struct pod_view *pod, const struct pod_devices *left,
    const struct allocate_request *requests, size_t request_count, struct allocate_step *ret_steps,
    struct error *error) __attribute__((warn_unused_result));

/* The devices of a slot with kubelet's choice of cards: the cards are those of kubelet's IDs, in
 * its order; each has the limits that the slot has for that card, or else those of the next device
 * of the slot that kubelet did not choose. `devices` has as many as there are IDs. Returns 0, or
 * -EINVAL for an ID that is too long. */
int allocate_follow_kubelet(struct pod_device *devices, const struct allocate_request *request,
    struct error *error) __attribute__((warn_unused_result));

#endif
