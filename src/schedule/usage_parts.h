/* SPDX-License-Identifier: Apache-2.0 */
/* Between usage.c (nodes) and usage_pods.c. */
#ifndef VGPU_SCHEDULE_USAGE_PARTS_H
#define VGPU_SCHEDULE_USAGE_PARTS_H

#include "schedule/usage.h"

/* The node's entry, made where it is absent. NULL without memory. */
struct usage_node *usage_node_entry(struct usage *usage, const char *name);
/* Frees the entry of a node that is not registered and has no Pods. */
void usage_node_drop_if_idle(struct usage *usage, struct usage_node *node);

/* Adds what the Pod holds to its node's devices, which may be new, or takes it off. */
void usage_pod_charge(struct usage_pod *pod);
void usage_pod_discharge(struct usage_pod *pod);
void usage_pod_free(struct usage_pod *pod);

#endif
