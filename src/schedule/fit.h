/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a Pod fits on a node, and on which devices. Containers are placed one by one in the
 * Pod's order: sidecars and containers on what those before them have left, an init container on
 * what the sidecars before it have left. Pure; allocates only in fit_begin. */
#ifndef VGPU_SCHEDULE_FIT_H
#define VGPU_SCHEDULE_FIT_H

#include "cluster/pod_devices.h"
#include "net/error.h"
#include "schedule/ask.h"
#include "schedule/reason.h"
#include "schedule/usage.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a container gets of a device. */
struct fit_device {
    uint32_t container; /* of the ask */
    uint32_t device;    /* of the node */
    int32_t memory_mib, cores_percent;
};

/* In the order of the containers, and within one in the order in which they were chosen. */
struct fit_placement {
    struct fit_device *devices;
    size_t count;
};

/* A Pod in search of a node, and room for the work. Zeroed before the first fit_begin; may be used
 * again and again. */
struct fit {
    const struct ask *ask;
    struct quota_amount quota_left; /* of the Pod's namespace, without the Pod itself */
    uint8_t *types, *modes;         /* of usage_words: whether the Pod takes it */
    bool *nvidia;                   /* of the types */
    size_t word_capacity;
    struct fit_device *placed; /* of ASK_DEVICES_MAX */
    size_t placed_count;
    /* Of NODE_DEVICES_MAX each: what is used beside the container, how full, the order. */
    struct usage_amounts *running, *beside;
    double *scores;
    uint32_t *order, *chosen;
    struct reasons reasons; /* why fit_node said no */
};

/* The ask, which must outlive the search, must ask for devices. Its Pod must hold nothing in
 * `usage`, or `held` must say what of its quota it holds. Returns 0 or -ENOMEM. */
int fit_begin(struct fit *fit, const struct usage *usage, const struct ask *ask,
    struct quota_amount held, struct error *error) __attribute__((warn_unused_result));

/* `own`: what the Pod itself holds on the node, which counts as free; NULL for nothing. */
bool fit_node(struct fit *fit, const struct usage_node *node, const struct usage_pod *own);

/* The placement of the fit_node that said yes last; valid until the next one. */
struct fit_placement fit_placed(const struct fit *fit);

/* The placement as the Pod's device string, one place for each container. The caller finishes it.
 * Returns 0 or -ENOMEM. */
int fit_devices(const struct fit_placement *placement, const struct ask *ask,
    const struct usage_node *node, struct pod_devices *ret_devices)
    __attribute__((warn_unused_result));

void fit_finish(struct fit *fit);

#endif
