/* SPDX-License-Identifier: Apache-2.0 */
/* A gRPC server with some methods, and a client of raw HTTP/2 that may send anything, in one loop.
 */
#ifndef VGPU_TEST_NET_GRPC_BED_H
#define VGPU_TEST_NET_GRPC_BED_H

#include "net/grpc_client.h"
#include "net/grpc_frame.h"
#include "net/grpc_server.h"
#include "net/http2_socket.h"
#include "net/unix_socket.h"

#include "check.h"
#include "scratch.h"

#include <event2/event.h>
#include <fcntl.h>
#include <sys/socket.h>

#define BED_CALLS 400

static struct event_base *base;
static struct grpc_server *server;
static char path[SCRATCH_PATH_MAX + 256];
static struct grpc_call *held[BED_CALLS]; /* of /t.T/Hold and /t.T/Watch */
static unsigned held_count, gone_count;

static inline void bed_echo(
    struct grpc_call *call, const uint8_t *request, size_t bytes, void *context)
{
    (void)context;
    grpc_call_reply(call, request, bytes);
}

static inline void bed_fail(
    struct grpc_call *call, const uint8_t *request, size_t bytes, void *context)
{
    (void)request, (void)bytes, (void)context;
    grpc_call_finish(call, GRPC_NOT_FOUND, "no \"Pod\" with 100 %\nof it: \xc3\xa4");
}

static inline void bed_gone(struct grpc_call *call, void *argument)
{
    gone_count++;
    for (unsigned i = 0; i < held_count; i++)
        if (held[i] == call)
            held[i] = NULL;
    if (argument) /* else the test finishes it */
        grpc_call_finish(call, GRPC_OK, NULL);
}

static inline void bed_hold(
    struct grpc_call *call, const uint8_t *request, size_t bytes, void *context)
{
    (void)request, (void)bytes, (void)context;
    REQUIRE(held_count < BED_CALLS);
    held[held_count++] = call;
    grpc_call_on_gone(call, bed_gone, held);
}

static const struct grpc_method bed_methods[] = {
    {"/t.T/Echo", bed_echo}, {"/t.T/Fail", bed_fail}, {"/t.T/Hold", bed_hold}};

static inline void bed_serve(const struct grpc_server_options *options)
{
    struct unix_socket_file file;
    struct error error;
    int fd;
    snprintf(path, sizeof(path), "%s", scratch_path("s.sock"));
    base = event_base_new();
    REQUIRE(base);
    server = grpc_server_create(base, bed_methods, 3, NULL, options);
    REQUIRE(server);
    REQUIRE(unix_socket_listen(path, &fd, &file, &error) == 0);
    REQUIRE(grpc_server_listen(server, fd, &error) == 0);
}

static inline void bed_stop(evutil_socket_t fd, short what, void *argument)
{
    (void)fd, (void)what, (void)argument;
    event_base_loopbreak(base);
}

/* Runs the loop until the word is `wanted`, or for so long; returns whether it is. */
static inline bool bed_until(const volatile unsigned *word, unsigned wanted, unsigned ms)
{
    const struct timeval slice = {0, 2000};
    struct event *tick = event_new(base, -1, EV_PERSIST, bed_stop, NULL);
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    event_add(tick, &slice);
    while (*word != wanted) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 > ms)
            break;
        event_base_loop(base, EVLOOP_ONCE);
    }
    event_free(tick);
    return *word == wanted;
}

static inline void bed_run(unsigned ms)
{
    unsigned never = 0;
    (void)bed_until(&never, 1, ms);
}

/* A call's end, through the client. */
struct bed_end {
    unsigned done, messages;
    int status;
    char text[GRPC_STATUS_MESSAGE_BYTES];
    uint8_t *message;
    size_t bytes;
};

static inline void bed_on_end(
    void *context, enum grpc_status status, const char *text, const uint8_t *message, size_t bytes)
{
    struct bed_end *end = context;
    end->done++;
    end->status = status;
    snprintf(end->text, sizeof(end->text), "%s", text);
    end->message = message ? malloc(bytes + 1) : NULL;
    if (message)
        memcpy(end->message, message, bytes);
    end->bytes = bytes;
}

static inline void bed_on_message(void *context, const uint8_t *message, size_t bytes)
{
    struct bed_end *end = context;
    free(end->message);
    end->message = malloc(bytes + 1);
    memcpy(end->message, message, bytes);
    end->bytes = bytes;
    end->messages++;
}

static const struct grpc_client_events bed_unary = {.end = bed_on_end};
static const struct grpc_client_events bed_stream = {.message = bed_on_message, .end = bed_on_end};

/* A client below gRPC. */
struct bed_peer {
    struct http2_socket socket; /* first */
    unsigned closed;            /* the connection */
    unsigned ended;             /* streams */
    uint32_t code;              /* of the last stream's end */
    char status[8], grpc_status[8], message[256];
    size_t bytes; /* of answers */
    const uint8_t *body;
    size_t body_bytes;
    bool body_stays_open;
};

static inline void bed_peer_closed(struct http2_socket *socket, const char *why)
{
    (void)why;
    ((struct bed_peer *)socket)->closed = 1;
}

static inline int bed_peer_header(nghttp2_session *session, const nghttp2_frame *frame,
    const uint8_t *name, size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags,
    void *user)
{
    struct bed_peer *peer = user;
    (void)session, (void)frame, (void)flags, (void)name_bytes;
    char *to = !strcmp((const char *)name, ":status")        ? peer->status
               : !strcmp((const char *)name, "grpc-status")  ? peer->grpc_status
               : !strcmp((const char *)name, "grpc-message") ? peer->message
                                                             : NULL;
    size_t room = to == peer->message ? sizeof(peer->message) : sizeof(peer->status);
    if (to)
        snprintf(to, room, "%.*s", (int)value_bytes, (const char *)value);
    return 0;
}

static inline int bed_peer_data(nghttp2_session *session, uint8_t flags, int32_t stream,
    const uint8_t *data, size_t bytes, void *user)
{
    (void)session, (void)flags, (void)stream, (void)data;
    ((struct bed_peer *)user)->bytes += bytes;
    return 0;
}

static inline int bed_peer_stream_closed(
    nghttp2_session *session, int32_t stream, uint32_t code, void *user)
{
    struct bed_peer *peer = user;
    (void)session, (void)stream;
    peer->ended++;
    peer->code = code;
    return 0;
}

static inline ssize_t bed_peer_read(nghttp2_session *session, int32_t stream, uint8_t *bytes,
    size_t room, uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct bed_peer *peer = user;
    size_t taken = peer->body_bytes < room ? peer->body_bytes : room;
    (void)session, (void)stream, (void)source;
    if (!taken && peer->body_stays_open)
        return NGHTTP2_ERR_DEFERRED;
    memcpy(bytes, peer->body, taken);
    peer->body += taken;
    peer->body_bytes -= taken;
    if (!peer->body_bytes && !peer->body_stays_open)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)taken;
}

static inline void bed_peer_connect(struct bed_peer *peer)
{
    struct error error;
    nghttp2_session_callbacks *callbacks;
    int fd;
    memset(peer, 0, sizeof(*peer));
    REQUIRE(unix_socket_connect(path, &fd, &error) == 0);
    REQUIRE(http2_socket_init(&peer->socket, base, fd, true, bed_peer_closed) == 0);
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, bed_peer_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, bed_peer_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, bed_peer_stream_closed);
    REQUIRE(nghttp2_session_client_new(&peer->socket.session, callbacks, peer) == 0);
    nghttp2_session_callbacks_del(callbacks);
    REQUIRE(nghttp2_submit_settings(peer->socket.session, 0, NULL, 0) == 0);
}

/* Headers are name, value, name, value, ..., NULL. */
static inline int32_t bed_peer_send(
    struct bed_peer *peer, const char *const *headers, const void *body, size_t bytes)
{
    nghttp2_nv list[256];
    size_t count = 0;
    const nghttp2_data_provider provider = {.read_callback = bed_peer_read};
    for (; headers[2 * count]; count++)
        list[count] = (nghttp2_nv){(uint8_t *)headers[2 * count], (uint8_t *)headers[2 * count + 1],
            strlen(headers[2 * count]), strlen(headers[2 * count + 1]), 0};
    peer->body = body;
    peer->body_bytes = bytes;
    int32_t stream = nghttp2_submit_request(
        peer->socket.session, NULL, list, count, body ? &provider : NULL, NULL);
    http2_socket_wake(&peer->socket);
    return stream;
}

#define BED_HEADERS(method, path_value, ...)                                                       \
    (const char *const[])                                                                          \
    {                                                                                              \
        ":method", method, ":scheme", "http", ":path", path_value, __VA_ARGS__, NULL, NULL         \
    }
#define BED_GRPC "content-type", "application/grpc", "te", "trailers"

#endif
