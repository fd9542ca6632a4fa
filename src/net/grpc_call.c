/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the gRPC server: their answers, their end, and how long they live. */
#include "net/grpc_server_parts.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAIR(name, value)                                                                          \
    {                                                                                              \
        (uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, sizeof(value) - 1,                \
            NGHTTP2_NV_FLAG_NONE                                                                   \
    }
#define HEADERS 3
#define TRAILERS_MAX 2

static const nghttp2_nv headers[HEADERS] = {PAIR(":status", "200"),
    PAIR("content-type", "application/grpc"), PAIR("grpc-accept-encoding", "identity")};

static void free_answer(struct grpc_call *call)
{
    struct grpc_answer *answer = STAILQ_FIRST(&call->answers);
    STAILQ_REMOVE_HEAD(&call->answers, entry);
    call->answers_bytes -= answer->bytes;
    free(answer->frame);
    free(answer);
}

static void free_if_unused(struct grpc_call *call)
{
    if (call->owned || call->connection)
        return;
    grpc_call_release_request(call);
    while (!STAILQ_EMPTY(&call->answers))
        free_answer(call);
    if (call->deadline)
        event_free(call->deadline);
    if (call->server) {
        call->server->call_count--;
        LIST_REMOVE(call, all);
    }
    free(call);
}

struct grpc_call *grpc_call_create(struct grpc_connection *connection, int32_t stream)
{
    struct grpc_server *server = connection->server;
    struct grpc_call *call =
        server->call_count < server->options.calls ? calloc(1, sizeof(*call)) : NULL;
    if (!call)
        return NULL;
    call->server = server;
    call->connection = connection;
    call->stream = stream;
    call->begun_ms = grpc_server_now_ms();
    STAILQ_INIT(&call->answers);
    grpc_frame_init(&call->frame, server->options.request_bytes);
    server->call_count++;
    LIST_INSERT_HEAD(&server->calls, call, all);
    TAILQ_INSERT_TAIL(&connection->calls, call, entry);
    connection->called = true;
    grpc_server_watch(server);
    return call;
}

void grpc_call_release_request(struct grpc_call *call)
{
    grpc_frame_finish(&call->frame);
    if (call->server)
        call->server->requests_bytes -= call->charged;
    call->charged = 0;
}

static void tell_gone(struct grpc_call *call)
{
    void (*gone)(struct grpc_call *, void *) = call->owned ? call->gone : NULL;
    call->gone = NULL;
    if (gone)
        gone(call, call->gone_argument);
}

void grpc_call_detach(struct grpc_call *call)
{
    struct grpc_connection *connection = call->connection;
    TAILQ_REMOVE(&connection->calls, call, entry);
    if (TAILQ_EMPTY(&connection->calls)) {
        connection->idle_since_ms = grpc_server_now_ms();
        TAILQ_REMOVE(&connection->server->connections, connection, entry);
        TAILQ_INSERT_TAIL(&connection->server->connections, connection, entry);
        grpc_server_watch(connection->server);
    }
    call->connection = NULL;
    if (call->deadline) {
        event_free(call->deadline);
        call->deadline = NULL;
    }
    if (call->owned)
        tell_gone(call); /* which may finish and so free it */
    else
        free_if_unused(call);
}

static size_t make_trailers(const struct grpc_call *call, char status[12],
    char encoded[GRPC_STATUS_ENCODED_BYTES], nghttp2_nv ret_trailers[TRAILERS_MAX])
{
    int digits = snprintf(status, 12, "%d", (int)call->status);
    ret_trailers[0] = (nghttp2_nv){
        (uint8_t *)"grpc-status", (uint8_t *)status, 11, (size_t)digits, NGHTTP2_NV_FLAG_NONE};
    if (!call->message[0])
        return 1;
    size_t length = grpc_status_encode(call->message, encoded);
    ret_trailers[1] = (nghttp2_nv){
        (uint8_t *)"grpc-message", (uint8_t *)encoded, 12, length, NGHTTP2_NV_FLAG_NONE};
    return 2;
}

/* nghttp2 asks for bytes of the answer. */
static ssize_t read_answer(nghttp2_session *session, int32_t stream, uint8_t *bytes, size_t room,
    uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct grpc_call *call = source->ptr;
    struct grpc_answer *answer = STAILQ_FIRST(&call->answers);
    size_t taken = 0;
    (void)user;
    if (answer) {
        taken = answer->bytes - answer->sent < room ? answer->bytes - answer->sent : room;
        memcpy(bytes, answer->frame + answer->sent, taken);
        answer->sent += taken;
        if (answer->sent == answer->bytes)
            free_answer(call);
    }
    if (STAILQ_EMPTY(&call->answers) && call->ended) {
        char status[12], encoded[GRPC_STATUS_ENCODED_BYTES];
        nghttp2_nv trailers[TRAILERS_MAX];
        size_t count = make_trailers(call, status, encoded, trailers);
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (nghttp2_submit_trailer(session, stream, trailers, count) != 0)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    } else if (!taken) {
        call->asleep = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)taken;
}

static void reset_stream(struct grpc_call *call)
{
    (void)nghttp2_submit_rst_stream(
        call->connection->socket.session, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_INTERNAL_ERROR);
}

/* Something was queued, or the call has ended: nghttp2 is told. */
static void advance(struct grpc_call *call)
{
    if (!call->connection)
        return;
    nghttp2_session *session = call->connection->socket.session;
    int failed = 0;
    if (!call->opened && call->ended && STAILQ_EMPTY(&call->answers)) {
        /* An end without any message: headers and trailers are one. */
        char status[12], encoded[GRPC_STATUS_ENCODED_BYTES];
        nghttp2_nv all[HEADERS + TRAILERS_MAX];
        memcpy(all, headers, sizeof(headers));
        size_t count = HEADERS + make_trailers(call, status, encoded, all + HEADERS);
        failed = nghttp2_submit_response(session, call->stream, all, count, NULL);
        call->opened = true;
    } else if (!call->opened) {
        nghttp2_data_provider provider = {.source = {.ptr = call}, .read_callback = read_answer};
        failed = nghttp2_submit_response(session, call->stream, headers, HEADERS, &provider);
        call->opened = true;
    } else if (call->asleep) {
        call->asleep = false;
        failed = nghttp2_session_resume_data(session, call->stream);
    }
    if (failed)
        reset_stream(call);
    http2_socket_wake(&call->connection->socket);
}

static void end_call(struct grpc_call *call, enum grpc_status status, const char *message)
{
    call->ended = true;
    call->ended_ms = grpc_server_now_ms();
    call->status = status;
    if (call->connection)
        grpc_server_watch(call->server);
    snprintf(call->message, sizeof(call->message), "%s", message ? message : "");
    if (call->deadline) {
        event_free(call->deadline);
        call->deadline = NULL;
    }
    advance(call);
}

static int queue_answer(struct grpc_call *call, const void *message, size_t bytes)
{
    struct grpc_answer *answer = calloc(1, sizeof(*answer));
    if (answer)
        answer->frame = grpc_frame_make(message, bytes, &answer->bytes);
    if (!answer || !answer->frame) {
        free(answer);
        return -ENOMEM;
    }
    STAILQ_INSERT_TAIL(&call->answers, answer, entry);
    call->answers_bytes += answer->bytes;
    advance(call);
    return 0;
}

int grpc_call_send(struct grpc_call *call, const void *message, size_t bytes)
{
    if (grpc_call_gone(call))
        return -EPIPE;
    if (!STAILQ_EMPTY(&call->answers) &&
        (bytes > call->server->options.answer_bytes ||
            call->answers_bytes > call->server->options.answer_bytes - bytes))
        return -ENOBUFS;
    return queue_answer(call, message, bytes);
}

int grpc_call_send_newest(struct grpc_call *call, const void *message, size_t bytes)
{
    if (grpc_call_gone(call))
        return -EPIPE;
    struct grpc_answer *first = STAILQ_FIRST(&call->answers);
    bool begun = first && first->sent;
    for (struct grpc_answer *answer = first, *next; answer; answer = next) {
        next = STAILQ_NEXT(answer, entry);
        if (answer == first && begun)
            continue;
        STAILQ_REMOVE(&call->answers, answer, grpc_answer, entry);
        call->answers_bytes -= answer->bytes;
        free(answer->frame);
        free(answer);
    }
    return queue_answer(call, message, bytes);
}

void grpc_call_finish(struct grpc_call *call, enum grpc_status status, const char *message)
{
    if (!call->ended)
        end_call(call, status, message);
    call->owned = false;
    free_if_unused(call);
}

void grpc_call_reply(struct grpc_call *call, const void *message, size_t bytes)
{
    int failed = grpc_call_send(call, message, bytes);
    grpc_call_finish(call, failed ? GRPC_RESOURCE_EXHAUSTED : GRPC_OK,
        failed ? "no memory for the answer" : NULL);
}

bool grpc_call_gone(const struct grpc_call *call)
{
    return !call->connection || call->late;
}

void grpc_call_on_gone(
    struct grpc_call *call, void (*gone)(struct grpc_call *call, void *argument), void *argument)
{
    call->gone = gone;
    call->gone_argument = argument;
}

void grpc_call_fail(struct grpc_call *call, enum grpc_status status, const char *format, ...)
{
    char text[GRPC_STATUS_MESSAGE_BYTES];
    va_list arguments;
    if (call->ended)
        return;
    va_start(arguments, format);
    if (vsnprintf(text, sizeof(text), format, arguments) < 0)
        text[0] = '\0';
    va_end(arguments);
    grpc_call_release_request(call);
    end_call(call, status, text);
}

void grpc_call_fail_http(struct grpc_call *call, const char *status)
{
    const nghttp2_nv line = {
        (uint8_t *)":status", (uint8_t *)status, 7, strlen(status), NGHTTP2_NV_FLAG_NONE};
    if (call->ended)
        return;
    call->ended = true;
    call->ended_ms = grpc_server_now_ms();
    call->opened = true;
    grpc_call_release_request(call);
    if (nghttp2_submit_response(call->connection->socket.session, call->stream, &line, 1, NULL) !=
        0)
        reset_stream(call);
}

static void on_deadline(evutil_socket_t fd, short what, void *argument)
{
    struct grpc_call *call = argument;
    (void)fd, (void)what;
    /* Answers that wait for the peer are dropped, but for one that it has a part of. */
    bool begun = !STAILQ_EMPTY(&call->answers) && STAILQ_FIRST(&call->answers)->sent;
    if (begun)
        reset_stream(call);
    while (!begun && !STAILQ_EMPTY(&call->answers))
        free_answer(call);
    call->late = true;
    grpc_call_fail(call, GRPC_DEADLINE_EXCEEDED, "the call's deadline has passed");
    tell_gone(call);
}

void grpc_call_set_deadline(struct grpc_call *call)
{
    const struct timeval timeout = {
        (time_t)(call->timeout_ms / 1000), (suseconds_t)(call->timeout_ms % 1000 * 1000)};
    call->deadline = event_new(call->server->base, -1, 0, on_deadline, call);
    if (call->deadline)
        event_add(call->deadline, &timeout);
}
