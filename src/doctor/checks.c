/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor/checks.h"

#include <stdarg.h>
#include <stdio.h>

void check_add(struct checks *checks, const char *name, int device, enum check_status status,
    const char *remedy, const char *format, ...)
{
    if (checks->count == sizeof(checks->list) / sizeof(checks->list[0]))
        return;
    struct check *check = &checks->list[checks->count++];
    va_list arguments;
    *check = (struct check){.name = name, .device = device, .status = status, .remedy = remedy};
    va_start(arguments, format);
    vsnprintf(check->text, sizeof(check->text), format, arguments);
    va_end(arguments);
}
