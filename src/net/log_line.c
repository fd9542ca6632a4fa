/* SPDX-License-Identifier: Apache-2.0 */
#include "net/log_line.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 1024

static const char *const names[] = {"ERROR", "WARNING", "INFO", "DEBUG"};
static enum log_line_level highest = LOG_LINE_INFO;

void log_line_set_level(enum log_line_level level)
{
    highest = level;
}

void log_line(enum log_line_level level, const char *format, ...)
{
    if (level > highest)
        return;
    int kept = errno;
    char line[LINE_BYTES];
    int start = snprintf(line, sizeof(line), "%s ", names[level]);
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(line + start, sizeof(line) - (size_t)start - 1, format, arguments);
    va_end(arguments);
    if (written < 0)
        line[start] = '\0';
    size_t length = strlen(line);
    for (size_t i = (size_t)start; i < length; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 127)
            line[i] = '?';
    line[length++] = '\n';
    while (write(STDERR_FILENO, line, length) < 0 && errno == EINTR)
        ;
    errno = kept;
}
