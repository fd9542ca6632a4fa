/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines to stderr: one write(2) a line from a stack buffer, errno kept, no allocation.
 * The layer that decides logs; leaves return errors. */
#ifndef VGPU_BASE_LOG_H
#define VGPU_BASE_LOG_H

enum log_level {
    LOG_ERROR = 0,   /* always shown */
    LOG_WARNING = 1, /* LIBCUDA_LOG_LEVEL 1 and above (the default) */
    LOG_MESSAGE = 2, /* shown with the warnings, as HAMi-core's "Msg" lines are */
    LOG_INFO = 3,
    LOG_DEBUG = 4,
};

/* LIBCUDA_LOG_LEVEL's value, 1 where it is not 0 to 4; read from the environment at the first line.
 */
int log_level(void);

/* The prefix is HAMi-core's, because people search for it. Safe in any thread and after fork;
 * a line longer than 1,000 bytes is cut. What would end the line or steer a terminal is written as
 * an escape (base/text.h), so that a value of the environment cannot forge a line. */
void log_line(enum log_level level, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define log_at(level, ...)                                                                         \
    do {                                                                                           \
        if (log_level() >= ((level) == LOG_MESSAGE ? LOG_WARNING : (level)))                       \
            log_line((level), __FILE_NAME__, __LINE__, __VA_ARGS__);                               \
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
