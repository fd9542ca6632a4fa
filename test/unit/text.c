/* SPDX-License-Identifier: Apache-2.0 */
/* Text of others in a line of ours. */
#include "base/text.h"

#include "check.h"

static const char *escaped(const char *text)
{
    static char target[64];
    memset(target, '#', sizeof(target));
    size_t length = text_escape(target, sizeof(target), text, strlen(text));
    CHECK_EQ(strlen(target), length);
    return target;
}

TEST("what can be shown is left as it is")
{
    CHECK_STR(escaped(""), "");
    CHECK_STR(escaped("2GiB, \"50 %\" \\ ~"), "2GiB, \"50 %\" \\ ~");
    CHECK_STR(escaped("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"),
        "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
}

TEST("controls are written as escapes")
{
    CHECK_STR(escaped("a\nb\r\tc"), "a\\nb\\r\\tc");
    CHECK_STR(escaped("\x1b[31m\x7f\x01"), "\\x1b[31m\\x7f\\x01");
    CHECK_STR(escaped("\xc2\x9b"
                      "31m"),
        "\\xc2\\x9b31m"); /* the 8-bit form of ESC [ */
}

TEST("bytes that are no well-formed UTF-8 are written as escapes")
{
    CHECK_STR(escaped("\x80x\xff"), "\\x80x\\xff");
    CHECK_STR(escaped("\xc3"), "\\xc3");
    CHECK_STR(escaped("\xe2\x82z"), "\\xe2\\x82z");
    CHECK_STR(escaped("\xc0\x8a"), "\\xc0\\x8a"); /* an overlong newline */
    CHECK_STR(escaped("\xe0\x80\x8a"), "\\xe0\\x80\\x8a");
    CHECK_STR(escaped("\xed\xa0\x80"), "\\xed\\xa0\\x80"); /* half a surrogate pair */
    CHECK_STR(escaped("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST("what does not fit whole is left out")
{
    char target[6];
    CHECK_EQ(text_escape(target, sizeof(target), "abcdefgh", 8), 5);
    CHECK_STR(target, "abcde");
    CHECK_EQ(text_escape(target, sizeof(target), "abc\x01", 4), 3);
    CHECK_STR(target, "abc");
    CHECK_EQ(text_escape(target, sizeof(target), "abcd\xc3\xa9", 6), 4);
    CHECK_STR(target, "abcd");
    CHECK_EQ(text_escape(target, 1, "abc", 3), 0);
    CHECK_STR(target, "");
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
