/* SPDX-License-Identifier: Apache-2.0 */
/* /proc readers that need no allocation. */
#include "base/process.h"

#include "base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int read_file(const char *path, char *buffer, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t got = read(fd, buffer, size - 1);
    int error = got < 0 ? -errno : 0;
    close(fd);
    if (!error)
        buffer[got] = '\0';
    return error;
}

/* /proc may be missing or show another namespace: then only kill() tells whether a pid exists. */
static int stat_missing(int pid)
{
    if (pid && kill(pid, 0) != 0 && errno == ESRCH)
        return -ESRCH;
    return -ENOTSUP;
}

int process_stat(int pid, uint64_t *ret_start_time, bool *ret_ended)
{
    char path[64], text[1024];
    if (pid)
        snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    else
        snprintf(path, sizeof(path), "/proc/self/stat");
    if (read_file(path, text, sizeof(text)) != 0)
        return stat_missing(pid);
    /* The command may hold blanks and parentheses: fields count from the last ')'. */
    const char *at = strrchr(text, ')');
    if (!at || at[1] != ' ')
        return -ENOTSUP;
    at += 2;
    char state = *at;
    for (int field = 3; field < 22 && at; field++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    if (!at)
        return -ENOTSUP;
    *ret_start_time = parse_digits(at);
    *ret_ended = state == 'Z' || state == 'X' || state == 'x';
    return 0;
}

uint64_t process_pid_namespace(void)
{
    char link[64];
    ssize_t length = readlink("/proc/self/ns/pid", link, sizeof(link) - 1);
    if (length <= 0)
        return 0;
    link[length] = '\0';
    const char *number = strchr(link, '[');
    return number ? parse_digits(number + 1) : 0;
}

void process_command(char *buffer, size_t size)
{
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    name[sizeof(name) - 1] = '\0';
    snprintf(buffer, size, "%s", name);
}
