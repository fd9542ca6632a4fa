/* SPDX-License-Identifier: Apache-2.0 */
/* The health of the node's cards over time: what the probe sees goes in here, the decisions are
 * health_state.h's, and inventory.h has the result. A change is one log line and one Event of the
 * node. Faults by Xid are kept in <hook_path>/vgpu/health.json over a restart of the plugin. The
 * loop's thread. */
#ifndef VGPU_NODE_HEALTH_H
#define VGPU_NODE_HEALTH_H

#include "net/error.h"

#include <stdbool.h>

struct health;
struct inventory;
struct kube_events;
struct node_settings;
struct probe_event;
struct scan;

struct health_options {
    const struct node_settings *settings; /* outlives it; read at each change */
    struct inventory *inventory;
    struct kube_events *events; /* may be NULL */
    /* How often cards have to be looked at, for probe_hurry. May be NULL. */
    void (*on_pace)(void *context, unsigned seconds, bool anew);
    void *context;
};

struct health *health_create(const struct health_options *options, struct error *error);
void health_destroy(struct health *health);

/* As the probe's callbacks. */
void health_take_scan(struct health *health, const struct scan *scan);
void health_take_event(struct health *health, const struct probe_event *event);
void health_take_absence(struct health *health, const char *problem);

/* The annotation vgpu.io/healthy: the cards that an operator declares healthy. It is a request,
 * which the caller removes from the node then: so one that is there is newer than any fault that
 * was dealt with before, and the same card can be declared healthy again. */
void health_take_allowed(struct health *health, const char *list);

/* The settings have changed. */
void health_settings_changed(struct health *health);

#endif
