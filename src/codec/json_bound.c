/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/json_bound.h"

/* Behind the string's end, or the text's. `at` is behind its first quotation mark. */
static size_t skip_string(const char *text, size_t bytes, size_t at)
{
    for (; at < bytes; at++)
        if (text[at] == '\\')
            at++;
        else if (text[at] == '"')
            return at + 1;
    return bytes;
}

/* Each value but the outermost one stands behind a comma, or first in an array or object. */
size_t json_bound_values(const char *text, size_t bytes)
{
    size_t count = 1;
    char before = 0; /* of what counts */
    for (size_t at = 0; at < bytes;) {
        const char c = text[at++];
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
            continue;
        if (c == '"')
            at = skip_string(text, bytes, at);
        else if (c == '[' || c == '{' || c == ',')
            count++;
        else if ((c == ']' || c == '}') && (before == '[' || before == '{'))
            count--; /* it is empty */
        before = c;
    }
    return count;
}
