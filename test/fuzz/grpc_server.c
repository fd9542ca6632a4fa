/* SPDX-License-Identifier: Apache-2.0 */
/* The gRPC server's byte stream, on a real socket: the first byte's lowest bit says whether the
 * client's preface is put before the others, the next ones what the server's methods do. Whatever
 * comes, the server answers or closes, keeps nothing of it, and serves the next client. */
#include "net/grpc_server.h"

#include "net/grpc_server_parts.h"
#include "net/log_line.h"

#include "fuzz.h"

#include <event2/event.h>
#include <fcntl.h>
#include <sys/socket.h>

#define TURNS_MAX 4000
#define HELD 16

static const uint8_t preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
static struct grpc_call *held[HELD];
static unsigned held_count;

static void on_gone(struct grpc_call *call, void *argument)
{
    (void)argument;
    for (unsigned i = 0; i < held_count; i++)
        if (held[i] == call)
            held[i] = held[--held_count];
    grpc_call_finish(call, GRPC_CANCELLED, NULL);
}

static void serve(struct grpc_call *call, const uint8_t *request, size_t bytes, void *context)
{
    unsigned how = *(const unsigned *)context;
    for (size_t i = 0; i < bytes; i++) /* all of it is there */
        how += request[i] & 0;
    if (how & 2 && held_count < HELD) {
        held[held_count++] = call;
        grpc_call_on_gone(call, on_gone, NULL);
        FUZZ_CHECK(grpc_call_send(call, "first", 5) == 0);
    } else if (how & 4) {
        grpc_call_finish(call, GRPC_INTERNAL, "refused\n");
    } else {
        grpc_call_reply(call, request, bytes);
    }
}

static void drain(int fd)
{
    uint8_t bytes[65536];
    while (read(fd, bytes, sizeof(bytes)) > 0)
        ;
}

static void send_all(struct event_base *base, int fd, const uint8_t *data, size_t size)
{
    for (unsigned turn = 0; size && turn < TURNS_MAX; turn++) {
        ssize_t wrote = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (wrote < 0 && errno != EAGAIN)
            return;
        data += wrote > 0 ? wrote : 0;
        size -= wrote > 0 ? (size_t)wrote : 0;
        event_base_loop(base, EVLOOP_NONBLOCK);
        drain(fd);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct grpc_server_options options = {
        .request_bytes = 4000, .requests_bytes = 8000, .calls = 32, .streams = 16};
    static const struct grpc_method methods[] = {{"/a/B", serve}, {"/t.T/Echo", serve}};
    unsigned how = size ? data[0] : 0;
    int ends[2];
    log_line_set_level(LOG_LINE_ERROR);
    held_count = 0;
    struct event_base *base = event_base_new();
    struct grpc_server *server = grpc_server_create(base, methods, 2, &how, &options);
    FUZZ_CHECK(base && server && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends));
    FUZZ_CHECK(grpc_server_adopt(server, ends[0]) == 0);
    if (how & 1)
        send_all(base, ends[1], preface, sizeof(preface) - 1);
    if (size)
        send_all(base, ends[1], data + 1, size - 1);
    for (unsigned i = 0; i < 4; i++) {
        event_base_loop(base, EVLOOP_NONBLOCK);
        drain(ends[1]);
    }
    while (held_count && how & 8)
        grpc_call_reply(held[--held_count], "last", 4);
    event_base_loop(base, EVLOOP_NONBLOCK);
    close(ends[1]);
    for (unsigned i = 0; i < 8; i++)
        event_base_loop(base, EVLOOP_NONBLOCK);
    FUZZ_CHECK(grpc_server_connections(server) == 0);
    FUZZ_CHECK(server->call_count == 0 && server->requests_bytes == 0 && held_count == 0);
    grpc_server_destroy(server);
    event_base_free(base);
    return 0;
}
