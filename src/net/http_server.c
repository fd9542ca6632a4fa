/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http_server.h"

#include "base/clock.h"
#include "net/http_address.h"
#include "net/tls_server.h"

#include <errno.h>
#include <event2/event.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS 1000000u
#define NEVER UINT64_MAX
/* Of one connection's headers and buffers. */
#define CONNECTION_MEMORY_BYTES (size_t)16384
#define BACKLOG 128

struct route {
    SLIST_ENTRY(route) entry;
    char *method, *path;
    void (*handler)(
        void *context, struct http_exchange *exchange, const struct http_server_request *request);
    void *context;
};

/* A connection, from its acceptance on. */
struct peer {
    TAILQ_ENTRY(peer) entry;
    struct http_server *server;
    int fd;
    uint64_t deadline_ns; /* at which it is cut */
};

enum exchange_state {
    EXCHANGE_RECEIVING,
    EXCHANGE_HANDLING,  /* in the handler's call */
    EXCHANGE_SUSPENDED, /* the handler has returned without an answer */
    EXCHANGE_ANSWERED,
};

struct http_exchange {
    LIST_ENTRY(http_exchange) entry;   /* of those that are suspended */
    TAILQ_ENTRY(http_exchange) coming; /* of those whose body comes, the oldest one first */
    struct http_server *server;
    struct MHD_Connection *connection;
    struct peer *peer;
    enum exchange_state state;
    const struct route *route;
    char *body;
    size_t bytes, room;
    bool is_cut;                   /* for others' bodies */
    struct MHD_Response *response; /* NULL once answered: no memory, or the server ends */
    unsigned status;
};

struct http_server {
    struct http_server_options options;
    struct event_base *base;
    struct MHD_Daemon *daemon;
    struct event *ready, *timer;
    struct tls_server *tls;
    unsigned port;
    bool one_has_ended;
    SLIST_HEAD(, route) routes;
    TAILQ_HEAD(, peer) peers;
    LIST_HEAD(, http_exchange) suspended;
    TAILQ_HEAD(, http_exchange) coming;
    size_t bodies_bytes; /* of all exchanges */
};

/* GnuTLS gives its callback no context; all handshakes are made in run(). */
static _Thread_local struct http_server *running;

static void set_deadline(struct peer *peer, unsigned wait_ms)
{
    peer->deadline_ns = clock_now_ns() + (uint64_t)wait_ms * MS;
}

/* Cuts those whose time is over; returns the next deadline. libmicrohttpd finds them ended. */
static uint64_t cut_late(struct http_server *server)
{
    uint64_t now = clock_now_ns(), next = NEVER;
    struct peer *peer;
    TAILQ_FOREACH(peer, &server->peers, entry)
    {
        if (peer->deadline_ns <= now) {
            shutdown(peer->fd, SHUT_RDWR);
            peer->deadline_ns = NEVER;
        }
        next = peer->deadline_ns < next ? peer->deadline_ns : next;
    }
    return next;
}

/* All work of libmicrohttpd's, and when to come again. */
static void run(struct http_server *server)
{
    MHD_UNSIGNED_LONG_LONG wait_ms;
    running = server;
    /* At its limit libmicrohttpd looks at no new connection until a run after one has ended. */
    do {
        server->one_has_ended = false;
        MHD_run(server->daemon);
    } while (server->one_has_ended);
    running = NULL;
    uint64_t now = clock_now_ns(), next = cut_late(server);
    if (MHD_get_timeout(server->daemon, &wait_ms) == MHD_YES && now + wait_ms * MS < next)
        next = now + wait_ms * MS;
    if (next == NEVER) {
        event_del(server->timer);
        return;
    }
    uint64_t wait_us = next > now ? (next - now) / 1000 + 1 : 0;
    struct timeval wait = {(time_t)(wait_us / 1000000), (suseconds_t)(wait_us % 1000000)};
    event_add(server->timer, &wait);
}

static void on_event(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    run(context);
}

static int retrieve(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
    gnutls_pcert_st **chain, unsigned *length, gnutls_ocsp_data_st **ocsp, unsigned *ocsp_length,
    gnutls_privkey_t *key, unsigned *flags)
{
    (void)session, (void)info;
    *ocsp = NULL;
    *ocsp_length = 0;
    *flags = GNUTLS_CERT_RETR_DEINIT_ALL;
    return running ? tls_server_retrieve(running->tls, chain, length, key)
                   : GNUTLS_E_INTERNAL_ERROR;
}

static void on_connection(void *context, struct MHD_Connection *connection, void **socket_context,
    enum MHD_ConnectionNotificationCode code)
{
    struct http_server *server = context;
    struct peer *peer = *socket_context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        server->one_has_ended = true;
        if (peer)
            TAILQ_REMOVE(&server->peers, peer, entry);
        free(peer);
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    peer = info ? calloc(1, sizeof(*peer)) : NULL;
    if (info && !peer)
        shutdown(info->connect_fd, SHUT_RDWR);
    if (!peer)
        return;
    peer->server = server;
    peer->fd = info->connect_fd;
    set_deadline(peer, server->options.receive_ms);
    TAILQ_INSERT_TAIL(&server->peers, peer, entry);
    *socket_context = peer;
}

static struct peer *peer_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* A request line has come: from now on the rest must come in time. */
static void *on_line(void *context, const char *uri, struct MHD_Connection *connection)
{
    const struct http_server *server = context;
    struct peer *peer = peer_of(connection);
    (void)uri;
    if (peer)
        set_deadline(peer, server->options.receive_ms);
    return NULL;
}

static void free_body(struct http_exchange *exchange)
{
    exchange->server->bodies_bytes -= exchange->room;
    free(exchange->body);
    exchange->body = NULL;
    exchange->bytes = exchange->room = 0;
}

static void on_completed(void *context, struct MHD_Connection *connection, void **exchange_context,
    enum MHD_RequestTerminationCode code)
{
    const struct http_server *server = context;
    struct http_exchange *exchange = *exchange_context;
    struct peer *peer = peer_of(connection);
    (void)code;
    if (peer)
        set_deadline(peer, server->options.idle_ms);
    if (!exchange)
        return;
    if (exchange->response)
        MHD_destroy_response(exchange->response);
    if (exchange->state == EXCHANGE_RECEIVING)
        TAILQ_REMOVE(&exchange->server->coming, exchange, coming);
    free_body(exchange);
    free(exchange);
    *exchange_context = NULL;
}

static enum MHD_Result send_text(
    struct MHD_Connection *connection, unsigned status, const char *text)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; charset=utf-8");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

/* The route of this path; *ret_status says why there is none. */
static const struct route *find_route(
    const struct http_server *server, const char *method, const char *path, unsigned *ret_status)
{
    const struct route *route;
    *ret_status = MHD_HTTP_NOT_FOUND;
    if (!strcmp(method, "HEAD"))
        method = "GET";
    SLIST_FOREACH(route, &server->routes, entry)
    {
        if (strcmp(route->path, path) != 0)
            continue;
        if (!strcmp(route->method, method))
            return route;
        *ret_status = MHD_HTTP_METHOD_NOT_ALLOWED;
    }
    return NULL;
}

static bool is_too_large(const struct http_server *server, struct MHD_Connection *connection)
{
    const char *text =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    /* libmicrohttpd has checked that it is a number. */
    return text && strtoull(text, NULL, 10) > server->options.request_bytes_max;
}

/* The head has come. */
static enum MHD_Result begin(struct http_server *server, struct MHD_Connection *connection,
    const char *method, const char *path, void **exchange_context)
{
    unsigned status;
    const struct route *route = find_route(server, method, path, &status);
    if (!route)
        return send_text(connection, status,
            status == MHD_HTTP_NOT_FOUND ? "not found\n" : "method not allowed\n");
    if (is_too_large(server, connection))
        return send_text(
            connection, MHD_HTTP_CONTENT_TOO_LARGE, "the request's body is too large\n");
    struct http_exchange *exchange = calloc(1, sizeof(*exchange));
    if (!exchange)
        return MHD_NO;
    exchange->server = server;
    exchange->connection = connection;
    exchange->peer = peer_of(connection);
    exchange->route = route;
    TAILQ_INSERT_TAIL(&server->coming, exchange, coming);
    *exchange_context = exchange;
    return MHD_YES;
}

/* Within the budget of all bodies: those that take longest give way, as one that means well has
 * sent its body in no time. */
static bool make_budget(struct http_exchange *exchange, size_t bytes)
{
    struct http_server *server = exchange->server;
    const size_t most = server->options.bodies_bytes_max;
    struct http_exchange *other = TAILQ_FIRST(&server->coming);
    for (; bytes > most - server->bodies_bytes && other; other = TAILQ_NEXT(other, coming)) {
        if (other == exchange || !other->room || !other->peer)
            continue;
        free_body(other);
        other->is_cut = true;
        shutdown(other->peer->fd, SHUT_RDWR);
        other->peer->deadline_ns = NEVER;
    }
    return bytes <= most - server->bodies_bytes;
}

static bool grow(struct http_exchange *exchange, size_t bytes)
{
    const size_t most = exchange->server->options.request_bytes_max + 1;
    size_t room = exchange->room ? exchange->room : 1024;
    while (room <= bytes)
        room *= 2;
    room = room < most ? room : most;
    if (!make_budget(exchange, room - exchange->room))
        return false;
    char *body = realloc(exchange->body, room);
    if (!body)
        return false;
    exchange->server->bodies_bytes += room - exchange->room;
    exchange->body = body;
    exchange->room = room;
    return true;
}

static bool keep(struct http_exchange *exchange, const char *data, size_t bytes)
{
    if (exchange->is_cut || bytes > exchange->server->options.request_bytes_max - exchange->bytes)
        return false;
    if (exchange->bytes + bytes >= exchange->room && !grow(exchange, exchange->bytes + bytes))
        return false;
    memcpy(exchange->body + exchange->bytes, data, bytes);
    exchange->bytes += bytes;
    exchange->body[exchange->bytes] = 0;
    return true;
}

static enum MHD_Result send_answer(struct http_exchange *exchange)
{
    if (!exchange->response)
        return MHD_NO;
    if (exchange->peer)
        set_deadline(exchange->peer, exchange->server->options.receive_ms);
    return MHD_queue_response(exchange->connection, exchange->status, exchange->response);
}

/* The body is complete. */
static enum MHD_Result handle(struct http_exchange *exchange, const char *method, const char *path)
{
    struct http_server_request request = {
        method, path, exchange->body ? exchange->body : "", exchange->bytes};
    if (exchange->peer)
        exchange->peer->deadline_ns = NEVER;
    exchange->state = EXCHANGE_HANDLING;
    TAILQ_REMOVE(&exchange->server->coming, exchange, coming);
    exchange->route->handler(exchange->route->context, exchange, &request);
    free_body(exchange);
    if (exchange->state == EXCHANGE_ANSWERED)
        return send_answer(exchange);
    exchange->state = EXCHANGE_SUSPENDED;
    LIST_INSERT_HEAD(&exchange->server->suspended, exchange, entry);
    MHD_suspend_connection(exchange->connection);
    return MHD_YES;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection,
    const char *path, const char *method, const char *version, const char *data, size_t *bytes,
    void **exchange_context)
{
    struct http_exchange *exchange = *exchange_context;
    (void)version;
    if (!exchange)
        return begin(context, connection, method, path, exchange_context);
    if (exchange->state == EXCHANGE_ANSWERED)
        return send_answer(exchange);
    if (*bytes) {
        bool kept = keep(exchange, data, *bytes);
        *bytes = 0;
        return kept ? MHD_YES : MHD_NO;
    }
    return exchange->is_cut ? MHD_NO : handle(exchange, method, path);
}

static void answer(struct http_exchange *exchange, unsigned status, const char *content_type,
    struct MHD_Response *response)
{
    bool resume = exchange->state == EXCHANGE_SUSPENDED;
    exchange->response = response;
    exchange->status = status;
    exchange->state = EXCHANGE_ANSWERED;
    if (response)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    if (resume) {
        LIST_REMOVE(exchange, entry);
        MHD_resume_connection(exchange->connection);
        event_active(exchange->server->timer, EV_TIMEOUT, 0);
    }
}

void http_exchange_answer(struct http_exchange *exchange, unsigned status, const char *content_type,
    const void *body, size_t bytes)
{
    answer(exchange, status, content_type,
        MHD_create_response_from_buffer(bytes, (void *)body, MHD_RESPMEM_MUST_COPY));
}

void http_exchange_answer_taking(struct http_exchange *exchange, unsigned status,
    const char *content_type, char *body, size_t bytes)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(bytes, body, MHD_RESPMEM_MUST_FREE);
    if (!response)
        free(body);
    answer(exchange, status, content_type, response);
}

/* A socket that listens, or -errno. A host without IPv6 has only IPv4's "every address". */
static int listen_at(struct sockaddr_storage *address, socklen_t bytes)
{
    const int yes = 1, no = 0;
    const int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
    bool every = address->ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
    int fd = socket(address->ss_family, type, 0);
    if (fd < 0 && errno == EAFNOSUPPORT && every) {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = v6->sin6_port};
        memcpy(address, &v4, sizeof(v4));
        bytes = sizeof(v4);
        every = false;
        fd = socket(AF_INET, type, 0);
    }
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (every)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    if (!bind(fd, (struct sockaddr *)address, bytes) && !listen(fd, BACKLOG))
        return fd;
    int failure = errno;
    close(fd);
    return -failure;
}

static unsigned port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address = {.v6 = {0}};
    socklen_t bytes = sizeof(address);
    if (getsockname(fd, &address.any, &bytes))
        return 0;
    return ntohs(address.any.sa_family == AF_INET ? address.v4.sin_port : address.v6.sin6_port);
}

static int open_socket(const char *text, struct error *error)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = 0;
    if (http_address_parse(text, &address, &bytes))
        return error_set(error, EINVAL,
            "the address \"%.100s\" is not understood; accepted: " HTTP_ADDRESS_ACCEPTED, text);
    int fd = listen_at(&address, bytes);
    if (fd < 0)
        return error_set(error, -fd, "cannot listen at %.100s: %s", text, strerror(-fd));
    return fd;
}

static struct MHD_Daemon *start_daemon(struct http_server *server, int fd)
{
    const struct http_server_options *options = &server->options;
    const unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME;
    struct MHD_OptionItem common[] = {
        {MHD_OPTION_LISTEN_SOCKET, fd, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, options->connections_max, NULL},
        {MHD_OPTION_PER_IP_CONNECTION_LIMIT, options->per_address_max, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY_BYTES, NULL},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, server},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, server},
        {MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)on_line, server},
        {MHD_OPTION_END, 0, NULL},
    };
    if (!server->tls)
        return MHD_start_daemon(
            flags, 0, NULL, NULL, on_request, server, MHD_OPTION_ARRAY, common, MHD_OPTION_END);
    /* The callback's option may not stand in an array (0.9.75). */
    return MHD_start_daemon(flags | MHD_USE_TLS, 0, NULL, NULL, on_request, server,
        MHD_OPTION_ARRAY, common, MHD_OPTION_HTTPS_CERT_CALLBACK2, retrieve,
        MHD_OPTION_HTTPS_PRIORITIES, "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2", MHD_OPTION_END);
}

static int start(struct http_server *server, struct error *error)
{
    const struct http_server_options *options = &server->options;
    if (options->certificate) {
        server->tls = tls_server_create(options->certificate, options->key, error);
        if (!server->tls)
            return -EINVAL;
    }
    int fd = open_socket(options->address, error);
    if (fd < 0)
        return fd;
    server->port = port_of(fd);
    server->daemon = start_daemon(server, fd);
    if (!server->daemon) {
        close(fd);
        return error_set(error, EIO, "libmicrohttpd does not start at %.100s", options->address);
    }
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    server->timer = evtimer_new(server->base, on_event, server);
    if (info)
        server->ready =
            event_new(server->base, info->epoll_fd, EV_READ | EV_PERSIST, on_event, server);
    if (!server->timer || !server->ready || event_add(server->ready, NULL))
        return error_set(error, ENOMEM, "no memory for an HTTP server");
    return 0;
}

struct http_server *http_server_create(
    struct event_base *base, const struct http_server_options *options, struct error *error)
{
    struct http_server *server = calloc(1, sizeof(*server));
    if (!server) {
        error_set(error, ENOMEM, "no memory for an HTTP server");
        return NULL;
    }
    SLIST_INIT(&server->routes);
    TAILQ_INIT(&server->peers);
    LIST_INIT(&server->suspended);
    TAILQ_INIT(&server->coming);
    server->base = base;
    server->options = *options;
    if (!server->options.connections_max)
        server->options.connections_max = 128;
    if (!server->options.request_bytes_max)
        server->options.request_bytes_max = 1 << 20;
    if (!server->options.bodies_bytes_max)
        server->options.bodies_bytes_max = 8 * server->options.request_bytes_max;
    if (server->options.bodies_bytes_max <= server->options.request_bytes_max)
        server->options.bodies_bytes_max = server->options.request_bytes_max + 1;
    if (!server->options.receive_ms)
        server->options.receive_ms = 10000;
    if (!server->options.idle_ms)
        server->options.idle_ms = 120000;
    int failure = !options->certificate != !options->key
                      ? error_set(error, EINVAL,
                            "a certificate needs its key, and a key its "
                            "certificate")
                      : start(server, error);
    server->options.address = server->options.certificate = server->options.key = NULL;
    if (failure) {
        http_server_destroy(server);
        return NULL;
    }
    return server;
}

void http_server_destroy(struct http_server *server)
{
    if (!server)
        return;
    while (!LIST_EMPTY(&server->suspended)) /* it may not be stopped over suspended ones */
        answer(LIST_FIRST(&server->suspended), 0, NULL, NULL);
    if (server->ready)
        event_free(server->ready);
    if (server->daemon)
        MHD_stop_daemon(server->daemon);
    if (server->timer)
        event_free(server->timer);
    while (!SLIST_EMPTY(&server->routes)) {
        struct route *route = SLIST_FIRST(&server->routes);
        SLIST_REMOVE_HEAD(&server->routes, entry);
        free(route->method);
        free(route->path);
        free(route);
    }
    tls_server_destroy(server->tls);
    free(server);
}

unsigned http_server_port(const struct http_server *server)
{
    return server->port;
}

int http_server_handle(struct http_server *server, const char *method, const char *path,
    void (*handler)(
        void *context, struct http_exchange *exchange, const struct http_server_request *request),
    void *context)
{
    struct route *route = calloc(1, sizeof(*route));
    if (!route)
        return -ENOMEM;
    route->method = strdup(method);
    route->path = strdup(path);
    route->handler = handler;
    route->context = context;
    if (!route->method || !route->path) {
        free(route->method);
        free(route->path);
        free(route);
        return -ENOMEM;
    }
    SLIST_INSERT_HEAD(&server->routes, route, entry);
    return 0;
}
