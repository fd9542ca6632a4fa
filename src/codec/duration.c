/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/duration.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define SECOND_NS INT64_C(1000000000)

static const struct unit {
    const char *name; /* "ms" before "m" */
    int64_t ns;
} units[] = {
    {"ns", 1},
    {"us", 1000},
    {"\xc2\xb5s", 1000}, /* the micro sign */
    {"ms", 1000000},
    {"h", 3600 * SECOND_NS},
    {"m", 60 * SECOND_NS},
    {"s", SECOND_NS},
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const struct unit *find_unit(const char *text)
{
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (!strncmp(text, units[i].name, strlen(units[i].name)))
            return &units[i];
    return NULL;
}

/* One <decimal><unit>; moves *text behind it and adds it. */
static int parse_part(const char **text, int64_t *sum_ns)
{
    const char *at = *text;
    int64_t whole = 0, fraction = 0, scale = 1, part;
    bool fits = true, digits = is_digit(*at);
    for (; is_digit(*at); at++)
        fits = fits && !__builtin_mul_overflow(whole, 10, &whole) &&
               !__builtin_add_overflow(whole, *at - '0', &whole);
    if (*at == '.') {
        digits |= is_digit(*++at);
        /* What is below a nanosecond of an hour is cut. */
        for (; is_digit(*at); at++) {
            if (scale < 10000 * SECOND_NS) {
                fraction = fraction * 10 + (*at - '0');
                scale *= 10;
            }
        }
    }
    const struct unit *unit = find_unit(at);
    if (!digits || !unit)
        return -EINVAL;
    fits = fits && !__builtin_mul_overflow(whole, unit->ns, &part) &&
           !__builtin_add_overflow(part, (int64_t)((__int128)fraction * unit->ns / scale), &part) &&
           !__builtin_add_overflow(*sum_ns, part, sum_ns);
    *text = at + strlen(unit->name);
    return fits ? 0 : -ERANGE;
}

int duration_parse(const char *text, int64_t *ret_ns)
{
    bool negative = *text == '-';
    int64_t sum = 0;
    text += *text == '-' || *text == '+';
    if (!strcmp(text, "0")) {
        *ret_ns = 0;
        return 0;
    }
    if (!*text)
        return -EINVAL;
    while (*text) {
        int result = parse_part(&text, &sum);
        if (result)
            return result;
    }
    *ret_ns = negative ? -sum : sum;
    return 0;
}

/* Writes value/10^digits without the fraction's trailing zeros. */
static size_t put_decimal(char *to, size_t size, uint64_t value, int digits)
{
    uint64_t scale = 1;
    for (int i = 0; i < digits; i++)
        scale *= 10;
    int length = snprintf(to, size, "%llu", (unsigned long long)(value / scale));
    if (value % scale) {
        length += snprintf(to + length, size - (size_t)length, ".%0*llu", digits,
            (unsigned long long)(value % scale));
        while (to[length - 1] == '0')
            to[--length] = '\0';
    }
    return (size_t)length;
}

void duration_format(int64_t ns, char text[DURATION_TEXT_BYTES])
{
    uint64_t left = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
    size_t at = 0;
    if (!ns) {
        memcpy(text, "0s", 3);
        return;
    }
    if (ns < 0)
        text[at++] = '-';
    if (left < (uint64_t)SECOND_NS) {
        int digits = left < 1000 ? 0 : left < 1000000 ? 3 : 6;
        at += put_decimal(text + at, DURATION_TEXT_BYTES - at, left, digits);
        const char *unit = digits == 0 ? "ns" : digits == 3 ? "\xc2\xb5s" : "ms";
        memcpy(text + at, unit, strlen(unit) + 1);
        return;
    }
    uint64_t minutes = left / (60 * SECOND_NS);
    if (minutes >= 60)
        at += (size_t)snprintf(
            text + at, DURATION_TEXT_BYTES - at, "%lluh", (unsigned long long)(minutes / 60));
    if (minutes)
        at +=
            (size_t)snprintf(text + at, DURATION_TEXT_BYTES - at, "%um", (unsigned)(minutes % 60));
    at += put_decimal(text + at, DURATION_TEXT_BYTES - at, left % (60 * SECOND_NS), 9);
    text[at] = 's';
    text[at + 1] = '\0';
}
