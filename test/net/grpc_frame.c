/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's frames and the texts of its headers. */
#include "net/grpc_frame.h"
#include "net/grpc_status.h"
#include "net/message.h"

#include "check.h"

static int feed(struct grpc_frame *frame, const void *data, size_t size, size_t *ret_used)
{
    *ret_used = 0;
    return grpc_frame_feed(frame, data, size, ret_used);
}

TEST("a frame is made and read again, in pieces of each size")
{
    uint8_t message[300];
    size_t bytes, used;
    for (size_t i = 0; i < sizeof(message); i++)
        message[i] = (uint8_t)i;
    uint8_t *made = grpc_frame_make(message, sizeof(message), &bytes);
    REQUIRE(made && bytes == sizeof(message) + 5);
    CHECK(!memcmp(made, "\0\0\0\1\x2c", 5));
    for (size_t piece = 1; piece <= bytes; piece++) {
        struct grpc_frame frame;
        int result = 0;
        grpc_frame_init(&frame, sizeof(message));
        for (size_t at = 0; at < bytes; at += used) {
            CHECK_EQ(result, 0);
            result = feed(&frame, made + at, piece < bytes - at ? piece : bytes - at, &used);
            REQUIRE(result >= 0 && used > 0);
        }
        CHECK_EQ(result, 1);
        CHECK(frame.bytes == sizeof(message) && !memcmp(frame.message, message, frame.bytes));
        grpc_frame_finish(&frame);
    }
    free(made);
}

TEST("two messages in one piece are read one after the other, and an empty one is a message")
{
    struct grpc_frame frame;
    size_t used;
    grpc_frame_init(&frame, 10);
    CHECK(grpc_frame_between(&frame));
    CHECK_EQ(feed(&frame, "\0\0\0\0\0\0\0\0\0\2ab", 12, &used), 1);
    CHECK_EQ(used, 5);
    CHECK_EQ(frame.bytes, 0);
    CHECK(!grpc_frame_between(&frame));
    grpc_frame_next(&frame);
    CHECK(grpc_frame_between(&frame));
    CHECK_EQ(feed(&frame, "\0\0\0\0\2ab", 7, &used), 1);
    CHECK_EQ(used, 7);
    CHECK(frame.bytes == 2 && !memcmp(frame.message, "ab", 2));
    grpc_frame_finish(&frame);
}

TEST("a message that is too long, compressed or malformed is refused by its header")
{
    static const struct {
        const char *header;
        size_t bytes;
        int result;
    } cases[] = {{"\0\0\0\0\12", 5, 0}, {"\0\0\0\0\13", 5, -EMSGSIZE},
        {"\0\xff\xff\xff\xff", 5, -EMSGSIZE}, {"\1\0\0\0\1", 5, -ENOTSUP}, {"\2", 1, -EBADMSG},
        {"PRI", 3, -EBADMSG}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct grpc_frame frame;
        size_t used;
        grpc_frame_init(&frame, 10);
        CHECK_EQ(feed(&frame, cases[i].header, cases[i].bytes, &used), cases[i].result);
        grpc_frame_finish(&frame);
    }
}

TEST("a header that promises 4 MiB takes no memory for it")
{
    struct grpc_frame frame;
    size_t used;
    grpc_frame_init(&frame, GRPC_FRAME_MESSAGE_BYTES);
    CHECK_EQ(feed(&frame, "\0\0\x40\0\0x", 6, &used), 0);
    CHECK(frame.room <= 4096);
    CHECK_EQ(grpc_frame_promised(&frame), GRPC_FRAME_MESSAGE_BYTES);
    grpc_frame_finish(&frame);
}

TEST("a status message is encoded by percent signs, and decoded whatever it is")
{
    char text[GRPC_STATUS_ENCODED_BYTES], back[64], longer[3000];
    CHECK_EQ(grpc_status_encode("a b\n100%\xc3\xa4~", text), 19);
    CHECK_STR(text, "a b%0A100%25%C3%A4~");
    grpc_status_decode(text, strlen(text), back, sizeof(back));
    CHECK_STR(back, "a b\n100%\xc3\xa4~");
    grpc_status_decode("%", 1, back, sizeof(back));
    CHECK_STR(back, "%");
    grpc_status_decode("a%4", 3, back, sizeof(back));
    CHECK_STR(back, "a%4");
    grpc_status_decode("%zz%00%e4", 9, back, sizeof(back));
    CHECK_STR(back, "%zz?\xe4");
    grpc_status_decode("abcdef", 6, back, 4);
    CHECK_STR(back, "abc");
    memset(longer, '\n', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    CHECK_EQ(grpc_status_encode(longer, text), 3 * (GRPC_STATUS_MESSAGE_BYTES - 1));
}

TEST("a status is 0 to 16, anything else is unknown")
{
    CHECK_EQ(grpc_status_parse("0", 1), 0);
    CHECK_EQ(grpc_status_parse("16", 2), 16);
    CHECK_EQ(grpc_status_parse("17", 2), GRPC_UNKNOWN);
    CHECK_EQ(grpc_status_parse("", 0), GRPC_UNKNOWN);
    CHECK_EQ(grpc_status_parse("1x", 2), GRPC_UNKNOWN);
    CHECK_EQ(grpc_status_parse("100", 3), GRPC_UNKNOWN);
    CHECK_STR(grpc_status_name(14), "UNAVAILABLE");
    CHECK_STR(grpc_status_name(-1), "UNKNOWN");
}

TEST("a timeout is 1 to 8 digits and a unit")
{
    static const struct {
        const char *text;
        bool good;
        uint64_t ms;
    } cases[] = {{"1H", true, 3600000}, {"2M", true, 120000}, {"30S", true, 30000},
        {"15m", true, 15}, {"1001u", true, 2}, {"99999999n", true, 100}, {"0n", true, 0},
        {"99999999H", true, 359999996400000}, {"100000000S", false, 0}, {"S", false, 0},
        {"1", false, 0}, {"1s", false, 0}, {"-1S", false, 0}, {"", false, 0}, {"1 S", false, 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint64_t ms = 0;
        CHECK_EQ(grpc_status_timeout(cases[i].text, strlen(cases[i].text), &ms), cases[i].good);
        CHECK_EQ(ms, cases[i].ms);
    }
}

TEST("text is UTF-8 or it is not")
{
    static const char *const good[] = {"", "GPU-1", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    static const char *const bad[] = {"\x80", "\xc3", "\xc0\x80", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xff", "\xe2\x82", "a\xe2\x82z", "\xe0\x80\x80", "\xf0\x80\x80\x80"};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        CHECK(message_is_utf8(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        CHECK(!message_is_utf8(bad[i]));
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
