/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/quantity.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define NANO 1000000000
#define NANO_DIGITS 9
/* Significant digits that are held; as many are more than the bound. */
#define DIGITS_MAX 37
/* What an exponent is held within: any digits that fit into memory are 0 or too many with it. */
#define EXPONENT_MAX 4000000000

typedef unsigned __int128 wide;

/* The parts of a text, as ranges of it. */
struct parts {
    bool negative;
    const char *whole, *fraction;
    size_t whole_length, fraction_length;
    const char *suffix;
};

struct unit {
    const char *suffix;
    int exponent; /* of 10, or of 2 */
    bool binary;
};

static const struct unit units[] = {
    {"n", -9, false},
    {"u", -6, false},
    {"m", -3, false},
    {"", 0, false},
    {"k", 3, false},
    {"M", 6, false},
    {"G", 9, false},
    {"T", 12, false},
    {"P", 15, false},
    {"E", 18, false},
    {"Ki", 10, true},
    {"Mi", 20, true},
    {"Gi", 30, true},
    {"Ti", 40, true},
    {"Pi", 50, true},
    {"Ei", 60, true},
};

static wide nano_max(void)
{
    wide max = 1;
    for (int i = 0; i < 36; i++)
        max *= 10;
    return max;
}

static size_t count_digits(const char *text)
{
    return strspn(text, "0123456789");
}

static struct parts split(const char *text)
{
    struct parts parts = {.negative = *text == '-'};
    text += *text == '-' || *text == '+';
    parts.whole = text;
    parts.whole_length = count_digits(text);
    text += parts.whole_length;
    if (*text == '.') {
        parts.fraction = text + 1;
        parts.fraction_length = count_digits(text + 1);
        text += 1 + parts.fraction_length;
    }
    parts.suffix = text;
    return parts;
}

/* The number behind e or E. */
static int parse_exponent(const char *text, int64_t *ret_exponent)
{
    bool negative = *text == '-';
    text += *text == '-' || *text == '+';
    size_t digits = count_digits(text);
    if (!digits || text[digits])
        return -EINVAL;
    int64_t exponent = 0;
    for (size_t i = 0; i < digits; i++) {
        if (exponent < EXPONENT_MAX)
            exponent = exponent * 10 + (text[i] - '0');
    }
    *ret_exponent = negative ? -exponent : exponent;
    return 0;
}

/* Significant digits of both ranges, and how many more there are behind them. */
struct digits {
    wide value;
    int64_t dropped;
    bool inexact; /* one of the dropped is not 0 */
    int count;
};

static void add_digits(struct digits *digits, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned digit = (unsigned)(text[i] - '0');
        if (digits->count < DIGITS_MAX) {
            digits->value = digits->value * 10 + digit;
            digits->count += digits->value != 0;
        } else {
            digits->dropped++;
            digits->inexact |= digit != 0;
        }
    }
}

static wide scale_decimal(const struct parts *parts, int64_t exponent)
{
    struct digits digits = {0};
    add_digits(&digits, parts->whole, parts->whole_length);
    add_digits(&digits, parts->fraction, parts->fraction_length);
    int64_t shift = exponent + NANO_DIGITS + digits.dropped - (int64_t)parts->fraction_length;
    wide value = digits.value, max = nano_max();
    if (!value)
        return 0;
    for (; shift > 0 && value <= max; shift--)
        value = value > max / 10 ? max + 1 : value * 10;
    for (; shift < 0 && value; shift++) {
        digits.inexact |= value % 10 != 0;
        value /= 10;
    }
    value += digits.inexact;
    return value > max ? max : value;
}

/* The least number from 10^9 * 2^exponent * 0.fraction up. From the last digit on, each step takes
 * the floor of a tenth, so that the floor is exact, and what it left is known not to be 0. */
static wide scale_fraction(const struct parts *parts, int exponent)
{
    wide unit = (wide)NANO << exponent, value = 0;
    bool inexact = false;
    for (size_t i = parts->fraction_length; i > 0; i--) {
        value += unit * (unsigned)(parts->fraction[i - 1] - '0');
        inexact |= value % 10 != 0;
        value /= 10;
    }
    return value + inexact;
}

static wide scale_binary(const struct parts *parts, int exponent)
{
    const wide max = (wide)INT64_MAX * NANO;
    struct digits digits = {0};
    add_digits(&digits, parts->whole, parts->whole_length);
    if (digits.dropped || digits.value > ((wide)INT64_MAX >> exponent))
        return max;
    wide value = (digits.value << exponent) * NANO + scale_fraction(parts, exponent);
    return value > max ? max : value;
}

int quantity_parse(const char *text, struct quantity *ret_quantity)
{
    if (!*text)
        return -EINVAL;
    struct parts parts = split(text);
    wide size = 0;
    const struct unit *unit = NULL;
    for (size_t i = 0; !unit && i < sizeof(units) / sizeof(units[0]); i++)
        unit = strcmp(parts.suffix, units[i].suffix) ? NULL : &units[i];
    if (unit) {
        size = unit->binary ? scale_binary(&parts, unit->exponent)
                            : scale_decimal(&parts, unit->exponent);
    } else {
        int64_t exponent = 0;
        if ((*parts.suffix != 'e' && *parts.suffix != 'E') ||
            parse_exponent(parts.suffix + 1, &exponent))
            return -EINVAL;
        size = scale_decimal(&parts, exponent);
    }
    ret_quantity->nano = parts.negative ? -(__int128)size : (__int128)size;
    return 0;
}

static int scale_down(const struct quantity *quantity, int64_t divisor, int64_t *ret_value)
{
    __int128 value = quantity->nano / divisor, rest = quantity->nano % divisor;
    value += (rest > 0) - (rest < 0);
    if (value > INT64_MAX || value < INT64_MIN)
        return -ERANGE;
    *ret_value = (int64_t)value;
    return 0;
}

int quantity_value(const struct quantity *quantity, int64_t *ret_value)
{
    return scale_down(quantity, NANO, ret_value);
}

int quantity_milli(const struct quantity *quantity, int64_t *ret_milli)
{
    return scale_down(quantity, NANO / 1000, ret_milli);
}

bool quantity_is_integer(const struct quantity *quantity)
{
    return quantity->nano % NANO == 0;
}

int quantity_compare(const struct quantity *a, const struct quantity *b)
{
    return (a->nano > b->nano) - (a->nano < b->nano);
}

struct quantity quantity_add(struct quantity a, struct quantity b)
{
    __int128 max = (__int128)nano_max(), sum = a.nano + b.nano;
    return (struct quantity){sum > max ? max : sum < -max ? -max : sum};
}

struct quantity quantity_of(int64_t number)
{
    return (struct quantity){(__int128)number * NANO};
}
