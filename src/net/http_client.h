/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 requests that do not block, by libcurl on the caller's libevent loop. All functions and
 * callbacks run in the loop's thread. Proxies of the environment are not used, redirections are not
 * followed, only http and https are spoken, at least TLS 1.2. HTTP/2 is not used: with it one
 * connection that dies silently would take every request with it. */
#ifndef VGPU_NET_HTTP_CLIENT_H
#define VGPU_NET_HTTP_CLIENT_H

#include "net/error.h"
#include "net/tls_files.h"

#include <stddef.h>

struct event_base;
struct http_client;
struct http_call;

enum http_failure {
    HTTP_FAILURE_NONE,
    HTTP_FAILURE_CONNECT, /* no name, no route, refused */
    HTTP_FAILURE_TLS,     /* the peer's certificate, or ours, was not accepted */
    HTTP_FAILURE_TIMEOUT, /* the whole was not there in time */
    HTTP_FAILURE_IDLE,    /* nothing came for so long */
    HTTP_FAILURE_TOO_LARGE,
    HTTP_FAILURE_BROKEN, /* the connection ended, or what came was not HTTP */
};

/* Valid until the callback returns. */
struct http_reply {
    int status; /* 0 where `failure` is set before an answer's head came */
    enum http_failure failure;
    const char *text; /* what failed, one line; "" */
    const char *body; /* with a NUL behind it; "" where it was streamed */
    size_t body_bytes;
    int retry_after_s; /* -1: the answer has none */
};

struct http_request {
    const char *method, *url;
    const char *const *headers; /* "Name: value", ends with NULL; may be NULL */
    const void *body;
    size_t body_bytes;
    struct tls_files *tls;  /* for https; outlives the call */
    unsigned timeout_ms;    /* for the whole, waiting for a connection included; 0: none */
    unsigned idle_ms;       /* longest time without a byte; 0: none */
    size_t reply_bytes_max; /* of a body that is gathered */
    /* Not NULL: a body of status 2xx comes in pieces, and is not gathered. */
    void (*on_data)(void *context, const char *data, size_t bytes);
    /* Once, unless the call was cancelled; the call is gone afterwards. */
    void (*on_done)(void *context, const struct http_reply *reply);
    void *context;
};

/* At most `connections_max` connections are open; more requests wait for one. */
struct http_client *http_client_create(
    struct event_base *base, unsigned connections_max, struct error *error);

/* Cancels all calls. Not from a callback. */
void http_client_destroy(struct http_client *client);

/* Copies all of the request but `tls`. The first callback comes from the loop, not from here.
 * Returns NULL where there is no memory. May be called from callbacks. */
struct http_call *http_client_start(struct http_client *client, const struct http_request *request)
    __attribute__((warn_unused_result));

/* No callback is made any more. May be called from callbacks, from its own too (not after
 * on_done). */
void http_call_cancel(struct http_call *call);

#endif
