/* SPDX-License-Identifier: Apache-2.0 */
#include "net/grpc_client.h"

#include "net/grpc_frame.h"
#include "net/http2_socket.h"
#include "net/unix_socket.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#define HEADER_BYTES 16384
#define HEADER_COST 32
#define SLOTS 4 /* headers beside the timeout */

struct connection {
    struct http2_socket socket; /* first */
    struct grpc_client *client;
};

struct grpc_client_call {
    TAILQ_ENTRY(grpc_client_call) entry; /* of open or of ended */
    struct grpc_client *client;
    int32_t stream; /* 0: not on the connection any more */
    struct grpc_client_events events;
    void *context;
    struct event *deadline;
    uint8_t *request; /* framed */
    size_t request_bytes, request_sent;
    size_t header_bytes;
    bool grpc, has_http, has_status, ended, has_answer;
    int http, status; /* as the headers say */
    struct grpc_frame frame;
    uint8_t *answer; /* of a unary call */
    size_t answer_bytes;
    char text[GRPC_STATUS_MESSAGE_BYTES];
};

TAILQ_HEAD(call_list, grpc_client_call);

struct grpc_client {
    struct event_base *base;
    char *path;
    size_t answer_bytes;
    nghttp2_session_callbacks *callbacks;
    struct connection *connection;
    struct call_list open, ended;
    struct event *deliver; /* ends of calls, outside of nghttp2's callbacks */
};

static void free_call(struct grpc_client_call *call)
{
    if (call->deadline)
        event_free(call->deadline);
    grpc_frame_finish(&call->frame);
    free(call->request);
    free(call->answer);
    free(call);
}

static void drop_connection(struct grpc_client *client)
{
    struct connection *connection = client->connection;
    client->connection = NULL;
    if (!connection)
        return;
    http2_socket_flush(&connection->socket);
    http2_socket_finish(&connection->socket);
    free(connection);
}

/* Leaves the stream; what nghttp2 still has of it ends without the call. */
static void leave_stream(struct grpc_client_call *call, bool reset)
{
    struct connection *connection = call->client->connection;
    if (!connection || !call->stream)
        return;
    (void)nghttp2_session_set_stream_user_data(connection->socket.session, call->stream, NULL);
    if (reset) {
        (void)nghttp2_submit_rst_stream(
            connection->socket.session, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_CANCEL);
        http2_socket_wake(&connection->socket);
    }
    call->stream = 0;
}

static void end_call(
    struct grpc_client_call *call, enum grpc_status status, const char *text, bool reset)
{
    struct grpc_client *client = call->client;
    if (call->ended)
        return;
    call->ended = true;
    call->status = status;
    if (text)
        snprintf(call->text, sizeof(call->text), "%s", text);
    leave_stream(call, reset);
    if (call->deadline)
        event_del(call->deadline);
    TAILQ_REMOVE(&client->open, call, entry);
    TAILQ_INSERT_TAIL(&client->ended, call, entry);
    event_active(client->deliver, EV_TIMEOUT, 1);
}

/* One call a turn, because its owner may do anything in `end`; the connection goes a turn after the
 * last one, so that `end` may use it for the next call. */
static void on_deliver(evutil_socket_t fd, short what, void *argument)
{
    struct grpc_client *client = argument;
    struct grpc_client_call *call = TAILQ_FIRST(&client->ended);
    (void)fd, (void)what;
    if (!call) {
        if (TAILQ_EMPTY(&client->open))
            drop_connection(client);
        return;
    }
    TAILQ_REMOVE(&client->ended, call, entry);
    event_active(client->deliver, EV_TIMEOUT, 1);
    bool good = call->status == GRPC_OK && !call->events.message;
    call->events.end(call->context, (enum grpc_status)call->status, call->text,
        good ? call->answer : NULL, good ? call->answer_bytes : 0);
    free_call(call);
}

static void on_deadline(evutil_socket_t fd, short what, void *argument)
{
    (void)fd, (void)what;
    end_call(argument, GRPC_DEADLINE_EXCEEDED, "no answer within the deadline", true);
}

static void on_closed(struct http2_socket *socket, const char *why)
{
    struct grpc_client *client = ((struct connection *)socket)->client;
    char text[256];
    snprintf(text, sizeof(text), "connection to %s: %s", client->path, why ? why : "closed");
    while (!TAILQ_EMPTY(&client->open)) {
        struct grpc_client_call *call = TAILQ_FIRST(&client->open);
        call->stream = 0;
        end_call(call, GRPC_UNAVAILABLE, text, false);
    }
    drop_connection(client);
}

static bool text_is(const uint8_t *text, size_t length, const char *wanted)
{
    return length == strlen(wanted) && !memcmp(text, wanted, length);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
    size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags, void *user)
{
    struct grpc_client_call *call =
        nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    const char *text = (const char *)value;
    (void)flags, (void)user;
    if (!call || frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    call->header_bytes += name_bytes + value_bytes + HEADER_COST;
    if (call->header_bytes > HEADER_BYTES) {
        end_call(call, GRPC_RESOURCE_EXHAUSTED, "the answer's headers are too long", true);
    } else if (text_is(name, name_bytes, ":status")) {
        call->http = atoi(text); /* nghttp2 has checked that it is a number of three digits */
    } else if (text_is(name, name_bytes, "content-type")) {
        call->grpc = value_bytes >= 16 && !memcmp(value, "application/grpc", 16);
    } else if (text_is(name, name_bytes, "grpc-status")) {
        call->has_status = true;
        call->status = grpc_status_parse(text, value_bytes);
    } else if (text_is(name, name_bytes, "grpc-message")) {
        grpc_status_decode(text, value_bytes, call->text, sizeof(call->text));
    }
    return 0;
}

static void take_message(struct grpc_client_call *call)
{
    if (call->events.message) {
        call->events.message(call->context, call->frame.message, call->frame.bytes);
    } else if (call->has_answer) {
        end_call(call, GRPC_INTERNAL, "more than one answer", true);
    } else {
        call->answer = call->frame.message;
        call->answer_bytes = call->frame.bytes;
        call->has_answer = true;
        call->frame.message = NULL;
    }
    grpc_frame_next(&call->frame);
}

static void refuse_answer(struct grpc_client_call *call, int error)
{
    char text[128];
    if (error == -EMSGSIZE)
        snprintf(text, sizeof(text), "an answer of %u bytes; at most %zu are accepted",
            grpc_frame_promised(&call->frame), call->frame.max_bytes);
    else
        snprintf(text, sizeof(text), "%s",
            error == -ENOMEM    ? "no memory for the answer"
            : error == -ENOTSUP ? "the answer is compressed"
                                : "the answer is malformed");
    end_call(call, error == -EMSGSIZE || error == -ENOMEM ? GRPC_RESOURCE_EXHAUSTED : GRPC_INTERNAL,
        text, true);
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
    size_t bytes, void *user)
{
    struct grpc_client_call *call = nghttp2_session_get_stream_user_data(session, stream);
    (void)flags, (void)user;
    /* A body of another type is no message. */
    while (call && !call->ended && call->grpc && bytes) {
        size_t used = 0;
        int result = grpc_frame_feed(&call->frame, data, bytes, &used);
        if (result < 0) {
            refuse_answer(call, result);
            break;
        }
        data += used;
        bytes -= used;
        if (result)
            take_message(call);
    }
    return 0;
}

/* HTTP statuses that grpc's document maps; others are GRPC_UNKNOWN. */
static enum grpc_status from_http(int http)
{
    switch (http) {
    case 400:
        return GRPC_INTERNAL;
    case 401:
        return GRPC_UNAUTHENTICATED;
    case 403:
        return GRPC_PERMISSION_DENIED;
    case 404:
        return GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return GRPC_UNAVAILABLE;
    default:
        return GRPC_UNKNOWN;
    }
}

static enum grpc_status from_reset(uint32_t code)
{
    switch (code) {
    case NGHTTP2_REFUSED_STREAM:
        return GRPC_UNAVAILABLE;
    case NGHTTP2_CANCEL:
        return GRPC_CANCELLED;
    case NGHTTP2_ENHANCE_YOUR_CALM:
        return GRPC_RESOURCE_EXHAUSTED;
    default:
        return GRPC_INTERNAL;
    }
}

static int on_stream_close(nghttp2_session *session, int32_t stream, uint32_t code, void *user)
{
    struct grpc_client_call *call = nghttp2_session_get_stream_user_data(session, stream);
    char text[96];
    (void)user;
    if (!call)
        return 0;
    call->stream = 0;
    if (call->has_status && call->status != GRPC_OK) {
        end_call(call, (enum grpc_status)call->status, NULL, false);
    } else if (code != NGHTTP2_NO_ERROR) {
        snprintf(text, sizeof(text), "the stream was reset: %s", nghttp2_http2_strerror(code));
        end_call(call, from_reset(code), text, false);
    } else if (!call->has_status) {
        snprintf(text, sizeof(text), "HTTP status %d without a grpc-status", call->http);
        end_call(call, from_http(call->http), text, false);
    } else if (!grpc_frame_between(&call->frame) || (!call->events.message && !call->has_answer)) {
        end_call(call, GRPC_INTERNAL, "the stream ends without a whole answer", false);
    } else {
        end_call(call, GRPC_OK, NULL, false);
    }
    return 0;
}

/* A request that nghttp2 could not send, because the server is closing: no stream is closed for it.
 */
static int on_frame_not_sent(
    nghttp2_session *session, const nghttp2_frame *frame, int error, void *user)
{
    struct grpc_client_call *call =
        frame->hd.type == NGHTTP2_HEADERS
            ? nghttp2_session_get_stream_user_data(session, frame->hd.stream_id)
            : NULL;
    (void)user;
    if (call) {
        call->stream = 0;
        end_call(call, GRPC_UNAVAILABLE, nghttp2_strerror(error), false);
    }
    return 0;
}

static ssize_t read_request(nghttp2_session *session, int32_t stream, uint8_t *bytes, size_t room,
    uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct grpc_client_call *call = nghttp2_session_get_stream_user_data(session, stream);
    (void)source, (void)user;
    if (!call)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t left = call->request_bytes - call->request_sent;
    size_t taken = left < room ? left : room;
    memcpy(bytes, call->request + call->request_sent, taken);
    call->request_sent += taken;
    if (taken == left)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)taken;
}

struct grpc_client *grpc_client_create(
    struct event_base *base, const char *path, size_t answer_bytes)
{
    struct grpc_client *client = calloc(1, sizeof(*client));
    if (!client)
        return NULL;
    client->base = base;
    client->answer_bytes = answer_bytes ? answer_bytes : GRPC_FRAME_MESSAGE_BYTES;
    TAILQ_INIT(&client->open);
    TAILQ_INIT(&client->ended);
    client->path = strdup(path);
    client->deliver = event_new(base, -1, 0, on_deliver, client);
    if (!client->path || !client->deliver || nghttp2_session_callbacks_new(&client->callbacks)) {
        grpc_client_destroy(client);
        return NULL;
    }
    nghttp2_session_callbacks_set_on_header_callback(client->callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(client->callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(client->callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(client->callbacks, on_frame_not_sent);
    return client;
}

void grpc_client_destroy(struct grpc_client *client)
{
    struct grpc_client_call *call;
    if (!client)
        return;
    drop_connection(client);
    while ((call = TAILQ_FIRST(&client->open))) {
        TAILQ_REMOVE(&client->open, call, entry);
        free_call(call);
    }
    while ((call = TAILQ_FIRST(&client->ended))) {
        TAILQ_REMOVE(&client->ended, call, entry);
        free_call(call);
    }
    if (client->deliver)
        event_free(client->deliver);
    nghttp2_session_callbacks_del(client->callbacks);
    free(client->path);
    free(client);
}

static int connect_client(struct grpc_client *client, struct error *error)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}, {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADER_BYTES}};
    int fd, failed = unix_socket_connect(client->path, &fd, error);
    if (failed)
        return failed;
    struct connection *connection = calloc(1, sizeof(*connection));
    if (!connection ||
        http2_socket_init(&connection->socket, client->base, fd, true, on_closed) != 0) {
        free(connection);
        close(fd);
        return error_set(error, ENOMEM, "no memory to connect to %s", client->path);
    }
    connection->client = client;
    if (nghttp2_session_client_new(&connection->socket.session, client->callbacks, connection) ||
        nghttp2_submit_settings(connection->socket.session, NGHTTP2_FLAG_NONE, settings, 2)) {
        http2_socket_finish(&connection->socket);
        free(connection);
        return error_set(error, ENOMEM, "no memory to connect to %s", client->path);
    }
    client->connection = connection;
    return 0;
}

static nghttp2_nv pair(const char *name, const char *value)
{
    return (nghttp2_nv){
        (uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE};
}

static int submit(struct grpc_client_call *call, const char *method, unsigned timeout_ms)
{
    char timeout[16] = "";
    const nghttp2_data_provider body = {.read_callback = read_request};
    nghttp2_nv headers[] = {pair(":method", "POST"), pair(":scheme", "http"), pair(":path", method),
        pair(":authority", "localhost"), pair("content-type", "application/grpc"),
        pair("te", "trailers"), pair("user-agent", "vgpu"), pair("grpc-timeout", timeout)};
    size_t count = sizeof(headers) / sizeof(*headers) - !timeout_ms;
    if (timeout_ms) /* 8 digits at most */
        snprintf(timeout, sizeof(timeout), "%u%c",
            timeout_ms < 100000000 ? timeout_ms : timeout_ms / 1000,
            timeout_ms < 100000000 ? 'm' : 'S');
    if (timeout_ms)
        headers[count - 1] = pair("grpc-timeout", timeout);
    struct http2_socket *socket = &call->client->connection->socket;
    call->stream = nghttp2_submit_request(socket->session, NULL, headers, count, &body, call);
    if (call->stream < 0)
        return -ENOMEM;
    http2_socket_wake(socket);
    return 0;
}

static int start_deadline(struct grpc_client_call *call, unsigned timeout_ms)
{
    const struct timeval wait = {timeout_ms / 1000, (suseconds_t)(timeout_ms % 1000 * 1000)};
    if (!timeout_ms)
        return 0;
    call->deadline = event_new(call->client->base, -1, 0, on_deadline, call);
    return call->deadline && event_add(call->deadline, &wait) == 0 ? 0 : -ENOMEM;
}

int grpc_client_call(struct grpc_client *client, const char *method, const void *request,
    size_t bytes, unsigned timeout_ms, const struct grpc_client_events *events, void *context,
    struct grpc_client_call **ret_call, struct error *error)
{
    if (client->connection && TAILQ_EMPTY(&client->open) &&
        !nghttp2_session_check_request_allowed(client->connection->socket.session))
        drop_connection(client);
    int failed = client->connection ? 0 : connect_client(client, error);
    if (failed)
        return failed;
    struct grpc_client_call *call = calloc(1, sizeof(*call));
    if (!call)
        return error_set(error, ENOMEM, "no memory for a call of %s", method);
    call->client = client;
    call->events = *events;
    call->context = context;
    grpc_frame_init(&call->frame, client->answer_bytes);
    call->request = grpc_frame_make(request, bytes, &call->request_bytes);
    if (!call->request || start_deadline(call, timeout_ms) || submit(call, method, timeout_ms)) {
        free_call(call);
        return error_set(error, ENOMEM, "no memory for a call of %s", method);
    }
    TAILQ_INSERT_TAIL(&client->open, call, entry);
    if (ret_call)
        *ret_call = call;
    return 0;
}

void grpc_client_cancel(struct grpc_client_call *call)
{
    struct grpc_client *client = call->client;
    leave_stream(call, true);
    TAILQ_REMOVE(call->ended ? &client->ended : &client->open, call, entry);
    free_call(call);
    event_active(client->deliver, EV_TIMEOUT, 1); /* which drops an unused connection */
}
