/* SPDX-License-Identifier: Apache-2.0 */
/* What nghttp2 reports of the server's connections: requests as they come in. Its checks of HTTP
 * messages are off, because they refuse an :authority that is a path, which kubelets before 1.26
 * send (the socket's); what matters here is checked here. */
#include "net/grpc_server_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 16384 /* of a request; HTTP/2 counts 32 for each beside its text */
#define HEADER_COST 32

static struct grpc_call *call_of(nghttp2_session *session, int32_t stream)
{
    return nghttp2_session_get_stream_user_data(session, stream);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct grpc_connection *connection = user;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct grpc_call *call = grpc_call_create(connection, frame->hd.stream_id);
    if (!call)
        return nghttp2_submit_rst_stream(
                   session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_REFUSED_STREAM)
                   ? NGHTTP2_ERR_CALLBACK_FAILURE
                   : 0;
    if (nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call) != 0) {
        grpc_call_detach(call);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return 0;
}

static bool text_is(const uint8_t *text, size_t length, const char *wanted)
{
    return length == strlen(wanted) && !memcmp(text, wanted, length);
}

static void read_path(struct grpc_call *call, const uint8_t *value, size_t length)
{
    call->malformed |= call->has_path;
    call->has_path = true;
    snprintf(call->path, sizeof(call->path), "%.*s",
        (int)(length < sizeof(call->path) ? length : sizeof(call->path)), (const char *)value);
    for (size_t i = 0; i < call->server->method_count; i++)
        if (text_is(value, length, call->server->methods[i].path))
            call->method = &call->server->methods[i];
}

static void read_header(struct grpc_call *call, const uint8_t *name, size_t name_bytes,
    const uint8_t *value, size_t value_bytes)
{
    static const char type[] = "application/grpc";
    if (text_is(name, name_bytes, ":method")) {
        call->malformed |= call->has_method;
        call->has_method = true;
        call->post = text_is(value, value_bytes, "POST");
    } else if (text_is(name, name_bytes, ":path")) {
        read_path(call, value, value_bytes);
    } else if (text_is(name, name_bytes, "content-type")) {
        size_t bytes = sizeof(type) - 1;
        call->grpc = value_bytes >= bytes && !memcmp(value, type, bytes) &&
                     (value_bytes == bytes || value[bytes] == '+' || value[bytes] == ';');
    } else if (text_is(name, name_bytes, "grpc-encoding")) {
        call->encoded = !text_is(value, value_bytes, "identity");
    } else if (text_is(name, name_bytes, "grpc-timeout")) {
        call->has_timeout = true;
        call->bad_timeout =
            !grpc_status_timeout((const char *)value, value_bytes, &call->timeout_ms);
    }
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
    size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags, void *user)
{
    struct grpc_call *call = call_of(session, frame->hd.stream_id);
    (void)flags, (void)user;
    if (!call)
        return 0;
    call->header_bytes += name_bytes + value_bytes + HEADER_COST;
    if (call->header_bytes > HEADER_BYTES)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* resets the stream */
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        read_header(call, name, name_bytes, value, value_bytes);
    return 0;
}

static int begin_request(nghttp2_session *session, struct grpc_call *call)
{
    if (call->malformed || !call->has_method || !call->has_path)
        return nghttp2_submit_rst_stream(
            session, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_PROTOCOL_ERROR);
    if (!call->post)
        grpc_call_fail_http(call, "405");
    else if (!call->grpc)
        grpc_call_fail_http(call, "415");
    else if (!call->method)
        grpc_call_fail(call, GRPC_UNIMPLEMENTED, "unknown method %s", call->path);
    else if (call->encoded)
        grpc_call_fail(call, GRPC_UNIMPLEMENTED, "only the encoding identity is accepted");
    else if (call->bad_timeout)
        grpc_call_fail(call, GRPC_INTERNAL,
            "grpc-timeout: 1 to 8 digits and one of H, M, S, m, u, n are accepted");
    else if (call->has_timeout)
        grpc_call_set_deadline(call);
    return 0;
}

static void end_request(struct grpc_call *call)
{
    call->whole = true;
    if (call->ended)
        return;
    if (!call->complete) {
        grpc_call_fail(call, GRPC_INTERNAL, "the request ends without a whole message");
        return;
    }
    uint8_t *message = call->frame.message;
    size_t bytes = call->frame.bytes;
    call->frame.message = NULL;
    grpc_call_release_request(call);
    call->owned = true;
    call->method->serve(call, message, bytes, call->server->context);
    free(message);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct grpc_call *call = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA
                                 ? call_of(session, frame->hd.stream_id)
                                 : NULL;
    (void)user;
    if (!call)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        int failed = begin_request(session, call);
        if (failed)
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        if (call->malformed || !call->has_method || !call->has_path)
            return 0;
    }
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        end_request(call);
    return 0;
}

static void refuse_frame(struct grpc_call *call, int error)
{
    switch (error) {
    case -EMSGSIZE:
        grpc_call_fail(call, GRPC_RESOURCE_EXHAUSTED,
            "a request of %u bytes; at most %zu are accepted", grpc_frame_promised(&call->frame),
            call->frame.max_bytes);
        break;
    case -ENOTSUP:
        grpc_call_fail(call, GRPC_INTERNAL, "a compressed message without grpc-encoding");
        break;
    case -EBADMSG:
        grpc_call_fail(call, GRPC_INTERNAL, "a message that begins with %u; 0 or 1 is accepted",
            call->frame.header[0]);
        break;
    default:
        grpc_call_fail(call, GRPC_RESOURCE_EXHAUSTED, "no memory for the request");
    }
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
    size_t bytes, void *user)
{
    struct grpc_call *call = call_of(session, stream);
    (void)flags, (void)user;
    if (!call || call->ended || !bytes)
        return 0;
    if (call->complete) {
        grpc_call_fail(call, GRPC_INTERNAL, "more than one message in a request");
        return 0;
    }
    struct grpc_server *server = call->server;
    if (bytes > server->options.requests_bytes - server->requests_bytes) {
        grpc_call_fail(call, GRPC_RESOURCE_EXHAUSTED, "too many large requests at once");
        return 0;
    }
    server->requests_bytes += bytes;
    call->charged += bytes;
    size_t used = 0;
    int result = grpc_frame_feed(&call->frame, data, bytes, &used);
    call->complete = result == 1;
    if (result < 0)
        refuse_frame(call, result);
    else if (used < bytes)
        grpc_call_fail(call, GRPC_INTERNAL, "more than one message in a request");
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream, uint32_t code, void *user)
{
    struct grpc_call *call = call_of(session, stream);
    (void)code, (void)user;
    if (call)
        grpc_call_detach(call);
    return 0;
}

/* A peer that is answered before its request has ended is to stop sending it. */
static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    (void)user;
    if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    struct grpc_call *call = call_of(session, frame->hd.stream_id);
    if (call && !call->whole)
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_NO_ERROR);
    return 0;
}

void grpc_session_set_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
}
