/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/url.h"

#include <stdlib.h>
#include <string.h>

char *url_escape(const char *text)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    static const char digits[] = "0123456789ABCDEF";
    char *escaped = malloc(strlen(text) * 3 + 1), *at = escaped;
    for (; escaped && *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (strchr(plain, byte)) {
            *at++ = (char)byte;
            continue;
        }
        *at++ = '%';
        *at++ = digits[byte >> 4];
        *at++ = digits[byte & 15];
    }
    if (escaped)
        *at = 0;
    return escaped;
}
