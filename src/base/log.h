/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines to stderr: one write(2) a line from a stack buffer, errno kept, no allocation.
 * The layer that decides logs; leaves return errors.
 *
 * Their form and their levels are HAMi-core's where LIBCUDA_LOG_LEVEL is set, else
 * vgpu-controller's where LOGGER_LEVEL is set or the library was loaded as libvgpu-control.so, else
 * HAMi-core's. */
#ifndef VGPU_BASE_LOG_H
#define VGPU_BASE_LOG_H

#include <stdbool.h>

enum log_level {
    LOG_ERROR = 0,   /* shown from LIBCUDA_LOG_LEVEL 0 on; from LOGGER_LEVEL 1 on */
    LOG_WARNING = 1, /* from 1 on (the default); from 2 on */
    LOG_MESSAGE = 2, /* with the warnings, as HAMi-core's "Msg" lines are; always ("INFO") */
    LOG_INFO = 3,    /* from 3 on; from 4 on ("VERBOSE") */
    LOG_DEBUG = 4,   /* from 4 on; from 5 on ("DETAIL") */
};

/* Whether lines of that level are shown; the environment is read at the first question. A level
 * that is not understood is the default's. */
bool log_shows(enum log_level level);

/* The prefix is one that people search for. Safe in any thread and after fork;
 * a line longer than 1,000 bytes is cut. What would end the line or steer a terminal is written as
 * an escape (base/text.h), so that a value of the environment cannot forge a line. */
void log_emit(enum log_level level, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define log_at(level, ...)                                                                         \
    do {                                                                                           \
        if (log_shows(level))                                                                      \
            log_emit((level), __FILE_NAME__, __LINE__, __VA_ARGS__);                               \
    } while (0)

#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) log_at(LOG_WARNING, __VA_ARGS__)
#define log_message(...) log_at(LOG_MESSAGE, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

#ifndef __FILE_NAME__
#define __FILE_NAME__ __FILE__
#endif

#endif
