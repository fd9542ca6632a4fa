/* SPDX-License-Identifier: Apache-2.0 */
/* Escaping, one character at a time. */
#include "base/text.h"

#include <stdbool.h>
#include <string.h>

static bool continues(const unsigned char *at, size_t left, size_t count)
{
    for (size_t i = 1; i <= count; i++) {
        if (i >= left || (at[i] & 0xc0) != 0x80)
            return false;
    }
    return true;
}

/* The bytes of the character at `at` where it may be shown as it is, else 0. */
static size_t shown_bytes(const unsigned char *at, size_t left)
{
    unsigned char first = at[0];
    if (first < 0x80)
        return first >= 0x20 && first != 0x7f;
    if (first >= 0xc2 && first < 0xe0) /* U+0080 to U+009F are controls too */
        return continues(at, left, 1) && !(first == 0xc2 && at[1] < 0xa0) ? 2 : 0;
    if (first >= 0xe0 && first < 0xf0)
        return continues(at, left, 2) && !(first == 0xe0 && at[1] < 0xa0) &&
                       !(first == 0xed && at[1] >= 0xa0)
                   ? 3
                   : 0;
    if (first >= 0xf0 && first < 0xf5)
        return continues(at, left, 3) && !(first == 0xf0 && at[1] < 0x90) &&
                       !(first == 0xf4 && at[1] >= 0x90)
                   ? 4
                   : 0;
    return 0;
}

static size_t escape_byte(char *target, unsigned char byte)
{
    static const char digits[] = "0123456789abcdef";
    const char *letter = byte == '\n' ? "n" : byte == '\t' ? "t" : byte == '\r' ? "r" : NULL;
    target[0] = '\\';
    if (letter) {
        target[1] = *letter;
        return 2;
    }
    target[1] = 'x';
    target[2] = digits[byte >> 4];
    target[3] = digits[byte & 15];
    return 4;
}

size_t text_escape(char *target, size_t size, const char *text, size_t length)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t used = 0;
    while (length) {
        char escaped[4];
        size_t taken = shown_bytes(at, length), made = taken;
        if (taken)
            memcpy(escaped, at, taken);
        else
            made = escape_byte(escaped, *at), taken = 1;
        if (made >= size - used)
            break;
        memcpy(target + used, escaped, made);
        used += made;
        at += taken;
        length -= taken;
    }
    target[used] = '\0';
    return used;
}
