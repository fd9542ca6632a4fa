/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines in HAMi-core's form or vgpu-controller's. */
#include "base/log.h"

#include "base/atomic.h"
#include "base/elf.h"
#include "base/file.h"
#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINE_BYTES 1024

#define SHOWN(level) (1u << (level))
#define KNOWN 0x100u      /* the environment was read */
#define CONTROLLER 0x200u /* vgpu-controller's form */

#define HAMI_DEFAULT 1
#define CONTROLLER_DEFAULT 3

/* By HAMi-core's levels from 0 on, and by vgpu-controller's. */
static const unsigned hami_shown[] = {SHOWN(LOG_ERROR), 0x07, 0x07, 0x0f, 0x1f};
static const unsigned controller_shown[] = {
    SHOWN(LOG_MESSAGE), SHOWN(LOG_MESSAGE) | SHOWN(LOG_ERROR), 0x07, 0x07, 0x0f, 0x1f};

static bool is_loaded_as_controller(void)
{
    char name[64];
    elf_object_name((const void *)is_loaded_as_controller, name, sizeof(name));
    return !strcmp(name, "libvgpu-control.so");
}

static unsigned read_level(const char *text, unsigned greatest, unsigned otherwise)
{
    bool known = text && text[0] >= '0' && text[0] <= '0' + (char)greatest && !text[1];
    return known ? (unsigned)(text[0] - '0') : otherwise;
}

static unsigned read_settings(void)
{
    const char *hami = getenv("LIBCUDA_LOG_LEVEL"), *controller = getenv("LOGGER_LEVEL");
    bool by_hami = hami && *hami, by_controller = controller && *controller;
    if (by_hami || (!by_controller && !is_loaded_as_controller()))
        return KNOWN | hami_shown[read_level(hami, 4, HAMI_DEFAULT)];
    return KNOWN | CONTROLLER | controller_shown[read_level(controller, 5, CONTROLLER_DEFAULT)];
}

static unsigned settings(void)
{
    static unsigned cache;
    unsigned known = load_relaxed(&cache);
    if (!known) {
        known = read_settings();
        store_relaxed(&cache, known);
    }
    return known;
}

bool log_shows(enum log_level level)
{
    return settings() & SHOWN(level);
}

static int format_prefix(
    char *buffer, size_t size, enum log_level level, const char *file, int line)
{
    static const char *const words[] = {
        [LOG_WARNING] = "Warn", [LOG_MESSAGE] = "Msg", [LOG_INFO] = "Info", [LOG_DEBUG] = "Debug"};
    static const char *const controller_words[] = {[LOG_ERROR] = "ERROR",
        [LOG_WARNING] = "WARNING",
        [LOG_MESSAGE] = "INFO",
        [LOG_INFO] = "VERBOSE",
        [LOG_DEBUG] = "DETAIL"};
    const char *name = strrchr(file, '/');
    name = name ? name + 1 : file;
    int pid = (int)getpid();
    if (settings() & CONTROLLER)
        return snprintf(
            buffer, size, "[vGPU %s(%d|%s|%d)]: ", controller_words[level], pid, name, line);
    long thread = syscall(SYS_gettid);
    if (level == LOG_ERROR)
        return snprintf(
            buffer, size, "[HAMI-core ERROR (pid:%d thread=%ld %s:%d)]: ", pid, thread, name, line);
    return snprintf(
        buffer, size, "[HAMI-core %s(%d:%ld:%s:%d)]: ", words[level], pid, thread, name, line);
}

void log_emit(enum log_level level, const char *file, int line, const char *format, ...)
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
    (void)!file_write(STDERR_FILENO, buffer, length);
    errno = errno_kept;
}
