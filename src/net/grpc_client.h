/* SPDX-License-Identifier: Apache-2.0 */
/* A gRPC client over a Unix socket and a libevent loop: one request message, one answer or a stream
 * of them, with a deadline. All of it belongs to the loop's thread; nothing blocks. */
#ifndef VGPU_NET_GRPC_CLIENT_H
#define VGPU_NET_GRPC_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "net/error.h"
#include "net/grpc_status.h"

struct event_base;
struct grpc_client;
struct grpc_client_call;

struct grpc_client_events {
    /* Each message of a stream as it comes, valid during the call; NULL for a unary call. It may
     * not cancel calls nor destroy the client. */
    void (*message)(void *context, const uint8_t *message, size_t bytes);
    /* The end of the call, exactly once unless it was cancelled or the client was destroyed. `text`
     * is the server's or one of ours, never NULL. With GRPC_OK a unary call has its message, valid
     * during the call; NULL otherwise. Anything may be done here. */
    void (*end)(void *context, enum grpc_status status, const char *text, const uint8_t *message,
        size_t bytes);
};

/* For the server at `path`, which need not be there yet: a connection is made for the first call
 * and kept as long as there are calls. `answer_bytes` bounds one message; 0: 4 MiB. NULL without
 * memory. */
struct grpc_client *grpc_client_create(
    struct event_base *base, const char *path, size_t answer_bytes);

/* Drops all calls, without a word. Accepts NULL. */
void grpc_client_destroy(struct grpc_client *client);

/* Calls "/package.Service/Method" with the request, which is copied. After `timeout_ms` (0: never)
 * it ends with GRPC_DEADLINE_EXCEEDED. 0: `end` will be called, in the loop; otherwise the error of
 * connect(2), or -ENOMEM. `ret_call`, which may be NULL, is for grpc_client_cancel, until `end`. */
__attribute__((warn_unused_result)) int grpc_client_call(struct grpc_client *client,
    const char *method, const void *request, size_t bytes, unsigned timeout_ms,
    const struct grpc_client_events *events, void *context, struct grpc_client_call **ret_call,
    struct error *error);

/* No events of it from now on. */
void grpc_client_cancel(struct grpc_client_call *call);

#endif
