/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the free device IDs kubelet should take (GetPreferredAllocation): replicas of the cards
 * that the scheduler chose, so that what kubelet records is what the container gets. Pure. */
#ifndef VGPU_CLUSTER_PREFERRED_H
#define VGPU_CLUSTER_PREFERRED_H

#include "cluster/pod_devices.h"
#include "net/error.h"

#include <stddef.h>

/* Of what kubelet offers and asks for; bounds every loop. */
#define PREFERRED_IDS_MAX 65536

/* Fills `ret_ids` with `size` of the IDs: first all of `required`, then for each annotated device
 * the first available replica of its card, in the annotation's order. Without an annotation
 * (`annotated` NULL), or where it does not fit what is free, the IDs are of as many distinct cards
 * as there are, those with the most free replicas first. Returns 0, -EINVAL where there are not
 * enough IDs or too many, -ENOMEM. */
int preferred_choose(const char *const *available, size_t available_count,
    const char *const *required, size_t required_count, size_t size,
    const struct pod_devices_container *annotated, const char **ret_ids, struct error *error)
    __attribute__((warn_unused_result));

#endif
