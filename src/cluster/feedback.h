/* SPDX-License-Identifier: Apache-2.0 */
/* The monitor's word to the regions, every 5 s: which containers launched kernels lately, which
 * must wait for a task of higher priority, and which are held to their compute limit. Pure. */
#ifndef VGPU_CLUSTER_FEEDBACK_H
#define VGPU_CLUSTER_FEEDBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FEEDBACK_DEVICES_MAX 16

/* One region, with the words that HAMi's region has. */
struct feedback_region {
    const char *uuids[FEEDBACK_DEVICES_MAX]; /* of its devices; "" or NULL: none in this place */
    size_t device_count;
    int32_t priority; /* 0 is high, larger is lower; below 0: takes part in nothing */
    /* Above 0: ticks until its last launch is old. 0: idle. Below: its launches wait. */
    int32_t recent_kernel;
    int32_t utilization_switch; /* 1: the compute limit counts also where it counts only in need */
    bool active;                /* set by feedback_tick */
};

/* One tick over all regions. A region counts as active while recent_kernel is above 0 after it was
 * counted down. It waits while one of a smaller priority number is active on one of its devices.
 * Its switch is 1 where it waits so, or where another active region has its priority on one of its
 * devices. */
void feedback_tick(struct feedback_region *regions, size_t count);

#endif
