/* SPDX-License-Identifier: Apache-2.0 */
/* Variables from a file. */
#include "config/override.h"

#include "base/file.h"
#include "base/log.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* What the file may have said of a limit is not to be lost. */
#define CLOSED " Devices without a limit of their own are treated as full."
#define BLANKS " \t\r"
#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"

static struct {
    char text[OVERRIDE_BYTES + 2];
    char *lines[OVERRIDE_LINES + 1];
    unsigned count;
} override;

char *const *override_lines(void)
{
    return override.lines;
}

char *override_find(const char *name)
{
    size_t length = strlen(name);
    for (unsigned i = override.count; i-- > 0;) {
        char *line = override.lines[i];
        if (!strncmp(line, name, length) && line[length] == '=')
            return line + length + 1;
    }
    return NULL;
}

/* Why the file is none of the administrator's, or NULL. */
static const char *why_not(const struct stat *status)
{
    if (!S_ISREG(status->st_mode))
        return "it is no regular file";
    if (status->st_uid != 0 && status->st_uid != geteuid() && !process_hides_owner(status->st_uid))
        return "it is neither root's nor this user's";
    return status->st_mode & 022 ? "others may write it" : NULL;
}

/* All of it, or -errno: -EFBIG where it is too large. */
static int read_all(int fd, size_t *ret_length)
{
    size_t length = 0;
    while (length <= OVERRIDE_BYTES) {
        ssize_t got = read(fd, override.text + length, OVERRIDE_BYTES + 1 - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0) {
            *ret_length = length;
            return 0;
        }
        length += (size_t)got;
    }
    return -EFBIG;
}

static char *trim_end(char *start, char *end)
{
    while (end > start && strchr(BLANKS, end[-1]))
        end--;
    *end = '\0';
    return end;
}

/* "NAME = VALUE" becomes "NAME=VALUE" where it lies. */
static bool is_understood(char *line)
{
    size_t name = strspn(line, NAME_CHARACTERS);
    char *sign = line + name + strspn(line + name, BLANKS);
    if (!name || (*line >= '0' && *line <= '9') || *sign != '=')
        return false;
    char *value = sign + 1 + strspn(sign + 1, BLANKS);
    line[name] = '=';
    memmove(line + name + 1, value, strlen(value) + 1);
    return true;
}

/* The end of the line is its terminator by now; a NUL within it is none. */
static bool take_line(const char *path, char *line, char *end, unsigned number)
{
    bool whole = !memchr(line, '\0', (size_t)(end - line));
    trim_end(line, end);
    line += strspn(line, BLANKS);
    if (whole && (!*line || *line == '#'))
        return true;
    if (whole && override.count == OVERRIDE_LINES) {
        log_error("%s: line %u is one too many; accepted: %d variables." CLOSED, path, number,
            OVERRIDE_LINES);
        return false;
    }
    if (!whole || !is_understood(line)) {
        log_error("%s: line %u, \"%.64s\", is not understood; accepted: NAME=VALUE." CLOSED, path,
            number, line);
        return false;
    }
    override.lines[override.count++] = line;
    override.lines[override.count] = NULL;
    return true;
}

static bool take_lines(const char *path, size_t length)
{
    bool understood = true;
    unsigned number = 1;
    for (char *line = override.text, *end = line + length; line < end; number++) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            stop = end;
        understood = take_line(path, line, stop, number) && understood;
        line = stop + 1;
    }
    return understood;
}

static bool refuse(const char *path, const char *reason)
{
    log_warning(
        "%s is not read: %s; accepted: a regular file of root's that nobody else may write.", path,
        reason);
    return true;
}

static bool read_file(const char *path, int fd)
{
    struct stat status;
    size_t length = 0;
    int error = file_status(fd, &status);
    const char *reason = error ? strerror(-error) : why_not(&status);
    if (reason)
        return refuse(path, reason);
    error = read_all(fd, &length);
    if (!error)
        return take_lines(path, length);
    log_error("%s cannot be read: %s; accepted: %d bytes." CLOSED, path,
        error == -EFBIG ? "it is too large" : strerror(-error), OVERRIDE_BYTES);
    return false;
}

/* Looked at before it is opened: opening a pipe or a device does things by itself, and where the
 * process is out of descriptors nothing may stand in the way without the file. */
static bool look_and_read(const char *path)
{
    struct stat status;
    int error = file_status_at(path, &status);
    if (error == -ENOENT || error == -ENOTDIR)
        return true;
    const char *reason = error ? NULL : why_not(&status);
    if (reason)
        return refuse(path, reason);
    int fd = error ? error : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        log_error("%s cannot be read: %s." CLOSED, path, strerror(error ? -error : errno));
        return false;
    }
    bool understood = read_file(path, fd);
    close(fd);
    return understood;
}

bool override_read(const char *path)
{
    int errno_kept = errno;
    override.count = 0;
    override.lines[0] = NULL;
    bool understood = look_and_read(path);
    errno = errno_kept;
    return understood;
}
