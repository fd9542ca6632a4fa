/* SPDX-License-Identifier: Apache-2.0 */
/* An Allocate that is being served: allocation_serve.c has the flow, allocation_ask.c what the API
 * server is asked for, allocation_identity.c what pod-resources is. */
#ifndef VGPU_NODE_ALLOCATION_ALLOCATION_SERVING_H
#define VGPU_NODE_ALLOCATION_ALLOCATION_SERVING_H

#include "node/allocation/allocation_parts.h"

struct serving {
    TAILQ_ENTRY(serving) entry;
    struct allocation *allocation;
    struct kubelet_call *call;
    struct allocate_request *requests; /* valid as long as the call is */
    size_t count;

    struct kube_call *asked;  /* a request to the API server under way */
    struct pods_pod **extras; /* Pods that were asked for, newer than those of the watch */
    size_t extra_count;
    bool asked_holder, refreshed;
    bool holder_gone;
    bool asked_resources;
    bool asks_resources;   /* pod-resources' answer is waited for */
    bool joined_resources; /* that one may be older than what it is asked for */
    bool has_lock;         /* `lock` is newer than the watch's */
    char *lock;

    char (*excluded)[64]; /* UIDs */
    size_t excluded_count;
    struct error over; /* why the first of them was */
    char *over_uid;
};

/* Goes on with it, when what was asked for has come. It may be gone afterwards. */
void serving_go_on(struct serving *serving);

/* Asks for the Pod that the lock names. Both return whether serving_go_on will be called. */
bool serving_ask_holder(struct serving *serving, const char *lock);

/* The watch may be behind kubelet's: asks for the Node and its Pods as they are now. */
bool serving_refresh(struct serving *serving);

/* A Pod that waits may have lost its devices to one that the scheduler has not seen: asks
 * pod-resources whose they are. Returns whether serving_go_on will be called. */
bool serving_ask_resources(struct serving *serving);

#endif
