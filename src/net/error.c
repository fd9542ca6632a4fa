/* SPDX-License-Identifier: Apache-2.0 */
#include "net/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct error *error, int code, const char *format, ...)
{
    if (!error)
        return -code;
    int kept = errno;
    char text[ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(text, sizeof(text), format, arguments) < 0)
        text[0] = '\0';
    va_end(arguments);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127)
            *at = '?';
    memcpy(error->text, text, sizeof(text));
    error->code = code;
    errno = kept;
    return -code;
}
