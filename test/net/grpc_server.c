/* SPDX-License-Identifier: Apache-2.0 */
/* The gRPC server and client against each other, over real sockets. */
#include "grpc_bed.h"

static struct grpc_client *client;

static void call(
    struct bed_end *end, const char *method, const void *request, size_t bytes, unsigned timeout_ms)
{
    struct error error;
    REQUIRE(grpc_client_call(
                client, method, request, bytes, timeout_ms, &bed_unary, end, NULL, &error) == 0);
}

static void begin(const struct grpc_server_options *options)
{
    bed_serve(options);
    client = grpc_client_create(base, path, 64 << 20);
    REQUIRE(client);
}

TEST("a unary call is answered")
{
    struct bed_end end = {0};
    begin(NULL);
    call(&end, "/t.T/Echo", "hello", 5, 1000);
    REQUIRE(bed_until(&end.done, 1, 2000));
    CHECK_EQ(end.status, GRPC_OK);
    CHECK(end.bytes == 5 && !memcmp(end.message, "hello", 5));
    memset(&end, 0, sizeof(end));
    call(&end, "/t.T/Echo", NULL, 0, 0);
    REQUIRE(bed_until(&end.done, 1, 2000));
    CHECK_EQ(end.status, GRPC_OK);
    CHECK_EQ(end.bytes, 0);
    bed_run(20);
    CHECK_EQ(grpc_server_connections(server), 0); /* the client keeps none without calls */
}

TEST("a status and its message come through, whatever bytes are in it")
{
    struct bed_end end = {0};
    begin(NULL);
    call(&end, "/t.T/Fail", "x", 1, 1000);
    REQUIRE(bed_until(&end.done, 1, 2000));
    CHECK_EQ(end.status, GRPC_NOT_FOUND);
    CHECK_STR(end.text, "no \"Pod\" with 100 %\nof it: \xc3\xa4");
    CHECK(!end.message);
}

TEST("an unknown method is unimplemented, and named")
{
    struct bed_end end = {0};
    begin(NULL);
    call(&end, "/t.T/Other", "x", 1, 1000);
    REQUIRE(bed_until(&end.done, 1, 2000));
    CHECK_EQ(end.status, GRPC_UNIMPLEMENTED);
    CHECK_STR(end.text, "unknown method /t.T/Other");
}

TEST("a request of 4 MiB is answered with as much; one byte more is refused by name")
{
    struct bed_end end = {0}, more = {0};
    size_t bytes = 4 << 20;
    uint8_t *request = malloc(bytes + 1);
    for (size_t i = 0; i <= bytes; i++)
        request[i] = (uint8_t)(i * 7 + i / 251);
    begin(NULL);
    call(&end, "/t.T/Echo", request, bytes, 10000);
    REQUIRE(bed_until(&end.done, 1, 10000));
    CHECK_EQ(end.status, GRPC_OK);
    CHECK(end.bytes == bytes && !memcmp(end.message, request, bytes));
    call(&more, "/t.T/Echo", request, bytes + 1, 10000);
    REQUIRE(bed_until(&more.done, 1, 10000));
    CHECK_EQ(more.status, GRPC_RESOURCE_EXHAUSTED);
    CHECK(strstr(more.text, "4194305") && strstr(more.text, "4194304"));
}

TEST("an answer that the client does not accept ends its call only")
{
    struct bed_end end = {0}, small = {0};
    uint8_t request[2000] = {0};
    bed_serve(NULL);
    client = grpc_client_create(base, path, 1000);
    call(&end, "/t.T/Echo", request, sizeof(request), 1000);
    call(&small, "/t.T/Echo", request, 1000, 1000);
    REQUIRE(bed_until(&end.done, 1, 2000) && bed_until(&small.done, 1, 2000));
    CHECK_EQ(end.status, GRPC_RESOURCE_EXHAUSTED);
    CHECK_EQ(small.status, GRPC_OK);
}

TEST("calls at the same time are answered in any order")
{
    static struct bed_end ends[64];
    begin(NULL);
    for (unsigned i = 0; i < 64; i++)
        call(&ends[i], i % 2 ? "/t.T/Hold" : "/t.T/Echo", &i, sizeof(i), 5000);
    REQUIRE(bed_until(&held_count, 32, 2000));
    bed_run(50);
    for (unsigned i = 0; i < 64; i += 2)
        CHECK(ends[i].done == 1 && *(unsigned *)ends[i].message == i);
    CHECK_EQ(ends[1].done, 0);
    for (unsigned i = held_count; i-- > 0;)
        grpc_call_reply(held[i], &i, sizeof(i));
    for (unsigned i = 0; i < 32; i++) {
        REQUIRE(bed_until(&ends[2 * i + 1].done, 1, 1000));
        CHECK_EQ(*(unsigned *)ends[2 * i + 1].message, i);
    }
}

TEST("a stream gets each message, and its end")
{
    struct bed_end end = {0};
    struct error error;
    begin(NULL);
    REQUIRE(grpc_client_call(client, "/t.T/Hold", "", 0, 0, &bed_stream, &end, NULL, &error) == 0);
    REQUIRE(bed_until(&held_count, 1, 1000));
    for (unsigned i = 1; i <= 5; i++) {
        CHECK_EQ(grpc_call_send(held[0], &i, sizeof(i)), 0);
        if (i < 4) /* the last two in one turn */
            REQUIRE(bed_until(&end.messages, i, 1000));
    }
    REQUIRE(bed_until(&end.messages, 5, 1000));
    CHECK_EQ(*(unsigned *)end.message, 5);
    CHECK_EQ(end.done, 0);
    grpc_call_finish(held[0], GRPC_ABORTED, "that was all");
    REQUIRE(bed_until(&end.done, 1, 1000));
    CHECK_EQ(end.status, GRPC_ABORTED);
    CHECK_STR(end.text, "that was all");
}

TEST("a stream that is cancelled is gone for the server, once")
{
    struct bed_end end = {0};
    struct error error;
    struct grpc_client_call *stream;
    begin(NULL);
    REQUIRE(
        grpc_client_call(client, "/t.T/Hold", "", 0, 0, &bed_stream, &end, &stream, &error) == 0);
    REQUIRE(bed_until(&held_count, 1, 1000));
    grpc_client_cancel(stream);
    REQUIRE(bed_until(&gone_count, 1, 1000));
    bed_run(20);
    CHECK_EQ(gone_count, 1);
    CHECK_EQ(end.done, 0);
}

TEST("a call whose peer has gone can still be answered, and is then nothing")
{
    struct bed_end end = {0};
    begin(NULL);
    call(&end, "/t.T/Hold", "", 0, 0);
    REQUIRE(bed_until(&held_count, 1, 1000));
    struct grpc_call *late = held[0];
    grpc_call_on_gone(late, NULL, NULL);
    grpc_client_destroy(client);
    bed_run(50);
    CHECK(grpc_call_gone(late));
    CHECK_EQ(grpc_call_send(late, "x", 1), -EPIPE);
    grpc_call_finish(late, GRPC_OK, NULL);
    client = grpc_client_create(base, path, 0);
    call(&end, "/t.T/Hold", "", 0, 0);
    REQUIRE(bed_until(&held_count, 2, 1000));
    grpc_call_on_gone(held[1], NULL, NULL);
    grpc_server_destroy(server);
    CHECK(grpc_call_gone(held[1]));
    grpc_call_reply(held[1], "x", 1);
    REQUIRE(bed_until(&end.done, 1, 1000));
    CHECK_EQ(end.status, GRPC_UNAVAILABLE);
}

TEST("a deadline ends a call on both sides")
{
    struct bed_end end = {0};
    begin(NULL);
    call(&end, "/t.T/Hold", "", 0, 100);
    REQUIRE(bed_until(&held_count, 1, 1000));
    REQUIRE(bed_until(&end.done, 1, 1000));
    CHECK_EQ(end.status, GRPC_DEADLINE_EXCEEDED);
    REQUIRE(bed_until(&gone_count, 1, 1000));
    bed_run(20);
    CHECK_EQ(grpc_server_connections(server), 0);
}

TEST("the server's own deadline is told to a client that has none of its own")
{
    struct bed_peer peer;
    begin(NULL);
    bed_peer_connect(&peer);
    bed_peer_send(
        &peer, BED_HEADERS("POST", "/t.T/Hold", BED_GRPC, "grpc-timeout", "50m"), "\0\0\0\0\0", 5);
    REQUIRE(bed_until(&peer.ended, 1, 1000));
    CHECK_STR(peer.grpc_status, "4");
    CHECK_EQ(gone_count, 1);
}

TEST("nobody there, or one that goes, is an error in one line")
{
    struct bed_end end = {0};
    struct error error = {0};
    begin(NULL);
    call(&end, "/t.T/Hold", "", 0, 0);
    REQUIRE(bed_until(&held_count, 1, 1000));
    grpc_server_destroy(server);
    REQUIRE(bed_until(&end.done, 1, 1000));
    CHECK_EQ(end.status, GRPC_UNAVAILABLE);
    CHECK(strstr(end.text, path));
    CHECK_EQ(grpc_client_call(client, "/t.T/Echo", "", 0, 0, &bed_unary, &end, NULL, &error),
        -ECONNREFUSED);
    CHECK(strstr(error.text, path));
    unlink(path);
    CHECK_EQ(
        grpc_client_call(client, "/t.T/Echo", "", 0, 0, &bed_unary, &end, NULL, &error), -ENOENT);
}

TEST("a slow reader of states gets the newest, and holds up no other")
{
    struct bed_peer slow;
    struct bed_end end = {0};
    size_t bytes = 3 << 20;
    uint8_t *state = calloc(1, bytes);
    begin(NULL);
    bed_peer_connect(&slow);
    bed_peer_send(&slow, BED_HEADERS("POST", "/t.T/Hold", BED_GRPC), "\0\0\0\0\0", 5);
    REQUIRE(bed_until(&held_count, 1, 1000));
    event_del(slow.socket.readable);
    for (unsigned i = 0; i < 50; i++) {
        CHECK_EQ(grpc_call_send_newest(held[0], state, bytes), 0);
        memset(&end, 0, sizeof(end));
        call(&end, "/t.T/Echo", "x", 1, 1000);
        CHECK(bed_until(&end.done, 1, 1000));
        CHECK_EQ(end.status, GRPC_OK);
    }
    CHECK_EQ(grpc_call_send_newest(held[0], "last", 4), 0);
    event_add(slow.socket.readable, NULL);
    bed_run(300);
    /* The one that it was in the middle of, and the newest. */
    CHECK_EQ(slow.bytes, bytes + 5 + 4 + 5);
}

TEST("answers that nobody reads are bounded, but for a single one")
{
    struct bed_peer slow;
    const struct grpc_server_options options = {.answer_bytes = 100000};
    size_t bytes = 1 << 20;
    uint8_t *state = calloc(1, bytes);
    begin(&options);
    bed_peer_connect(&slow);
    bed_peer_send(&slow, BED_HEADERS("POST", "/t.T/Hold", BED_GRPC), "\0\0\0\0\0", 5);
    REQUIRE(bed_until(&held_count, 1, 1000));
    event_del(slow.socket.readable);
    CHECK_EQ(grpc_call_send(held[0], state, bytes), 0);
    bed_run(20);
    CHECK_EQ(grpc_call_send(held[0], state, 10), -ENOBUFS);
    event_add(slow.socket.readable, NULL);
    bed_run(200);
    CHECK_EQ(slow.bytes, bytes + 5);
    CHECK_EQ(grpc_call_send(held[0], state, 10), 0);
}

TEST("a listening socket is changed without harm to connections")
{
    struct bed_end end = {0}, next = {0};
    struct unix_socket_file file;
    struct error error;
    int fd;
    begin(NULL);
    call(&end, "/t.T/Hold", "", 0, 0);
    REQUIRE(bed_until(&held_count, 1, 1000));
    unlink(path);
    REQUIRE(unix_socket_listen(path, &fd, &file, &error) == 0);
    REQUIRE(grpc_server_listen(server, fd, &error) == 0);
    struct grpc_client *other = grpc_client_create(base, path, 0);
    REQUIRE(grpc_client_call(other, "/t.T/Echo", "", 0, 0, &bed_unary, &next, NULL, &error) == 0);
    REQUIRE(bed_until(&next.done, 1, 1000));
    CHECK_EQ(next.status, GRPC_OK);
    grpc_call_reply(held[0], "x", 1);
    REQUIRE(bed_until(&end.done, 1, 1000));
    CHECK_EQ(end.status, GRPC_OK);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
