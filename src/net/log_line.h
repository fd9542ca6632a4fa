/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines of the daemons: `LEVEL area: text`, one write(2) to stderr each, so that lines of
 * several threads do not mix. */
#ifndef VGPU_NET_LOG_LINE_H
#define VGPU_NET_LOG_LINE_H

enum log_line_level {
    LOG_LINE_ERROR,
    LOG_LINE_WARNING,
    LOG_LINE_INFO,
    LOG_LINE_DEBUG,
};

/* Lines of a level above `level` are dropped. At first LOG_LINE_INFO. Before threads are started.
 */
void log_line_set_level(enum log_line_level level);

/* The format begins with the area: "kubelet: registered". Control characters become '?'; a line of
 * more than 1,000 bytes is cut. Keeps errno. Any thread. */
__attribute__((format(printf, 2, 3))) void log_line(
    enum log_line_level level, const char *format, ...);

#endif
