/* SPDX-License-Identifier: Apache-2.0 */
/* The gRPC server's sockets and limits. */
#include "net/grpc_server.h"

#include "net/grpc_server_parts.h"
#include "net/log_line.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 32
#define STREAMS 64
#define CALLS 256
#define REQUESTS_BYTES (16 << 20)
#define ANSWER_BYTES (16 << 20)
#define REQUEST_MS 30000
#define IDLE_MS 300000
#define HEADER_LIST_BYTES 16384
#define ACCEPTS 16           /* at most in one turn */
#define ACCEPT_AGAIN_MS 1000 /* after the process ran out of descriptors */
#define SWEEP_MS_MAX 5000

uint64_t grpc_server_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void close_connection(struct grpc_connection *connection)
{
    struct grpc_server *server = connection->server;
    while (!TAILQ_EMPTY(&connection->calls))
        grpc_call_detach(TAILQ_FIRST(&connection->calls));
    TAILQ_REMOVE(&server->connections, connection, entry);
    server->connection_count--;
    http2_socket_finish(&connection->socket);
    free(connection);
}

/* In the server's name: the peer may call again on another connection. */
static void dismiss_connection(struct grpc_connection *connection, uint32_t code)
{
    (void)nghttp2_session_terminate_session(connection->socket.session, code);
    http2_socket_flush(&connection->socket);
    close_connection(connection);
}

static void on_closed(struct http2_socket *socket, const char *why)
{
    if (why)
        log_line(LOG_LINE_WARNING, "grpc: a client's connection was closed: %s", why);
    close_connection((struct grpc_connection *)socket);
}

static uint64_t sweep_ms(const struct grpc_server *server)
{
    const struct grpc_server_options *options = &server->options;
    uint64_t least =
        options->request_ms < options->idle_ms ? options->request_ms : options->idle_ms;
    return least / 4 < SWEEP_MS_MAX ? least / 4 + 1 : SWEEP_MS_MAX;
}

void grpc_server_watch(struct grpc_server *server)
{
    uint64_t ms = sweep_ms(server);
    const struct timeval wait = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};
    if (server->watching)
        return;
    server->watching = true;
    event_add(server->sweep, &wait);
}

/* Whether it is to be looked at again. */
static bool sweep_calls(struct grpc_connection *connection, uint64_t now, bool *ret_stuck)
{
    uint64_t limit = connection->server->options.request_ms;
    bool again = false;
    for (struct grpc_call *call = TAILQ_FIRST(&connection->calls); call;
         call = TAILQ_NEXT(call, entry)) {
        again |= !call->whole || call->ended;
        if (!call->whole && !call->ended && now - call->begun_ms > limit)
            grpc_call_fail(call, GRPC_DEADLINE_EXCEEDED, "the request does not come in");
        else if (call->ended && now - call->ended_ms > limit)
            *ret_stuck = true;
    }
    return again;
}

static void on_sweep(evutil_socket_t fd, short what, void *argument)
{
    struct grpc_server *server = argument;
    uint64_t now = grpc_server_now_ms();
    bool again = false;
    (void)fd, (void)what;
    server->watching = false;
    struct grpc_connection *connection = TAILQ_FIRST(&server->connections), *next;
    for (; connection; connection = next) {
        next = TAILQ_NEXT(connection, entry);
        bool stuck = false;
        if (!TAILQ_EMPTY(&connection->calls)) {
            again |= sweep_calls(connection, now, &stuck);
            if (stuck)
                log_line(LOG_LINE_WARNING, "grpc: a client does not read its answers");
        } else {
            uint64_t limit =
                connection->called ? server->options.idle_ms : server->options.request_ms;
            stuck = now - connection->idle_since_ms > limit;
            again = true;
        }
        if (stuck)
            dismiss_connection(connection, NGHTTP2_NO_ERROR);
    }
    if (again)
        grpc_server_watch(server);
}

static int begin_session(struct grpc_connection *connection)
{
    struct grpc_server *server = connection->server;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, server->options.streams},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADER_LIST_BYTES}};
    if (nghttp2_session_server_new2(&connection->socket.session, server->callbacks, connection,
            server->session_options) != 0)
        return -ENOMEM;
    return nghttp2_submit_settings(connection->socket.session, NGHTTP2_FLAG_NONE, settings,
               sizeof(settings) / sizeof(*settings))
               ? -ENOMEM
               : 0;
}

/* Makes room for one more connection. */
static bool evict(struct grpc_server *server)
{
    if (server->connection_count < server->options.connections)
        return true;
    for (struct grpc_connection *connection = TAILQ_FIRST(&server->connections); connection;
         connection = TAILQ_NEXT(connection, entry)) {
        if (!TAILQ_EMPTY(&connection->calls))
            continue;
        dismiss_connection(connection, NGHTTP2_NO_ERROR);
        return true;
    }
    log_line(LOG_LINE_WARNING, "grpc: a client is refused: %u connections are in use",
        server->connection_count);
    return false;
}

int grpc_server_adopt(struct grpc_server *server, int fd)
{
    struct grpc_connection *connection = evict(server) ? calloc(1, sizeof(*connection)) : NULL;
    if (!connection ||
        http2_socket_init(&connection->socket, server->base, fd, false, on_closed) != 0) {
        free(connection);
        close(fd);
        return -ENOMEM;
    }
    connection->server = server;
    connection->idle_since_ms = grpc_server_now_ms();
    TAILQ_INIT(&connection->calls);
    TAILQ_INSERT_TAIL(&server->connections, connection, entry);
    server->connection_count++;
    if (begin_session(connection) != 0) {
        close_connection(connection);
        return -ENOMEM;
    }
    grpc_server_watch(server);
    return 0;
}

static void on_accept_again(evutil_socket_t fd, short what, void *argument)
{
    struct grpc_server *server = argument;
    (void)fd, (void)what;
    event_add(server->acceptable, NULL);
}

static void on_acceptable(evutil_socket_t fd, short what, void *argument)
{
    static const struct timeval again = {ACCEPT_AGAIN_MS / 1000, 0};
    struct grpc_server *server = argument;
    (void)fd, (void)what;
    for (unsigned i = 0; i < ACCEPTS; i++) {
        int client = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client >= 0) {
            if (grpc_server_adopt(server, client) != 0)
                log_line(LOG_LINE_DEBUG, "grpc: a connection was not taken");
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno != EAGAIN) {
            log_line(LOG_LINE_WARNING, "grpc: accept: %s", strerror(errno));
            /* The connection stays in the queue, and the socket readable: not to spin. */
            event_del(server->acceptable);
            event_add(server->accept_again, &again);
        }
        return;
    }
}

static void stop_listening(struct grpc_server *server)
{
    if (server->acceptable)
        event_free(server->acceptable);
    if (server->accept_again)
        event_free(server->accept_again);
    if (server->listener >= 0)
        close(server->listener);
    server->acceptable = NULL;
    server->accept_again = NULL;
    server->listener = -1;
}

int grpc_server_listen(struct grpc_server *server, int fd, struct error *error)
{
    stop_listening(server);
    if (fd < 0)
        return 0;
    server->acceptable = event_new(server->base, fd, EV_READ | EV_PERSIST, on_acceptable, server);
    server->accept_again = event_new(server->base, -1, 0, on_accept_again, server);
    server->listener = fd;
    if (!server->acceptable || !server->accept_again || event_add(server->acceptable, NULL) != 0) {
        stop_listening(server);
        return error_set(error, ENOMEM, "no memory to listen");
    }
    return 0;
}

static void set_defaults(struct grpc_server_options *options)
{
    if (!options->request_bytes)
        options->request_bytes = GRPC_FRAME_MESSAGE_BYTES;
    if (!options->requests_bytes)
        options->requests_bytes = REQUESTS_BYTES;
    if (!options->answer_bytes)
        options->answer_bytes = ANSWER_BYTES;
    if (!options->connections)
        options->connections = CONNECTIONS;
    if (!options->streams)
        options->streams = STREAMS;
    if (!options->calls)
        options->calls = CALLS;
    if (!options->request_ms)
        options->request_ms = REQUEST_MS;
    if (!options->idle_ms)
        options->idle_ms = IDLE_MS;
}

struct grpc_server *grpc_server_create(struct event_base *base, const struct grpc_method *methods,
    size_t count, void *context, const struct grpc_server_options *options)
{
    struct grpc_server *server = calloc(1, sizeof(*server));
    if (!server)
        return NULL;
    server->base = base;
    server->context = context;
    server->listener = -1;
    if (options)
        server->options = *options;
    set_defaults(&server->options);
    TAILQ_INIT(&server->connections);
    LIST_INIT(&server->calls);
    server->methods = calloc(count ? count : 1, sizeof(*methods));
    server->sweep = event_new(base, -1, 0, on_sweep, server);
    if (!server->methods || !server->sweep ||
        nghttp2_session_callbacks_new(&server->callbacks) != 0 ||
        nghttp2_option_new(&server->session_options) != 0) {
        grpc_server_destroy(server);
        return NULL;
    }
    memcpy(server->methods, methods, count * sizeof(*methods));
    server->method_count = count;
    grpc_session_set_callbacks(server->callbacks);
    nghttp2_option_set_no_http_messaging(server->session_options, 1);
    nghttp2_option_set_no_closed_streams(server->session_options, 1);
    return server;
}

void grpc_server_destroy(struct grpc_server *server)
{
    if (!server)
        return;
    stop_listening(server);
    struct grpc_connection *connection = TAILQ_FIRST(&server->connections), *next;
    for (; connection; connection = next) {
        next = TAILQ_NEXT(connection, entry);
        dismiss_connection(connection, NGHTTP2_NO_ERROR);
    }
    for (struct grpc_call *call = LIST_FIRST(&server->calls); call; call = LIST_NEXT(call, all))
        call->server = NULL;
    if (server->sweep)
        event_free(server->sweep);
    nghttp2_session_callbacks_del(server->callbacks);
    nghttp2_option_del(server->session_options);
    free(server->methods);
    free(server);
}

unsigned grpc_server_connections(const struct grpc_server *server)
{
    return server->connection_count;
}
