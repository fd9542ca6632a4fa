/* SPDX-License-Identifier: Apache-2.0 */
/* A gRPC server on Unix sockets and a libevent loop: methods with one request message and one or a
 * stream of answers (grpc PROTOCOL-HTTP2, without compression). All of it belongs to the loop's
 * thread; nothing blocks. What a peer can make the server hold is bounded: see the options. */
#ifndef VGPU_NET_GRPC_SERVER_H
#define VGPU_NET_GRPC_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/error.h"
#include "net/grpc_status.h"

struct event_base;
struct grpc_call;
struct grpc_server;

struct grpc_method {
    const char *path; /* "/package.Service/Method" */
    /* Called with the whole request, which is valid during the call only. Whoever serves owns
     * `call` until it has passed it to grpc_call_finish, exactly once, now or later, also where
     * the peer has gone meanwhile. Not from here: grpc_server_destroy. */
    void (*serve)(struct grpc_call *call, const uint8_t *request, size_t bytes, void *context);
};

/* 0 in a member means the default. */
struct grpc_server_options {
    size_t request_bytes;  /* of one message; 4 MiB */
    size_t requests_bytes; /* of all requests that are coming in together; 16 MiB */
    size_t answer_bytes;   /* queued in one call before grpc_call_send refuses; 16 MiB. A single
                              message may be longer. */
    unsigned connections;  /* 32; one more takes the place of the longest idle one, if any */
    unsigned streams;      /* of one connection; 64 */
    unsigned calls;        /* that are not finished, also of peers that went; 256 */
    unsigned request_ms;   /* for a request to come in whole, and a connection's first call; 30 s */
    unsigned idle_ms;      /* for a connection without a call; 300 s */
};

/* Methods and options are copied, but for the paths. NULL without memory. */
struct grpc_server *grpc_server_create(struct event_base *base, const struct grpc_method *methods,
    size_t count, void *context, const struct grpc_server_options *options);

/* Ends all connections. Calls that are still owned stay valid, and go nowhere. Accepts NULL. */
void grpc_server_destroy(struct grpc_server *server);

/* Accepts from this listening, non-blocking socket, which becomes the server's, in place of the one
 * before it, which is closed; connections stay. -1: from none. */
__attribute__((warn_unused_result)) int grpc_server_listen(
    struct grpc_server *server, int fd, struct error *error);

/* Serves a connected, non-blocking socket, which becomes the server's in any case. */
__attribute__((warn_unused_result)) int grpc_server_adopt(struct grpc_server *server, int fd);

unsigned grpc_server_connections(const struct grpc_server *server);

/* Sends an answer, a copy. -EPIPE: the peer has gone, -ENOBUFS: too much is queued, -ENOMEM. */
__attribute__((warn_unused_result)) int grpc_call_send(
    struct grpc_call *call, const void *message, size_t bytes);

/* Likewise, in place of those queued that are not yet being sent: for streams of states, where
 * only the newest matters to a peer that is slow. */
__attribute__((warn_unused_result)) int grpc_call_send_newest(
    struct grpc_call *call, const void *message, size_t bytes);

/* Ends the call after what was sent, and the ownership of it. `message`, NULL for none, is for the
 * peer's log. */
void grpc_call_finish(struct grpc_call *call, enum grpc_status status, const char *message);

/* Sends the only answer and finishes with GRPC_OK. */
void grpc_call_reply(struct grpc_call *call, const void *message, size_t bytes);

/* Whether nobody will read an answer: cancelled, disconnected, or past its deadline. */
bool grpc_call_gone(const struct grpc_call *call);

/* `gone` is called once when that becomes so before the call is finished, in the loop. It may
 * finish the call. It may not be set twice. */
void grpc_call_on_gone(
    struct grpc_call *call, void (*gone)(struct grpc_call *call, void *argument), void *argument);

#endif
