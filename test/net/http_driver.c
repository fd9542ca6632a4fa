/* SPDX-License-Identifier: Apache-2.0 */
/* http-driver ADDRESS [receive_ms=N] [idle_ms=N] [connections=N] [bytes=N] [CERTIFICATE KEY]: a
 * server for tests. It says its port, and ends at the end of stdin. GET /hello, POST /echo, GET
 * /big (32 MiB), GET /later (after 300 ms), GET /never. */
#include "net/http_server.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BIG_BYTES (32u << 20)

static struct event_base *base;

static void hello(
    void *context, struct http_exchange *exchange, const struct http_server_request *request)
{
    (void)context, (void)request;
    http_exchange_answer(exchange, 200, "text/plain", "hello\n", 6);
}

static void echo(
    void *context, struct http_exchange *exchange, const struct http_server_request *request)
{
    (void)context;
    http_exchange_answer(
        exchange, 201, "application/octet-stream", request->body, request->body_bytes);
}

static void big(
    void *context, struct http_exchange *exchange, const struct http_server_request *request)
{
    (void)context, (void)request;
    char *body = malloc(BIG_BYTES);
    if (body)
        memset(body, 'b', BIG_BYTES);
    http_exchange_answer_taking(exchange, 200, "text/plain", body, body ? BIG_BYTES : 0);
}

static void answer_late(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    http_exchange_answer(context, 200, "text/plain", "late\n", 5);
}

static void later(
    void *context, struct http_exchange *exchange, const struct http_server_request *request)
{
    const struct timeval wait = {0, 300000};
    (void)context, (void)request;
    event_base_once(base, -1, EV_TIMEOUT, answer_late, exchange, &wait);
}

static void never(
    void *context, struct http_exchange *exchange, const struct http_server_request *request)
{
    (void)context, (void)exchange, (void)request;
    printf("NEVER\n");
}

static void on_input(evutil_socket_t fd, short what, void *context)
{
    char text[64];
    (void)what, (void)context;
    if (read(fd, text, sizeof(text)) <= 0)
        event_base_loopbreak(base);
}

static void set_options(struct http_server_options *options, int argc, char **argv)
{
    options->address = argv[1];
    for (int i = 2; i < argc; i++) {
        const char *value = strchr(argv[i], '=');
        unsigned number = value ? (unsigned)atoi(value + 1) : 0;
        if (!strncmp(argv[i], "receive_ms=", 11))
            options->receive_ms = number;
        else if (!strncmp(argv[i], "idle_ms=", 8))
            options->idle_ms = number;
        else if (!strncmp(argv[i], "connections=", 12))
            options->connections_max = number;
        else if (!strncmp(argv[i], "bodies=", 7))
            options->bodies_bytes_max = number;
        else if (!strncmp(argv[i], "bytes=", 6))
            options->request_bytes_max = number;
        else if (!options->certificate)
            options->certificate = argv[i];
        else
            options->key = argv[i];
    }
}

int main(int argc, char **argv)
{
    struct error error = {0};
    struct http_server_options options = {0};
    if (argc < 2)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    base = event_base_new();
    set_options(&options, argc, argv);
    struct http_server *server = http_server_create(base, &options, &error);
    if (!server || http_server_handle(server, "GET", "/hello", hello, NULL) ||
        http_server_handle(server, "POST", "/echo", echo, NULL) ||
        http_server_handle(server, "GET", "/big", big, NULL) ||
        http_server_handle(server, "GET", "/later", later, NULL) ||
        http_server_handle(server, "GET", "/never", never, NULL)) {
        printf("ERROR %s\n", error.text);
        event_base_free(base);
        return 1;
    }
    struct event *input = event_new(base, STDIN_FILENO, EV_READ | EV_PERSIST, on_input, NULL);
    event_add(input, NULL);
    printf("PORT %u\n", http_server_port(server));
    event_base_dispatch(base);
    http_server_destroy(server);
    event_free(input);
    event_base_free(base);
    printf("END\n");
    return 0;
}
