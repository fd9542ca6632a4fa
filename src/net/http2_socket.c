/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http2_socket.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES 16384
#define TURN_BYTES (256 << 10) /* sent before other events have their turn */

static const char gone[] = "the peer has gone";

/* Returns NULL, or why it failed. `ret_blocked`: there is more to be sent. */
static const char *transmit(struct http2_socket *socket, bool *ret_blocked)
{
    *ret_blocked = false;
    for (size_t sent = 0; sent < TURN_BYTES;) {
        if (!socket->rest_bytes) {
            ssize_t made = nghttp2_session_mem_send(socket->session, &socket->rest);
            if (made < 0)
                return nghttp2_strerror((int)made);
            if (made == 0)
                return NULL;
            socket->rest_bytes = (size_t)made;
        }
        ssize_t wrote =
            send(socket->fd, socket->rest, socket->rest_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0 && errno != EAGAIN)
            return errno == EPIPE || errno == ECONNRESET ? gone : strerror(errno);
        if (wrote < 0)
            break;
        socket->rest += wrote;
        socket->rest_bytes -= (size_t)wrote;
        sent += (size_t)wrote;
    }
    *ret_blocked = true;
    return NULL;
}

static void close_for(struct http2_socket *socket, const char *why)
{
    event_del(socket->readable);
    event_del(socket->writable);
    socket->closed(socket, why == gone ? NULL : why);
}

/* The end of each event: sends, and chooses what to wait for. */
static void settle(struct http2_socket *socket)
{
    bool blocked;
    const char *why = transmit(socket, &blocked);
    if (why) {
        close_for(socket, why);
        return;
    }
    if (!blocked && !nghttp2_session_want_read(socket->session) &&
        !nghttp2_session_want_write(socket->session)) {
        close_for(socket, NULL);
        return;
    }
    if (blocked)
        event_add(socket->writable, NULL);
    else
        event_del(socket->writable);
    if (blocked && socket->rest_bytes && !socket->read_when_blocked)
        event_del(socket->readable);
    else
        event_add(socket->readable, NULL);
}

static void on_writable(evutil_socket_t fd, short what, void *argument)
{
    (void)fd, (void)what;
    settle(argument);
}

static void on_readable(evutil_socket_t fd, short what, void *argument)
{
    struct http2_socket *socket = argument;
    uint8_t bytes[READ_BYTES];
    (void)what;
    ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        close_for(socket, got < 0 && errno != ECONNRESET ? strerror(errno) : NULL);
        return;
    }
    ssize_t used = nghttp2_session_mem_recv(socket->session, bytes, (size_t)got);
    if (used < 0) {
        http2_socket_flush(socket); /* the GOAWAY that says why */
        close_for(socket, nghttp2_strerror((int)used));
        return;
    }
    settle(socket);
}

int http2_socket_init(struct http2_socket *socket, struct event_base *base, int fd,
    bool read_when_blocked, void (*closed)(struct http2_socket *socket, const char *why))
{
    struct event *readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, socket);
    struct event *writable = event_new(base, fd, EV_WRITE | EV_PERSIST, on_writable, socket);
    if (!readable || !writable || event_add(readable, NULL) || event_add(writable, NULL)) {
        if (readable)
            event_free(readable);
        if (writable)
            event_free(writable);
        return -ENOMEM;
    }
    *socket = (struct http2_socket){.fd = fd,
        .readable = readable,
        .writable = writable,
        .read_when_blocked = read_when_blocked,
        .closed = closed};
    return 0;
}

void http2_socket_finish(struct http2_socket *socket)
{
    event_free(socket->readable);
    event_free(socket->writable);
    nghttp2_session_del(socket->session);
    close(socket->fd);
    socket->session = NULL;
    socket->fd = -1;
}

void http2_socket_wake(struct http2_socket *socket)
{
    event_add(socket->writable, NULL);
}

void http2_socket_flush(struct http2_socket *socket)
{
    bool blocked;
    (void)transmit(socket, &blocked);
}
