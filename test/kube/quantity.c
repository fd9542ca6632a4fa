/* SPDX-License-Identifier: Apache-2.0 */
/* Quantities against tables: the values are those that apimachinery's resource package gives. */
#include "kube/quantity.h"

#include "check.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

struct row {
    const char *text;
    int64_t value, milli;
};

static void check_rows(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct quantity quantity;
        int64_t value = -1, milli = -1;
        bool passed = CHECK_EQ(quantity_parse(rows[i].text, &quantity), 0) &&
                      CHECK_EQ(quantity_value(&quantity, &value), 0) &&
                      CHECK_EQ(quantity_milli(&quantity, &milli), 0);
        passed = passed && CHECK_EQ(value, rows[i].value) && CHECK_EQ(milli, rows[i].milli);
        if (!passed)
            printf("# \"%s\"\n", rows[i].text);
    }
    fflush(stdout);
}

TEST("each suffix has its factor")
{
    static const struct row rows[] = {
        {"0", 0, 0},
        {"5", 5, 5000},
        {"2000000000n", 2, 2000},
        {"3000000u", 3, 3000},
        {"4000m", 4, 4000},
        {"5k", 5000, 5000000},
        {"6M", 6000000, 6000000000},
        {"7G", 7000000000, 7000000000000},
        {"8T", 8000000000000, 8000000000000000},
        {"9P", 9000000000000000, 9000000000000000000},
        {"1Ki", 1024, 1024000},
        {"1Mi", 1048576, 1048576000},
        {"3Gi", 3221225472, 3221225472000},
        {"1Ti", 1099511627776, 1099511627776000},
        {"1Pi", 1125899906842624, 1125899906842624000},
    };
    check_rows(rows, COUNT(rows));
}

TEST("exponents are of ten, and E alone is exa")
{
    static const struct row rows[] = {
        {"12e6", 12000000, 12000000000},
        {"12E6", 12000000, 12000000000},
        {"1e+3", 1000, 1000000},
        {"1500e-3", 2, 1500},
        {"1E-2", 1, 10},
        {"1e0", 1, 1000},
        {"1e-1000000", 1, 1},
        {"0e99999999999999999999", 0, 0},
        {"100000000000000000000000e-20", 1000, 1000000},
    };
    check_rows(rows, COUNT(rows));
    struct quantity quantity;
    int64_t value;
    REQUIRE(quantity_parse("9E", &quantity) == 0);
    CHECK_EQ(quantity_value(&quantity, &value), 0);
    CHECK_EQ(value, 9000000000000000000);
    CHECK_EQ(quantity_milli(&quantity, &value), -ERANGE);
    REQUIRE(quantity_parse("7Ei", &quantity) == 0);
    CHECK_EQ(quantity_value(&quantity, &value), 0);
    CHECK_EQ(value, 7ll << 60);
}

TEST("whole units and thousandths are rounded away from zero")
{
    static const struct row rows[] = {
        {"1m", 1, 1},
        {"999m", 1, 999},
        {"1001m", 2, 1001},
        {"-1m", -1, -1},
        {"-1500m", -2, -1500},
        {"1u", 1, 1},
        {"1n", 1, 1},
        {"1000001n", 1, 2},
        {"0.1", 1, 100},
        {"1.0001", 2, 1001},
        {"0.1Ki", 103, 102400},
        {"1.5Gi", 1610612736, 1610612736000},
        {"0.5Mi", 524288, 524288000},
        {"0.000000001Ki", 1, 1},
    };
    check_rows(rows, COUNT(rows));
}

TEST("what is finer than a billionth is rounded away from zero")
{
    static const struct {
        const char *text;
        int64_t nano;
    } rows[] = {
        {"0.1n", 1},
        {"1.1n", 2},
        {"-0.1n", -1},
        {"0.0000000001", 1},
        {"1e-30", 1},
        {"0.00000000010000000000000000000000000000000000000000000001", 1},
        {"1.0000000000000000000000000000000000000000000000000001n", 2},
        {"0.0000000000001Ki", 1},
        {"0.0009765625Ki", 1000000000},
        {"0.00097656250000000000000000000000000000000000000000001Ki", 1000000001},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct quantity quantity;
        REQUIRE(quantity_parse(rows[i].text, &quantity) == 0);
        CHECK_EQ(quantity.nano, rows[i].nano);
    }
}

TEST("digits may be missing, and zeroes may lead")
{
    static const struct row rows[] = {
        {".5", 1, 500},
        {"1.", 1, 1000},
        {"+1", 1, 1000},
        {"-0", 0, 0},
        {"1.G", 1000000000, 1000000000000},
        {"0001", 1, 1000},
        {"00.500", 1, 500},
        {".", 0, 0},
        {"+", 0, 0},
        {"k", 0, 0},
        {"Ki", 0, 0},
        {"0000000000000000000000000000000000000000000000001", 1, 1000},
    };
    check_rows(rows, COUNT(rows));
}

TEST("what is not a quantity is refused and nothing is written")
{
    static const char *const texts[] = {"", " ", " 1", "1 ", "1K", "1ki", "1kI", "1g", "1mi", "1B",
        "1GB", "1Gib", "1GiB", "1.2.3", "1,5", "--1", "+-1", "1-", "1+1", "1e", "1e+", "1e1.5",
        "1e1k", "1ek", "e", "1k5", "1ei", "0x10", "nan", "inf", "much", "1_000", "\xc2\xb5",
        "1\xc2\xb5", "1m1", "1Ki3", "1n\n"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct quantity quantity = {77};
        if (!CHECK_EQ(quantity_parse(texts[i], &quantity), -EINVAL))
            printf("# \"%s\"\n", texts[i]);
        CHECK_EQ(quantity.nano, 77);
    }
    fflush(stdout);
}

TEST("the ends of int64_t are exact")
{
    struct quantity quantity;
    int64_t value = 5;
    REQUIRE(quantity_parse("9223372036854775807", &quantity) == 0);
    CHECK_EQ(quantity_value(&quantity, &value), 0);
    CHECK_EQ(value, INT64_MAX);
    REQUIRE(quantity_parse("-9223372036854775808", &quantity) == 0);
    CHECK_EQ(quantity_value(&quantity, &value), 0);
    CHECK_EQ(value, INT64_MIN);
    static const char *const beyond[] = {"9223372036854775808", "9223372036854775807.1",
        "9223372036854775807000000001n", "-9223372036854775809", "10E", "1e19", "1e1000", "-1e1000",
        "1e99999999999999999999", "99999999999999999999999999999999999999999999999999999999999999"};
    for (size_t i = 0; i < COUNT(beyond); i++) {
        value = 5;
        REQUIRE(quantity_parse(beyond[i], &quantity) == 0);
        CHECK_EQ(quantity_value(&quantity, &value), -ERANGE);
        CHECK_EQ(value, 5);
    }
}

TEST("a binary amount is held within 2^63-1")
{
    static const char *const texts[] = {"8Ei", "9Ei", "7.9999999999999999999999Ei", "100000Ei",
        "9007199254740992Ki", "99999999999999999999999999999999999999999999999999Ki"};
    struct quantity quantity;
    int64_t value = 0;
    for (size_t i = 0; i < COUNT(texts); i++) {
        REQUIRE(quantity_parse(texts[i], &quantity) == 0);
        CHECK_EQ(quantity_value(&quantity, &value), 0);
        CHECK_EQ(value, INT64_MAX);
    }
    REQUIRE(quantity_parse("-9Ei", &quantity) == 0);
    CHECK_EQ(quantity_value(&quantity, &value), 0);
    CHECK_EQ(value, -INT64_MAX);
}

TEST("equal amounts in other words are equal, and order is that of numbers")
{
    static const char *const ascending[] = {
        "-1e30", "-1", "-1n", "0", "1n", "1m", "0.5", "1", "1000", "1Ki", "1M", "1Mi", "1e30"};
    static const char *const equal[] = {
        "1", "1000m", "1.0", "1e0", "0.001k", "1000000u", "1000000000n"};
    struct quantity a, b;
    for (size_t i = 0; i + 1 < COUNT(ascending); i++) {
        REQUIRE(quantity_parse(ascending[i], &a) == 0 && !quantity_parse(ascending[i + 1], &b));
        CHECK_EQ(quantity_compare(&a, &b), -1);
        CHECK_EQ(quantity_compare(&b, &a), 1);
    }
    b = quantity_of(1);
    for (size_t i = 0; i < COUNT(equal); i++) {
        REQUIRE(quantity_parse(equal[i], &a) == 0);
        CHECK_EQ(quantity_compare(&a, &b), 0);
        CHECK(quantity_is_integer(&a));
    }
    REQUIRE(quantity_parse("1.5", &a) == 0);
    CHECK(!quantity_is_integer(&a));
    a = quantity_add(a, a);
    CHECK(quantity_is_integer(&a));
    b = quantity_of(3);
    CHECK_EQ(quantity_compare(&a, &b), 0);
    REQUIRE(quantity_parse("1e99", &a) == 0);
    b = quantity_add(a, a);
    CHECK_EQ(quantity_compare(&a, &b), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
