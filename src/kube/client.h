/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the API server that are tried again until they are answered. All functions and
 * callbacks run in the loop's thread; nothing blocks.
 *
 * What is final, and given to the caller: 2xx, and 4xx other than these: 409 of course included.
 * 408, 429 and 5xx are tried again, after Retry-After where the answer has it; so are connections
 * that fail, time-outs, and answers of 2xx that are not JSON. 401 reads the token again and tries
 * once at once, then as 5xx: the kubelet renews the token of a Pod. Waits grow exponentially, with
 * jitter. A request that was carried out but whose answer was lost is sent again: a POST may find
 * 409. */
#ifndef VGPU_KUBE_CLIENT_H
#define VGPU_KUBE_CLIENT_H

#include "kube/auth.h"
#include "net/error.h"
#include "net/http_client.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct event_base;
struct kube_client;
struct kube_call;
struct kube_stream;

/* 0: the value in brackets. */
struct kube_client_options {
    unsigned connections_max;  /* requests under way at once; more wait in turn [4] */
    unsigned calls_max;        /* requests held, waiting ones included [4096] */
    unsigned attempt_ms;       /* longest time for one try [15,000] */
    unsigned backoff_first_ms; /* [200] */
    unsigned backoff_max_ms;   /* [10,000] */
    size_t reply_bytes_max;    /* [32 MiB] */
    const char *user_agent;    /* ["vgpu"] */
};

/* Valid until the callback returns. */
struct kube_reply {
    int status;         /* of the last answer; 0: there was none */
    const json_t *body; /* NULL where it is not JSON; use json_incref for parts to keep */
    const char *text;   /* "" for 2xx, else one line: "PATCH /api/v1/nodes/n1: 409: ..." */
    unsigned attempts;
    int retry_after_s; /* of the last answer; -1: none */
    bool too_large;    /* the answer had more than reply_bytes_max; it is not asked for again */
};

struct kube_request {
    const char *method;       /* GET, POST, PATCH, PUT, DELETE */
    const char *path;         /* with its query, escaped: "/api/v1/nodes/n1" */
    const char *content_type; /* of the body; NULL: application/json */
    const json_t *body;       /* NULL: none; written out at once, so that it need not be kept */
    unsigned deadline_ms;     /* from now; 0: tried until it is answered or cancelled */
    /* Once, unless cancelled; also at the deadline, with the last status. The call is gone then. */
    void (*on_done)(void *context, const struct kube_reply *reply);
    /* May be NULL: before each wait, why and how long. */
    void (*on_retry)(void *context, const char *text, unsigned wait_ms);
    void *context;
};

struct kube_client *kube_client_create(struct event_base *base, struct kube_auth *auth,
    const struct kube_client_options *options, struct error *error);

/* Cancels the calls that are left; streams have been cancelled. Not from a callback. */
void kube_client_destroy(struct kube_client *client);

/* Copies the request. Callbacks come from the loop only. Returns 0 and the call (ret_call may be
 * NULL), -EAGAIN: calls_max are held, or -ENOMEM. May be called from callbacks. */
int kube_client_start(struct kube_client *client, const struct kube_request *request,
    struct kube_call **ret_call) __attribute__((warn_unused_result));

/* No callback is made any more; what is under way may still be carried out. NULL is allowed. */
void kube_call_cancel(struct kube_call *call);

/* One GET whose answer comes in pieces, tried once; on_done tells how it ended: of 2xx, "text" says
 * why the stream ended ("" where the server did it). Returns NULL: no memory. */
struct kube_stream *kube_client_stream(struct kube_client *client, const char *path,
    unsigned idle_ms, void (*on_data)(void *context, const char *data, size_t bytes),
    void (*on_done)(void *context, const struct kube_reply *reply), void *context)
    __attribute__((warn_unused_result));
void kube_stream_cancel(struct kube_stream *stream);

/* A wait for what does its own tries, by the client's bounds. */
struct backoff;
void kube_client_backoff(const struct kube_client *client, struct backoff *ret_backoff);
struct event_base *kube_client_base(const struct kube_client *client);

#endif
