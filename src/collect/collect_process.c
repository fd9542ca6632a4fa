/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc tells of a container's processes. */
#include "collect/collect_parts.h"

#include "base/parse.h"
#include "base/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND_MAX 4096

static ssize_t read_once(const char *path, char *buffer, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t got = read(fd, buffer, size);
    close(fd);
    return got;
}

/* Whether some argument's last part is what the process was called by when it claimed its slot:
 * then another process that has got the number since is out of the question, or runs the same
 * program. */
static bool names(const char *arguments, ssize_t length, const char *name)
{
    size_t bytes = strlen(name);
    for (const char *at = arguments, *end = arguments + length; bytes && at < end;) {
        const char *slash = memrchr(at, '/', strnlen(at, (size_t)(end - at)));
        if (strncmp(slash ? slash + 1 : at, name, bytes) == 0)
            return true;
        at += strnlen(at, (size_t)(end - at)) + 1;
    }
    return false;
}

static bool started_at(int pid, uint64_t start_time)
{
    struct process_status status;
    return process_status(pid, &status) == 0 && status.start_time == start_time;
}

/* Arguments end in zeros; a process may have written anything over them. */
char *collect_command(int pid, const char *name, uint64_t start_time)
{
    char path[64], text[COMMAND_MAX];
    snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
    ssize_t length = read_once(path, text, sizeof(text) - 1);
    text[length > 0 ? length : 0] = '\0';
    while (length > 0 && (!text[length - 1] || text[length - 1] == ' '))
        length--;
    /* Its start is the safe answer, and costs as much again as all the rest. */
    if (length <= 0 || (start_time && !names(text, length, name) && !started_at(pid, start_time)))
        return NULL;
    for (ssize_t i = 0; i < length; i++) {
        if (!text[i])
            text[i] = ' ';
    }
    return strndup(text, (size_t)length);
}

uint64_t collect_namespace(unsigned pid)
{
    char path[64], link[64];
    snprintf(path, sizeof(path), "/proc/%u/ns/pid", pid);
    ssize_t length = readlink(path, link, sizeof(link) - 1);
    link[length > 0 ? length : 0] = '\0';
    const char *number = strchr(link, '[');
    return number ? parse_digits(number + 1) : 0;
}

int collect_inner_pid(unsigned pid)
{
    char path[64], text[COMMAND_MAX];
    snprintf(path, sizeof(path), "/proc/%u/status", pid);
    ssize_t length = read_once(path, text, sizeof(text) - 1);
    text[length > 0 ? length : 0] = '\0';
    char *line = strstr(text, "\nNSpid:"), *end = line ? strchr(line + 1, '\n') : NULL;
    if (!end)
        return 0;
    *end = '\0';
    const char *last = strrchr(line + 1, '\t');
    return last ? (int)parse_digits(last + 1) : 0;
}
