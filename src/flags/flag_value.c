/* SPDX-License-Identifier: Apache-2.0 */
#include "flags/flag_value.h"

#include "codec/duration.h"
#include "codec/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SCALING_MAX 100
#define SCALING_DIGITS_MAX 20

static bool take_text(const struct flag_row *row, const char *value, char *to)
{
    size_t length = strlen(value);
    if (length >= row->size || (row->kind == FLAG_PATH && length && *value != '/'))
        return false;
    for (const char *at = value; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f)
            return false;
    memcpy(to, value, length + 1);
    return true;
}

/* The text's place among the words, from 0 on; below 0: none of them. */
static int place_of(const char *words, const char *text, size_t length)
{
    int place = 0;
    for (const char *at = words; length && *at; place++) {
        size_t word = strcspn(at, " ");
        if (word == length && !memcmp(at, text, word))
            return place;
        at += word + (at[word] == ' ');
    }
    return -1;
}

static bool take_list(const char *words, const char *value, unsigned *to)
{
    unsigned bits = 0;
    for (const char *at = value; *at;) {
        size_t length = strcspn(at, ",");
        int place = place_of(words, at, length);
        if (place < 0)
            return false;
        bits |= 1u << place;
        at += length + (at[length] == ',');
    }
    if (bits)
        *to = bits;
    return bits;
}

/* Digits with a point: strtod would take a locale's point, "inf" and "0x". */
static bool take_scaling(const char *value, double *to)
{
    size_t digits = strspn(value, "0123456789."), points = 0;
    double number = 0, scale = 1;
    if (!digits || value[digits] || digits > SCALING_DIGITS_MAX)
        return false;
    for (const char *at = value; *at; at++) {
        if (*at == '.') {
            points++;
        } else {
            number = number * 10 + (*at - '0');
            scale *= points ? 10 : 1;
        }
    }
    number /= scale;
    if (points > 1 || number <= 0 || number > SCALING_MAX)
        return false;
    *to = number;
    return true;
}

static bool take_number(const struct flag_row *row, const char *value, void *to)
{
    int64_t number, least = row->kind == FLAG_NUMBER ? -1 : row->least;
    int64_t most = row->kind == FLAG_NUMBER ? INT32_MAX : row->most;
    if (row->kind == FLAG_DURATION ? duration_parse(value, &number) || number < least
                                   : number_parse(value, strlen(value), least, most, &number))
        return false;
    if (row->kind == FLAG_NUMBER)
        *(int32_t *)to = (int32_t)number;
    else
        *(int64_t *)to = number;
    return true;
}

bool flag_value_take(const struct flag_row *row, const char *text, void *to)
{
    int place;
    switch (row->kind) {
    case FLAG_TEXT:
    case FLAG_PATH:
        return take_text(row, text, to);
    case FLAG_BOOL:
        return !number_parse_bool(text, strlen(text), to);
    case FLAG_DURATION:
    case FLAG_NUMBER:
    case FLAG_COUNT:
        return take_number(row, text, to);
    case FLAG_SCALING:
        return take_scaling(text, to);
    case FLAG_WORD:
        return place_of(row->accepted, text, strlen(text)) >= 0 && take_text(row, text, to);
    case FLAG_CHOICE:
        place = place_of(row->accepted, text, strlen(text));
        if (place >= 0)
            *(bool *)to = place == 1;
        return place >= 0;
    case FLAG_LIST:
        return take_list(row->accepted, text, to);
    case FLAG_ONLY:
        return place_of(row->accepted, text, strlen(text)) >= 0;
    default:
        return true;
    }
}

void flag_value_describe(const struct flag_row *row, char *text, size_t size)
{
    switch (row->kind) {
    case FLAG_TEXT:
    case FLAG_PATH:
        snprintf(text, size, "%s shorter than %zu bytes",
            row->kind == FLAG_TEXT ? "a text without blanks," : "an absolute path,", row->size);
        break;
    case FLAG_BOOL:
        snprintf(text, size, "true or false");
        break;
    case FLAG_DURATION:
        snprintf(text, size, "%s%s%s", row->accepted ? row->accepted : "",
            row->accepted ? ", " : "", DURATION_ACCEPTED);
        break;
    case FLAG_NUMBER:
        snprintf(text, size, "a whole number from -1 on");
        break;
    case FLAG_COUNT:
        snprintf(text, size, "a whole number from %" PRId64 " to %" PRId64, row->least, row->most);
        break;
    case FLAG_SCALING:
        snprintf(text, size, "a number above 0, up to %d", SCALING_MAX);
        break;
    default:
        snprintf(text, size, "%s: %s", row->kind == FLAG_LIST ? "a list by commas of" : "one of",
            row->accepted ? row->accepted : "");
    }
}
