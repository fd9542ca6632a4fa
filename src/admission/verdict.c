/* SPDX-License-Identifier: Apache-2.0 */
#include "admission/verdict.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool verdict_set(struct verdict *verdict, enum verdict_code code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(verdict->message, sizeof(verdict->message), format, arguments);
    va_end(arguments);
    verdict->code = code;
    return code == VERDICT_ALLOWED;
}

struct verdict_quoted verdict_quote(const char *text)
{
    struct verdict_quoted quoted;
    text_escape(quoted.text, sizeof(quoted.text), text, strlen(text));
    return quoted;
}
