/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, numbers, truth and lists as people write them. */
#include "base/parse.h"

#include "check.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define UNTOUCHED 0x5a5a5a5aull

static uint64_t size_of(const char *text)
{
    uint64_t bytes = UNTOUCHED;
    if (!CHECK_EQ(parse_size(text, &bytes), 0))
        printf("# text: \"%s\"\n", text);
    return bytes;
}

/* Refused with `error`, the result untouched. */
static void check_refused(const char *text, int error)
{
    uint64_t bytes = UNTOUCHED;
    bool passed = CHECK_EQ(parse_size(text, &bytes), error);
    if (!CHECK_EQ(bytes, UNTOUCHED) || !passed)
        printf("# text: \"%.40s\"\n", text ? text : "(null)");
}

TEST("a plain number is bytes")
{
    CHECK_EQ(size_of("0"), 0);
    CHECK_EQ(size_of("1"), 1);
    CHECK_EQ(size_of("1073741824"), GIB);
    CHECK_EQ(size_of("007"), 7);
}

TEST("HAMi-core's sizes are taken in either case")
{
    CHECK_EQ(size_of("1g"), GIB);
    CHECK_EQ(size_of("1G"), GIB);
    CHECK_EQ(size_of("2048m"), 2 * GIB);
    CHECK_EQ(size_of("2048M"), 2 * GIB);
    CHECK_EQ(size_of("4k"), 4 * KIB);
    CHECK_EQ(size_of("4K"), 4 * KIB);
}

TEST("vgpu-controller's sizes are taken")
{
    CHECK_EQ(size_of("1000m"), 1000 * MIB);
    CHECK_EQ(size_of("1Gi"), GIB);
    CHECK_EQ(size_of("1.5g"), 1536 * MIB);
    CHECK_EQ(size_of("1t"), 1024 * GIB);
    CHECK_EQ(size_of("1T"), 1024 * GIB);
}

TEST("vgpu-controller's own variables may have any letters behind the unit, and nothing else")
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } taken[] = {{"1000mx", 1000 * MIB}, {"1gigabyte", GIB}, {"2Gib", 2 * GIB}, {"7b", 7},
        {" 1.5 gB ", 1536 * MIB}, {"5", 5}};
    static const char *const refused[] = {
        "1000x", "7bytes", "1g1", "1gx 1", "1g\xc3\xa9", "g", "-1g"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        CHECK_EQ(parse_size_loosely(taken[i].text, &bytes), 0);
        CHECK_EQ(bytes, taken[i].bytes);
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        CHECK_EQ(parse_size_loosely(refused[i], &bytes), -EINVAL);
}

TEST("a unit may be spelt out with i, b or ib")
{
    CHECK_EQ(size_of("2GiB"), 2 * GIB);
    CHECK_EQ(size_of("2gb"), 2 * GIB);
    CHECK_EQ(size_of("2 MiB"), 2 * MIB);
    CHECK_EQ(size_of("12b"), 12);
    CHECK_EQ(size_of("12B"), 12);
}

TEST("blanks around a size are ignored")
{
    CHECK_EQ(size_of("  1g"), GIB);
    CHECK_EQ(size_of("1g \t\r\n"), GIB);
    CHECK_EQ(size_of("\t1 g "), GIB);
}

TEST("a size with a fraction is taken, rounded down to a byte")
{
    CHECK_EQ(size_of("0.5g"), 512 * MIB);
    CHECK_EQ(size_of("1.5"), 1);
    CHECK_EQ(size_of("1.9"), 1);
    CHECK_EQ(size_of("1.25k"), 1280);
    CHECK_EQ(size_of("0.000000001g"), 1);
    CHECK_EQ(size_of("1.00000000000000000000000000000000000001g"), GIB);
    CHECK_EQ(size_of("1.99999999999999999999999999999999999999k"), 2047);
}

TEST("what is no size is refused")
{
    static const char *const texts[] = {"", " ", "g", "-1", "-1g", "+1g", ".5g", "1.", "1.g",
        "1..5g", "1.5.5g", "1,5g", "abc", "1x", "1gx", "1gg", "1ibi", "1i", "1bb", "1g 1g", "0x10",
        "1e9", "nan", "inf", "unlimited", "\xc2\xb2g", "1p", "1g;", "--", "1 000"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        check_refused(texts[i], -EINVAL);
    check_refused(NULL, -EINVAL);
}

TEST("a size above 2^63-1 is out of range, whatever its unit")
{
    CHECK_EQ(size_of("9223372036854775807"), INT64_MAX);
    check_refused("9223372036854775808", -ERANGE);
    check_refused("18446744073709551615", -ERANGE);
    check_refused("18446744073709551616", -ERANGE);
    check_refused("18446744073709551626", -ERANGE);
    check_refused("99999999999999999999999999999999999999999999999999", -ERANGE);
    CHECK_EQ(size_of("9007199254740991k"), INT64_MAX - 1023);
    check_refused("9007199254740992k", -ERANGE);
    CHECK_EQ(size_of("8388607t"), INT64_MAX - ((1ll << 40) - 1));
    check_refused("8388608t", -ERANGE);
    check_refused("18446744073709551617t", -ERANGE);
    check_refused("16777217t", -ERANGE);
}

TEST("less than a byte is no size, as 0 means no limit")
{
    uint64_t bytes;
    CHECK_EQ(parse_size("0.5", &bytes), -EINVAL);
    CHECK_EQ(parse_size("0.0001k", &bytes), -EINVAL);
    CHECK_EQ(parse_size("0.0000000001g", &bytes), -EINVAL);
    CHECK_EQ(parse_size_loosely("0.9", &bytes), -EINVAL);
    CHECK_EQ(size_of("0.0"), 0);
    CHECK_EQ(size_of("0g"), 0);
    CHECK_EQ(size_of("0.001k"), 1);
}

TEST("a fraction at the upper boundary does not overflow")
{
    uint64_t bytes = size_of("8388607.999999999t");
    CHECK(bytes <= INT64_MAX);
    CHECK(bytes > INT64_MAX - (1ll << 40));
    CHECK(size_of("9007199254740991.999999999k") <= INT64_MAX);
}

TEST("a text of a megabyte of digits or blanks is judged, not copied")
{
    char *text = malloc(MIB);
    REQUIRE(text);
    memset(text, '9', MIB - 1);
    text[MIB - 1] = '\0';
    check_refused(text, -ERANGE);
    memset(text, '0', MIB - 3);
    memcpy(text + MIB - 3, "1k", 3);
    CHECK_EQ(size_of(text), KIB);
    memset(text, ' ', MIB - 3);
    CHECK_EQ(size_of(text), KIB);
    free(text);
}

TEST("a number is whole, not negative, and at most what is accepted")
{
    uint64_t number = UNTOUCHED;
    CHECK_EQ(parse_number(" 42 ", 100, &number), 0);
    CHECK_EQ(number, 42);
    CHECK_EQ(parse_number("100", 100, &number), 0);
    CHECK_EQ(number, 100);
    CHECK_EQ(parse_number("18446744073709551605", UINT64_MAX, &number), 0);
    CHECK(number == 18446744073709551605ull);
    CHECK_EQ(parse_number("18446744073709551615", UINT64_MAX, &number), 0);
    CHECK(number == UINT64_MAX);
    number = UNTOUCHED;
    CHECK_EQ(parse_number("101", 100, &number), -ERANGE);
    CHECK_EQ(parse_number("18446744073709551616", UINT64_MAX, &number), -ERANGE);
    CHECK_EQ(parse_number("-1", 100, &number), -EINVAL);
    CHECK_EQ(parse_number("4.2", 100, &number), -EINVAL);
    CHECK_EQ(parse_number("42%", 100, &number), -EINVAL);
    CHECK_EQ(parse_number("", 100, &number), -EINVAL);
    CHECK_EQ(parse_number(NULL, 100, &number), -EINVAL);
    CHECK_EQ(number, UNTOUCHED);
}

TEST("truth is 1, true, on or yes in any case, and nothing else")
{
    CHECK(parse_true("1") && parse_true("true") && parse_true("TRUE") && parse_true("On"));
    CHECK(parse_true("yes"));
    CHECK(!parse_true("0") && !parse_true("") && !parse_true("2") && !parse_true("truer"));
    CHECK(!parse_true(NULL) && !parse_true("off"));
}

TEST("a list yields its items without their blanks")
{
    const char *list = " GPU-a , 1,,GPU-b\t";
    char item[16];
    CHECK(parse_list_next(&list, item, sizeof(item)));
    CHECK_STR(item, "GPU-a");
    CHECK(parse_list_next(&list, item, sizeof(item)));
    CHECK_STR(item, "1");
    CHECK(parse_list_next(&list, item, sizeof(item)));
    CHECK_STR(item, "");
    CHECK(parse_list_next(&list, item, sizeof(item)));
    CHECK_STR(item, "GPU-b");
    CHECK(!parse_list_next(&list, item, sizeof(item)));
    CHECK(!parse_list_next(&list, item, sizeof(item)));
}

TEST("a carriage return after a list's item is a blank as it is elsewhere")
{
    const char *list = "GPU-a\r,GPU-b\r\n";
    char item[16];
    CHECK(parse_list_next(&list, item, sizeof(item)));
    CHECK_STR(item, "GPU-a");
    CHECK(parse_list_next(&list, item, sizeof(item)));
    CHECK_STR(item, "GPU-b");
}

TEST("a list's item that is too long is no item that parses, and the next one is whole")
{
    const char *list = "0123456789,ab";
    char item[5] = "xxxx";
    uint64_t bytes;
    CHECK(parse_list_next(&list, item, sizeof(item)));
    CHECK_STR(item, "0...");
    CHECK_EQ(parse_size(item, &bytes), -EINVAL);
    CHECK_EQ(parse_number(item, UINT64_MAX, &bytes), -EINVAL);
    CHECK(parse_list_next(&list, item, sizeof(item)));
    CHECK_STR(item, "ab");
    list = NULL;
    CHECK(!parse_list_next(&list, item, sizeof(item)));
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
