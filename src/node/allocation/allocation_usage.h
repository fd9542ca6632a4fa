/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a card is given away. As the scheduler counts (schedule/claim.h): of one Pod memory,
 * cores and places each at the worst moment. Containers and sidecars run together, an init
 * container beside the sidecars before it. Pure. */
#ifndef VGPU_NODE_ALLOCATION_USAGE_H
#define VGPU_NODE_ALLOCATION_USAGE_H

#include "net/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One container's part of one card. */
struct allocation_use {
    const char *pod_uid;
    size_t
        place; /* among the Pod's containers, init containers first; several parts may be one's */
    bool init; /* it ends before the next begins: no sidecar */
    int32_t memory_mib, cores_percent;
};

struct allocation_load {
    int64_t memory_mib, cores_percent;
    uint32_t containers;
};

struct allocation_capacity {
    const char *uuid;
    int64_t memory_mib; /* 0: not known, not looked at */
    int64_t cores_percent;
    uint32_t containers;
};

struct allocation_load allocation_usage_sum(const struct allocation_use *uses, size_t count);

/* Returns 0, or -ENOSPC with what is too much, how much there is and how much of it is asked for:
 * the last of the uses is the one that is new. */
int allocation_usage_check(const struct allocation_use *uses, size_t count,
    const struct allocation_capacity *capacity, struct error *error)
    __attribute__((warn_unused_result));

#endif
