/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu-scheduler's state: the cluster as watches show it, what was promised to Pods since, and the
 * requests of kube-scheduler. One thread with one event loop owns all of it. */
#ifndef VGPU_SCHEDULER_SCHEDULER_H
#define VGPU_SCHEDULER_SCHEDULER_H

#include "admission/admission_settings.h"
#include "kube/client.h"
#include "kube/event.h"
#include "net/error.h"
#include "net/http_server.h"
#include "schedule/ask.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scheduler;

/* All is the caller's and outlives the scheduler. */
struct scheduler_options {
    struct kube_client *client;
    struct kube_events *events;
    const struct ask_config *ask;
    const struct admission_settings *admission;
    const char *node_selector; /* labels of nodes that count; "": all */
    const void *proof_key;     /* NULL: no proofs are written or looked at */
    size_t proof_key_bytes;
    bool filter_patch; /* as HAMi: the filter writes the annotations, before the binding */
    bool all_nodes;    /* the filter answers with all nodes that fit */
    int64_t lock_expiry_ns;
    int64_t lock_retry_ns; /* for which a Pod of a group waits for a node lock; 0: not at all */
    /* After which a Pod that was bound stands in nobody's way any more. kubelet asks for its
     * devices within a second; one that does not is dead, or its plugin is. Whose devices are whose
     * is then found out by the plugin before a program starts. */
    int64_t flight_ns;
    bool legacy_metrics;
    /* The Lease of the kube-scheduler beside it, and this Pod's name; NULL: there is no other
     * scheduler. */
    const char *lease_namespace, *lease_name, *identity;
    const char
        *pod_namespace; /* of this Pod, whose label tells whether it leads; NULL: none does */
};

struct scheduler *scheduler_create(const struct scheduler_options *options, struct error *error);
/* Another key from now on, which outlives the scheduler or the next call. */
void scheduler_set_proof_key(struct scheduler *scheduler, const void *key, size_t bytes);
/* After the HTTP servers; their exchanges must be gone. */
void scheduler_destroy(struct scheduler *scheduler);

/* Whether it would answer rightly: it leads, and nodes, Pods and quotas have been read since it
 * does. */
bool scheduler_is_ready(const struct scheduler *scheduler);

/* Handlers for POST /filter and /bind (kube-scheduler's extender protocol), POST /webhook and
 * /validate (admission reviews), and for GET /readyz, /healthz and /metrics; the context is the
 * scheduler. */
void scheduler_filter(
    void *context, struct http_exchange *exchange, const struct http_server_request *request);
void scheduler_bind(
    void *context, struct http_exchange *exchange, const struct http_server_request *request);
void scheduler_webhook(
    void *context, struct http_exchange *exchange, const struct http_server_request *request);
void scheduler_validate(
    void *context, struct http_exchange *exchange, const struct http_server_request *request);
void scheduler_readyz(
    void *context, struct http_exchange *exchange, const struct http_server_request *request);
void scheduler_healthz(
    void *context, struct http_exchange *exchange, const struct http_server_request *request);
void scheduler_metrics(
    void *context, struct http_exchange *exchange, const struct http_server_request *request);

#endif
