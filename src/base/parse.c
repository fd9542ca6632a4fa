/* SPDX-License-Identifier: Apache-2.0 */
/* Parsers for sizes, numbers and lists. */
#include "base/parse.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static const char *skip_blanks(const char *text)
{
    while (is_blank(*text))
        text++;
    return text;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

/* The unit's shift. Behind it may be i, b or ib, and where it is read loosely any letters. */
static int parse_unit(const char *text, bool loosely, unsigned *ret_shift)
{
    static const char letters[] = "kmgt";
    const char *at = text;
    *ret_shift = 0;
    if (*at) {
        char lower = (char)(*at | 0x20);
        const char *letter = strchr(letters, lower);
        if (letter) {
            *ret_shift = 10 * (unsigned)(letter - letters + 1);
            at++;
            if ((*at | 0x20) == 'i')
                at++;
        }
        if ((*at | 0x20) == 'b')
            at++;
        while (letter && loosely && is_letter(*at))
            at++;
    }
    return *skip_blanks(at) ? -EINVAL : 0;
}

static int read_size(const char *text, bool loosely, uint64_t *ret_bytes)
{
    if (!text)
        return -EINVAL;
    const char *at = skip_blanks(text);
    if (!is_digit(*at))
        return -EINVAL;
    /* Whole part and a fraction of up to nine digits; further digits are below a byte of 1 GiB. */
    uint64_t whole = 0, fraction = 0, scale = 1;
    bool over = false, is_some = false;
    for (; is_digit(*at); at++) {
        over |= whole > (UINT64_MAX - 9) / 10;
        whole = over ? whole : whole * 10 + (uint64_t)(*at - '0');
    }
    if (*at == '.') {
        at++;
        if (!is_digit(*at))
            return -EINVAL;
        for (; is_digit(*at); at++) {
            is_some |= *at != '0';
            if (scale < 1000000000u) {
                fraction = fraction * 10 + (uint64_t)(*at - '0');
                scale *= 10;
            }
        }
    }
    unsigned shift;
    int error = parse_unit(skip_blanks(at), loosely, &shift);
    if (error)
        return error;
    if (over || whole > (uint64_t)INT64_MAX >> shift)
        return -ERANGE;
    uint64_t bytes = (whole << shift) + (uint64_t)(((unsigned __int128)fraction << shift) / scale);
    if (bytes > INT64_MAX)
        return -ERANGE;
    if (is_some && !bytes)
        return -EINVAL;
    *ret_bytes = bytes;
    return 0;
}

int parse_size(const char *text, uint64_t *ret_bytes)
{
    return read_size(text, false, ret_bytes);
}

int parse_size_loosely(const char *text, uint64_t *ret_bytes)
{
    return read_size(text, true, ret_bytes);
}

int parse_number(const char *text, uint64_t max, uint64_t *ret_number)
{
    if (!text)
        return -EINVAL;
    const char *at = skip_blanks(text);
    if (!is_digit(*at))
        return -EINVAL;
    uint64_t number = 0;
    bool over = false;
    for (; is_digit(*at); at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        over |= number > (UINT64_MAX - digit) / 10;
        number = over ? number : number * 10 + digit;
    }
    if (*skip_blanks(at))
        return -EINVAL;
    if (over || number > max)
        return -ERANGE;
    *ret_number = number;
    return 0;
}

uint64_t parse_digits(const char *text)
{
    uint64_t number = 0;
    for (; is_digit(*text); text++)
        number = number * 10 + (uint64_t)(*text - '0');
    return number;
}

bool parse_true(const char *text)
{
    return text && (!strcmp(text, "1") || !strcasecmp(text, "true") || !strcasecmp(text, "on") ||
                       !strcasecmp(text, "yes"));
}

bool parse_list_next(const char **list, char *item, size_t item_bytes)
{
    if (!*list)
        return false;
    const char *at = skip_blanks(*list);
    const char *end = strchr(at, ',');
    size_t length = end ? (size_t)(end - at) : strlen(at);
    *list = end ? end + 1 : NULL;
    while (length && is_blank(at[length - 1]))
        length--;
    bool whole = length < item_bytes;
    if (!whole)
        length = item_bytes - 1;
    memcpy(item, at, length);
    /* What is left of "0000…1g" would be another value. */
    for (size_t i = 0; !whole && i < 3 && i < length; i++)
        item[length - 1 - i] = '.';
    item[length] = '\0';
    return true;
}
