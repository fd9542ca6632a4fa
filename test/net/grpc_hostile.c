/* SPDX-License-Identifier: Apache-2.0 */
/* The gRPC server against clients that are wrong, slow or hostile. Each test ends with a good
 * client, which must be served as if nothing had been. */
#include "grpc_bed.h"

#include <sys/resource.h>

static const char one[] = "\0\0\0\0\1x"; /* a message of one byte */
#define ONE one, 6

static void others_are_served(void)
{
    struct bed_end end = {0};
    struct error error = {0};
    struct grpc_client *client = grpc_client_create(base, path, 0);
    if (!CHECK_EQ(
            grpc_client_call(client, "/t.T/Echo", "abc", 3, 2000, &bed_unary, &end, NULL, &error),
            0))
        return;
    CHECK(bed_until(&end.done, 1, 3000));
    CHECK_EQ(end.status, GRPC_OK);
    grpc_client_destroy(client);
}

static void ask(struct bed_peer *peer, const char *const *headers, const void *body, size_t bytes)
{
    unsigned ended = peer->ended;
    peer->status[0] = peer->grpc_status[0] = peer->message[0] = '\0';
    peer->code = 0;
    REQUIRE(bed_peer_send(peer, headers, body, bytes) > 0);
    CHECK(bed_until(&peer->ended, ended + 1, 2000));
}

TEST("any authority is accepted, also the socket's path")
{
    static const char *const authorities[] = {"localhost", "/var/lib/kubelet/device-plugins/a.sock",
        "%2Fvar%2Flib%2Fkubelet%2Fa.sock", "", "a b\x01", "[::1]:80"};
    struct bed_peer peer;
    bed_serve(NULL);
    bed_peer_connect(&peer);
    for (size_t i = 0; i < sizeof(authorities) / sizeof(*authorities); i++) {
        ask(&peer, BED_HEADERS("POST", "/t.T/Echo", BED_GRPC, ":authority", authorities[i]), ONE);
        CHECK_STR(peer.grpc_status, "0");
    }
    ask(&peer, BED_HEADERS("POST", "/t.T/Echo", BED_GRPC), ONE);
    CHECK_STR(peer.grpc_status, "0");
    CHECK_EQ(peer.closed, 0);
}

TEST("what is not gRPC gets the HTTP status for it")
{
    struct bed_peer peer;
    bed_serve(NULL);
    bed_peer_connect(&peer);
    ask(&peer, BED_HEADERS("GET", "/t.T/Echo", BED_GRPC), NULL, 0);
    CHECK_STR(peer.status, "405");
    ask(&peer, BED_HEADERS("POST", "/t.T/Echo", "content-type", "text/plain"), ONE);
    CHECK_STR(peer.status, "415");
    ask(&peer, BED_HEADERS("POST", "/t.T/Echo", "content-type", "application/grpcx"), ONE);
    CHECK_STR(peer.status, "415");
    ask(&peer, BED_HEADERS("POST", "/t.T/Echo", "te", "trailers"), ONE);
    CHECK_STR(peer.status, "415");
    ask(&peer, BED_HEADERS("POST", "/t.T/Echo", "content-type", "application/grpc+proto"), ONE);
    CHECK_STR(peer.grpc_status, "0");
    others_are_served();
}

TEST("a request without a path, or with two, is reset, and its connection goes on")
{
    static const char *const none[] = {":method", "POST", BED_GRPC, NULL, NULL};
    struct bed_peer peer;
    bed_serve(NULL);
    bed_peer_connect(&peer);
    ask(&peer, none, ONE);
    CHECK_EQ(peer.code, NGHTTP2_PROTOCOL_ERROR);
    ask(&peer, BED_HEADERS("POST", "/t.T/Echo", ":path", "/t.T/Fail", BED_GRPC), ONE);
    CHECK_EQ(peer.code, NGHTTP2_PROTOCOL_ERROR);
    ask(&peer, BED_HEADERS("POST", "/t.T/Echo", BED_GRPC), ONE);
    CHECK_STR(peer.grpc_status, "0");
}

TEST("requests that are malformed get a status that says how")
{
    static const struct {
        const char *body;
        size_t bytes;
        const char *status, *text;
    } cases[] = {{"", 0, "13", "without a whole message"},
        {"\0\0\0\0\2x", 6, "13", "without a whole message"},
        {"\0\0", 2, "13", "without a whole message"}, {"\1\0\0\0\1x", 6, "13", "compressed"},
        {"\7\0\0\0\1x", 6, "13", "begins with 7"},
        {"\0\0\0\0\1x\0\0\0\0\1x", 12, "13", "more than one"},
        {"\0\0\0\0\1xy", 7, "13", "more than one"}, {"\0\xff\xff\xff\xff", 5, "8", "4294967295"}};
    struct bed_peer peer;
    bed_serve(NULL);
    bed_peer_connect(&peer);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        ask(&peer, BED_HEADERS("POST", "/t.T/Echo", BED_GRPC), cases[i].body, cases[i].bytes);
        CHECK_STR(peer.grpc_status, cases[i].status);
        CHECK(strstr(peer.message, cases[i].text));
    }
    ask(&peer, BED_HEADERS("POST", "/t.T/Echo", BED_GRPC, "grpc-encoding", "gzip"), ONE);
    CHECK_STR(peer.grpc_status, "12");
    ask(&peer, BED_HEADERS("POST", "/t.T/Echo", BED_GRPC, "grpc-encoding", "identity"), ONE);
    CHECK_STR(peer.grpc_status, "0");
    ask(&peer, BED_HEADERS("POST", "/t.T/Echo", BED_GRPC, "grpc-timeout", "soon"), ONE);
    CHECK_STR(peer.grpc_status, "13");
    ask(&peer, BED_HEADERS("POST", "/t.T/%0a\"\xff", BED_GRPC), ONE);
    CHECK_STR(peer.grpc_status, "12");
    CHECK_EQ(peer.closed, 0);
}

TEST("a request that is too long is refused by its header, and need not be sent")
{
    struct bed_peer peer;
    bed_serve(NULL);
    bed_peer_connect(&peer);
    peer.body_stays_open = true;
    ask(&peer, BED_HEADERS("POST", "/t.T/Echo", BED_GRPC), "\0\0\x40\0\1", 5);
    CHECK_STR(peer.grpc_status, "8");
    CHECK_EQ(peer.code, NGHTTP2_NO_ERROR);
    others_are_served();
}

TEST("headers of more than 16 KiB reset their stream")
{
    struct bed_peer peer;
    char value[3000];
    const char *headers[40] = {
        ":method", "POST", ":scheme", "http", ":path", "/t.T/Echo", BED_GRPC};
    memset(value, 'v', sizeof(value));
    value[sizeof(value) - 1] = '\0';
    bed_serve(NULL);
    bed_peer_connect(&peer);
    for (size_t i = 0; i < 12; i += 2) {
        headers[10 + i] = "x";
        headers[11 + i] = value;
    }
    ask(&peer, headers, ONE);
    CHECK_EQ(peer.code, NGHTTP2_INTERNAL_ERROR);
    others_are_served();
}

TEST("connections that say nothing, and requests that stop, are ended")
{
    const struct grpc_server_options options = {.request_ms = 150, .idle_ms = 400};
    struct bed_peer silent, stopped, idle;
    struct error error;
    int mute;
    bed_serve(&options);
    REQUIRE(unix_socket_connect(path, &mute, &error) == 0);
    bed_peer_connect(&silent);
    bed_peer_connect(&stopped);
    bed_peer_connect(&idle);
    ask(&idle, BED_HEADERS("POST", "/t.T/Echo", BED_GRPC), ONE);
    stopped.body_stays_open = true;
    bed_peer_send(&stopped, BED_HEADERS("POST", "/t.T/Echo", BED_GRPC), "\0\0\0\0\2x", 6);
    CHECK(bed_until(&stopped.ended, 1, 1000));
    CHECK_STR(stopped.grpc_status, "4");
    CHECK(bed_until(&silent.closed, 1, 1000));
    CHECK_EQ(idle.closed, 0);
    CHECK(bed_until(&idle.closed, 1, 1500));
    bed_run(300);
    CHECK_EQ(grpc_server_connections(server), 0);
    others_are_served();
}

TEST("bytes that are no HTTP/2 end their connection only")
{
    static const char *const garbage[] = {"GET / HTTP/1.1\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "\0",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1"};
    struct bed_peer good;
    bed_serve(NULL);
    bed_peer_connect(&good);
    for (size_t i = 0; i < sizeof(garbage) / sizeof(*garbage); i++) {
        struct error error;
        char answer[4000];
        int fd;
        REQUIRE(unix_socket_connect(path, &fd, &error) == 0);
        size_t bytes = strlen(garbage[i]) ? strlen(garbage[i]) : 1;
        CHECK_EQ(write(fd, garbage[i], bytes), (ssize_t)bytes);
        bed_run(50);
        ssize_t got;
        while ((got = read(fd, answer, sizeof(answer))) > 0)
            ;
        CHECK_EQ(got, 0); /* closed, and not EAGAIN */
        close(fd);
    }
    ask(&good, BED_HEADERS("POST", "/t.T/Echo", BED_GRPC), ONE);
    CHECK_STR(good.grpc_status, "0");
}

TEST("of too many connections the longest idle one goes; those in use stay")
{
    const struct grpc_server_options options = {.connections = 4};
    struct bed_peer busy, idle[3], more, last;
    bed_serve(&options);
    bed_peer_connect(&busy);
    bed_peer_send(&busy, BED_HEADERS("POST", "/t.T/Hold", BED_GRPC), ONE);
    CHECK(bed_until(&held_count, 1, 1000));
    for (unsigned i = 0; i < 3; i++) {
        bed_peer_connect(&idle[i]);
        bed_run(20);
    }
    ask(&idle[0], BED_HEADERS("POST", "/t.T/Echo", BED_GRPC), ONE);
    bed_peer_connect(&more);
    CHECK(bed_until(&idle[1].closed, 1, 1000));
    CHECK(!idle[0].closed && !idle[2].closed && !busy.closed);
    struct bed_peer *const users[] = {&idle[0], &idle[2], &more};
    for (unsigned i = 0; i < 3; i++)
        bed_peer_send(users[i], BED_HEADERS("POST", "/t.T/Hold", BED_GRPC), ONE);
    CHECK(bed_until(&held_count, 4, 1000));
    bed_peer_connect(&last);
    CHECK(bed_until(&last.closed, 1, 1000));
    CHECK_EQ(grpc_server_connections(server), 4);
    grpc_call_reply(held[0], "x", 1);
    CHECK(bed_until(&busy.ended, 1, 1000));
    CHECK_STR(busy.grpc_status, "0");
}

TEST("calls that nobody has answered are bounded, also where the peer has reset them")
{
    const struct grpc_server_options options = {.calls = 10};
    struct bed_peer peer;
    bed_serve(&options);
    bed_peer_connect(&peer);
    for (unsigned i = 0; i < 10; i++) {
        int32_t stream = bed_peer_send(&peer, BED_HEADERS("POST", "/t.T/Hold", BED_GRPC), ONE);
        CHECK(bed_until(&held_count, i + 1, 1000));
        grpc_call_on_gone(held[i], NULL, NULL);
        nghttp2_submit_rst_stream(peer.socket.session, 0, stream, NGHTTP2_CANCEL);
        http2_socket_wake(&peer.socket);
    }
    bed_run(50);
    ask(&peer, BED_HEADERS("POST", "/t.T/Echo", BED_GRPC), ONE);
    CHECK_EQ(peer.code, NGHTTP2_REFUSED_STREAM);
    for (unsigned i = 0; i < 10; i++)
        grpc_call_finish(held[i], GRPC_OK, NULL);
    ask(&peer, BED_HEADERS("POST", "/t.T/Echo", BED_GRPC), ONE);
    CHECK_STR(peer.grpc_status, "0");
}

TEST("requests that come in together are bounded in memory")
{
    const struct grpc_server_options options = {.requests_bytes = 3 << 20};
    struct bed_peer peers[4];
    size_t bytes = 1 << 20;
    uint8_t *body = calloc(1, bytes + 5);
    bed_serve(&options);
    memcpy(body, "\0\0\x20\0\0", 5); /* 2 MiB, of which 1 comes */
    for (unsigned i = 0; i < 4; i++) {
        bed_peer_connect(&peers[i]);
        peers[i].body_stays_open = true;
        bed_peer_send(&peers[i], BED_HEADERS("POST", "/t.T/Echo", BED_GRPC), body, bytes);
        bed_run(100);
    }
    CHECK_STR(peers[3].grpc_status, "8");
    CHECK_EQ(peers[0].ended, 0);
    for (unsigned i = 0; i < 4; i++)
        http2_socket_finish(&peers[i].socket);
    bed_run(50);
    others_are_served();
}

/* 0 under a sanitizer, which keeps freed memory for a while. */
static long resident_kb(void)
{
    struct rusage usage;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0;
#endif
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

TEST("streams that are opened and reset at once end their connection, not the server")
{
    struct bed_peer peer;
    bed_serve(NULL);
    others_are_served();
    long before = resident_kb();
    bed_peer_connect(&peer);
    for (unsigned i = 0; i < 20000 && !peer.closed; i++) {
        int32_t stream = bed_peer_send(&peer, BED_HEADERS("POST", "/t.T/Echo", BED_GRPC), ONE);
        http2_socket_flush(&peer.socket); /* else it would be taken back before it is sent */
        if (stream > 0)
            nghttp2_submit_rst_stream(peer.socket.session, 0, stream, NGHTTP2_CANCEL);
        http2_socket_wake(&peer.socket);
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
    CHECK_EQ(peer.closed, 1);
    CHECK(resident_kb() - before < 20000);
    others_are_served();
}

/* Raw frames, without a session that would forbid it. */
static int raw_connect(void)
{
    static const char start[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    struct error error;
    int fd;
    REQUIRE(unix_socket_connect(path, &fd, &error) == 0);
    REQUIRE(write(fd, start, sizeof(start) - 1) == sizeof(start) - 1);
    bed_run(10);
    return fd;
}

/* Sends the frame again and again, and reads nothing; how often it went. */
static unsigned flood(int fd, const void *frame, size_t bytes)
{
    unsigned went = 0;
    for (unsigned i = 0; i < 200000; i++) {
        ssize_t wrote = send(fd, frame, bytes, MSG_NOSIGNAL);
        if (wrote < 0 && errno != EAGAIN)
            break;
        went += wrote > 0;
        if (wrote < 0 || i % 64 == 0)
            event_base_loop(base, EVLOOP_NONBLOCK);
        if (wrote < 0 && i % 8 == 0)
            others_are_served();
        if (wrote < 0 && i > 20000)
            break;
    }
    return went;
}

TEST("floods of pings and settings from a client that does not read are bounded")
{
    static const char ping[] = "\0\0\10\6\0\0\0\0\0abcdefgh", settings[] = "\0\0\0\4\0\0\0\0\0";
    static const char window[] = "\0\0\4\10\0\0\0\0\0\0\0\0\1",
                      priority[] = "\0\0\5\2\0\0\0\0\3\0\0\0\1\1";
    bed_serve(NULL);
    others_are_served();
    long before = resident_kb();
    CHECK(flood(raw_connect(), ping, 17) > 0);
    CHECK(flood(raw_connect(), settings, 9) > 0);
    CHECK(flood(raw_connect(), window, 13) > 0);
    CHECK(flood(raw_connect(), priority, 14) > 0);
    CHECK(resident_kb() - before < 20000);
    others_are_served();
}

TEST("a client that does not read its answers is ended, and others are served meanwhile")
{
    const struct grpc_server_options options = {.request_ms = 300};
    struct bed_peer peer;
    size_t bytes = 1 << 20;
    uint8_t *answer = calloc(1, bytes);
    bed_serve(&options);
    bed_peer_connect(&peer);
    for (unsigned i = 0; i < 8; i++) {
        bed_peer_send(&peer, BED_HEADERS("POST", "/t.T/Hold", BED_GRPC), ONE);
        CHECK(bed_until(&held_count, i + 1, 1000));
    }
    event_del(peer.socket.readable);
    for (unsigned i = 0; i < 8; i++) {
        struct grpc_call *call = held[i];
        held[i] = NULL;
        grpc_call_reply(call, answer, bytes);
        others_are_served();
    }
    CHECK_EQ(gone_count, 0);
    bed_run(700);
    CHECK_EQ(grpc_server_connections(server), 0);
    others_are_served();
}

TEST("a server without free descriptors does not spin, and takes clients when it has some again")
{
    struct rusage before, after;
    struct rlimit limit = {40, 40};
    struct error error;
    int mute;
    bed_serve(NULL);
    REQUIRE(unix_socket_connect(path, &mute, &error) == 0);
    bed_run(20);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int spare = socket(AF_UNIX, SOCK_STREAM, 0), taken[64], count = 0;
    while ((taken[count] = dup(0)) >= 0)
        count++;
    close(spare);
    REQUIRE(unix_socket_connect(path, &mute, &error) == 0);
    getrusage(RUSAGE_SELF, &before);
    bed_run(500);
    getrusage(RUSAGE_SELF, &after);
    long us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 + after.ru_utime.tv_usec -
              before.ru_utime.tv_usec + (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000 +
              after.ru_stime.tv_usec - before.ru_stime.tv_usec;
    CHECK(us < 100000);
    CHECK_EQ(grpc_server_connections(server), 1);
    while (count)
        close(taken[--count]);
    bed_run(1200);
    CHECK_EQ(grpc_server_connections(server), 2);
    others_are_served();
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
