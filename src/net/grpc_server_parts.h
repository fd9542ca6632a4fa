/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the gRPC server share: grpc_server.c has sockets and limits, grpc_session.c
 * what nghttp2 reports, grpc_call.c the answers. */
#ifndef VGPU_NET_GRPC_SERVER_PARTS_H
#define VGPU_NET_GRPC_SERVER_PARTS_H

#include "net/grpc_frame.h"
#include "net/grpc_server.h"
#include "net/http2_socket.h"

#include <sys/queue.h>

struct grpc_server {
    struct event_base *base;
    struct grpc_method *methods;
    size_t method_count;
    void *context;
    struct grpc_server_options options;
    int listener;
    struct event *acceptable, *accept_again;
    struct event *sweep; /* looks for what came to a stop; runs only while there is something */
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *session_options;
    TAILQ_HEAD(, grpc_connection) connections; /* the longest idle first */
    unsigned connection_count;
    LIST_HEAD(, grpc_call) calls; /* all that exist */
    unsigned call_count;
    bool watching; /* sweep is pending */
    size_t requests_bytes;
};

struct grpc_connection {
    struct http2_socket socket; /* first */
    struct grpc_server *server;
    TAILQ_ENTRY(grpc_connection) entry;
    TAILQ_HEAD(, grpc_call) calls;
    uint64_t idle_since_ms; /* since when it has no call */
    bool called;            /* it has had one */
};

struct grpc_answer {
    STAILQ_ENTRY(grpc_answer) entry;
    uint8_t *frame;
    size_t bytes, sent;
};

/* Lives while its stream does (`connection`) or somebody serves it (`owned`). */
struct grpc_call {
    struct grpc_server *server;         /* NULL when the server was destroyed */
    struct grpc_connection *connection; /* NULL when the stream was closed */
    TAILQ_ENTRY(grpc_call) entry;       /* of the connection's */
    LIST_ENTRY(grpc_call) all;          /* of the server's */
    int32_t stream;
    bool owned;
    bool ended;  /* its status is set */
    bool late;   /* its deadline has passed */
    bool opened; /* the answer's headers were submitted */
    bool asleep; /* nghttp2 waits for resume_data */
    bool whole;  /* the request has ended */
    uint64_t begun_ms, ended_ms;
    struct event *deadline;
    void (*gone)(struct grpc_call *call, void *argument);
    void *gone_argument;

    /* The request. */
    const struct grpc_method *method;
    size_t header_bytes;
    char path[96]; /* cut, for messages */
    bool post, grpc, has_path, has_method, malformed;
    bool encoded; /* compressed by a method that we do not have */
    bool has_timeout, bad_timeout;
    bool complete; /* its message has come */
    uint64_t timeout_ms;
    struct grpc_frame frame;
    size_t charged; /* of the server's requests_bytes */

    /* The answer. */
    STAILQ_HEAD(, grpc_answer) answers;
    size_t answers_bytes;
    enum grpc_status status;
    char message[GRPC_STATUS_MESSAGE_BYTES];
};

uint64_t grpc_server_now_ms(void);
/* The sweep is to look again. */
void grpc_server_watch(struct grpc_server *server);

/* What nghttp2 calls, for the server's sessions. */
void grpc_session_set_callbacks(nghttp2_session_callbacks *callbacks);

/* A new call for a stream, or NULL. */
struct grpc_call *grpc_call_create(struct grpc_connection *connection, int32_t stream);
/* The stream was closed. */
void grpc_call_detach(struct grpc_call *call);
/* Ends the call in the server's name. */
__attribute__((format(printf, 3, 4))) void grpc_call_fail(
    struct grpc_call *call, enum grpc_status status, const char *format, ...);
/* Ends the call with an HTTP status, where the peer does not speak gRPC. */
void grpc_call_fail_http(struct grpc_call *call, const char *status);
/* Drops what was read of the request. */
void grpc_call_release_request(struct grpc_call *call);
/* Begins its deadline, from the request's timeout. */
void grpc_call_set_deadline(struct grpc_call *call);

#endif
