/* SPDX-License-Identifier: Apache-2.0 */
/* An nghttp2 session on a socket and an event loop: bytes in both directions, bounded, in turns
 * with the loop's other events. For the owner thread of the loop. */
#ifndef VGPU_NET_HTTP2_SOCKET_H
#define VGPU_NET_HTTP2_SOCKET_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event;
struct event_base;

struct http2_socket {
    int fd;
    nghttp2_session *session; /* set by the owner after init, deleted by finish */
    struct event *readable, *writable;
    const uint8_t *rest; /* of nghttp2's output, not yet sent */
    size_t rest_bytes;
    bool read_when_blocked;
    /* Called as the last thing of an event, once: the peer has gone (`why` is NULL) or something
     * failed. The owner finishes the socket in it, or later. */
    void (*closed)(struct http2_socket *socket, const char *why);
};

/* Takes `fd`, which is non-blocking. A socket whose output is blocked is not read unless
 * `read_when_blocked`: a peer that does not read cannot queue more answers. One end of a connection
 * must read then, or both would wait; it is the client's. -ENOMEM; fd is the caller's then. */
__attribute__((warn_unused_result)) int http2_socket_init(struct http2_socket *socket,
    struct event_base *base, int fd, bool read_when_blocked,
    void (*closed)(struct http2_socket *socket, const char *why));

/* Deletes the session and closes. Not from within callbacks of the session. */
void http2_socket_finish(struct http2_socket *socket);

/* Something was submitted to the session outside of its callbacks: it is sent in the loop. Callable
 * anywhere. */
void http2_socket_wake(struct http2_socket *socket);

/* Sends what can be sent without waiting; for the end of a connection. */
void http2_socket_flush(struct http2_socket *socket);

#endif
