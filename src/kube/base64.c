/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/base64.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int value_of(char letter)
{
    const char *found = letter ? strchr(letters, letter) : NULL;
    return found ? (int)(found - letters) : -1;
}

/* Returns the number of bytes, or -1. */
static long decode(const char *text, char *target)
{
    uint32_t bits = 0;
    unsigned count = 0, padding = 0;
    char *at = target;
    for (; *text; text++) {
        if (strchr(" \t\r\n", *text))
            continue;
        int value = value_of(*text);
        padding += *text == '=';
        if (*text != '=' && (value < 0 || padding))
            return -1;
        bits = bits << 6 | (uint32_t)(value < 0 ? 0 : value);
        if (++count % 4)
            continue;
        *at++ = (char)(bits >> 16);
        *at++ = (char)(bits >> 8);
        *at++ = (char)bits;
    }
    if (count % 4 || padding > 2)
        return -1;
    return at - target - padding;
}

int base64_decode(const char *text, char **ret_text)
{
    char *target = malloc(strlen(text) / 4 * 3 + 4);
    if (!target)
        return -ENOMEM;
    long bytes = decode(text, target);
    if (bytes < 0 || memchr(target, 0, (size_t)bytes)) {
        free(target);
        return -EINVAL;
    }
    target[bytes] = 0;
    *ret_text = target;
    return 0;
}

int base64_encode(const char *bytes, size_t size, char **ret_text)
{
    const unsigned char *at = (const unsigned char *)bytes;
    char *text = size > SIZE_MAX / 2 ? NULL : malloc((size + 2) / 3 * 4 + 1);
    if (!text)
        return -ENOMEM;
    char *to = text;
    for (size_t left = size, taken; left; left -= taken, at += taken) {
        taken = left < 3 ? left : 3;
        uint32_t bits = (uint32_t)at[0] << 16;
        bits |= left > 1 ? (uint32_t)at[1] << 8 : 0;
        bits |= left > 2 ? at[2] : 0;
        *to++ = letters[bits >> 18];
        *to++ = letters[bits >> 12 & 63];
        *to++ = left > 1 ? letters[bits >> 6 & 63] : '=';
        *to++ = left > 2 ? letters[bits & 63] : '=';
    }
    *to = '\0';
    *ret_text = text;
    return 0;
}
