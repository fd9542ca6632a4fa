/* SPDX-License-Identifier: Apache-2.0 */
/* An HTTP/1.1 server: libmicrohttpd in external-event mode on the caller's libevent loop. It has
 * one epoll descriptor, which the loop watches, so that nothing runs in another thread: handlers
 * and all functions here run in the loop's thread, and may not block.
 *
 * What clients cannot do: send more than request_bytes_max (413, or the connection is closed where
 * the length is not told before), or hold a connection: a request must have come whole, and its
 * answer must have been taken, within receive_ms each; without a request a connection is closed
 * after idle_ms; more than connections_max are not accepted until one ends. Where all bodies
 * together would be more than bodies_bytes_max, the connections whose bodies have been on their way
 * for longest are cut. */
#ifndef VGPU_NET_HTTP_SERVER_H
#define VGPU_NET_HTTP_SERVER_H

#include "net/error.h"

#include <stddef.h>

struct event_base;
struct http_server;
struct http_exchange;

/* 0: the value in brackets. */
struct http_server_options {
    const char *address;      /* ":9394", "127.0.0.1:8080", "[::1]:443"; port 0: any that is free */
    const char *certificate;  /* paths (PEM) for TLS, both or none; read again as they change */
    const char *key;          /* */
    unsigned connections_max; /* [128] */
    unsigned per_address_max; /* of them from one client address; more are closed [no bound] */
    size_t request_bytes_max; /* of a body [1 MiB] */
    size_t bodies_bytes_max;  /* of all bodies that are held [8 times request_bytes_max] */
    unsigned receive_ms;      /* [10,000] */
    unsigned idle_ms;         /* [120,000] */
};

/* A request, valid until the handler returns. */
struct http_server_request {
    const char *method, *path; /* the path without its query */
    const char *body;          /* with a NUL behind it */
    size_t body_bytes;
};

struct http_server *http_server_create(
    struct event_base *base, const struct http_server_options *options, struct error *error);

/* Closes all connections; exchanges that are not answered are gone without an answer. Not from a
 * handler. */
void http_server_destroy(struct http_server *server);

unsigned http_server_port(const struct http_server *server);

/* `method` is "GET" (for HEAD too) or "POST"; requests of other methods for the path get 405, other
 * paths 404. The handler answers, at once or later from the loop, exactly once. Returns 0 or
 * -ENOMEM. Copies the text. */
int http_server_handle(struct http_server *server, const char *method, const char *path,
    void (*handler)(
        void *context, struct http_exchange *exchange, const struct http_server_request *request),
    void *context) __attribute__((warn_unused_result));

/* Copies the body. The exchange is gone afterwards. */
void http_exchange_answer(struct http_exchange *exchange, unsigned status, const char *content_type,
    const void *body, size_t bytes);

/* The same with a body of the heap, which it takes: it is freed with free(3). */
void http_exchange_answer_taking(struct http_exchange *exchange, unsigned status,
    const char *content_type, char *body, size_t bytes);

#endif
