/* SPDX-License-Identifier: Apache-2.0 */
/* What the kubelet is offered: a service (kubelet.h) for each resource of the inventory. The loop's
 * thread. */
#ifndef VGPU_NODE_OFFER_H
#define VGPU_NODE_OFFER_H

#include "net/error.h"
#include "node/kubelet.h"

#include <stdbool.h>

struct event_base;
struct inventory;
struct node_settings;
struct offer;

struct offer_options {
    const struct node_settings *settings; /* outlives it; read at each update */
    const struct inventory *inventory;
    struct kubelet_callbacks cards, mig; /* of whole cards, and of MIG devices */
    void *context;                       /* of both */
};

struct offer *offer_create(
    struct event_base *base, const struct offer_options *options, struct error *error);
/* Removes the sockets. */
void offer_destroy(struct offer *offer);

/* Offers what the inventory has now. A resource that has gone stays, without devices. Nothing is
 * served before offer_open: the kubelet must not start a container before the library is there. Not
 * from a callback of the kubelet's. */
void offer_update(struct offer *offer);
void offer_open(struct offer *offer);

#endif
