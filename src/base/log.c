/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines in HAMi-core's form. */
#include "base/log.h"

#include "base/atomic.h"
#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINE_BYTES 1024
#define LEVEL_UNKNOWN (-1)

int log_level(void)
{
    static int level = LEVEL_UNKNOWN;
    int known = load_relaxed(&level);
    if (known == LEVEL_UNKNOWN) {
        const char *text = getenv("LIBCUDA_LOG_LEVEL");
        known = text && text[0] >= '0' && text[0] <= '4' && !text[1] ? text[0] - '0' : LOG_WARNING;
        store_relaxed(&level, known);
    }
    return known;
}

static int format_prefix(
    char *buffer, size_t size, enum log_level level, const char *file, int line)
{
    static const char *const words[] = {
        [LOG_WARNING] = "Warn", [LOG_MESSAGE] = "Msg", [LOG_INFO] = "Info", [LOG_DEBUG] = "Debug"};
    const char *name = strrchr(file, '/');
    name = name ? name + 1 : file;
    int pid = (int)getpid();
    long thread = syscall(SYS_gettid);
    if (level == LOG_ERROR)
        return snprintf(
            buffer, size, "[HAMI-core ERROR (pid:%d thread=%ld %s:%d)]: ", pid, thread, name, line);
    return snprintf(
        buffer, size, "[HAMI-core %s(%d:%ld:%s:%d)]: ", words[level], pid, thread, name, line);
}

void log_line(enum log_level level, const char *file, int line, const char *format, ...)
{
    int errno_kept = errno;
    char text[LINE_BYTES], buffer[LINE_BYTES];
    int used = format_prefix(text, sizeof(text), level, file, line);
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(text + used, sizeof(text) - (size_t)used, format, arguments);
    va_end(arguments);
    size_t length = (size_t)used + (more > 0 ? (size_t)more : 0);
    if (length > sizeof(text) - 1)
        length = sizeof(text) - 1;
    length = text_escape(buffer, sizeof(buffer) - 1, text, length);
    buffer[length++] = '\n';
    ssize_t written = write(STDERR_FILENO, buffer, length);
    (void)written;
    errno = errno_kept;
}
