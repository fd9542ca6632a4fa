/* SPDX-License-Identifier: Apache-2.0 */
/* A library that behaves badly, for bench.py: BAD says how, and BAD_IN in which of vgpu-bench's
 * processes (a word of its command line; all without it). */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_word(const char *word)
{
    char line[4096];
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, line, sizeof(line) - 1);
    if (fd >= 0)
        close(fd);
    line[length > 0 ? length : 0] = '\0';
    for (ssize_t at = 0; at < length; at += (ssize_t)strlen(line + at) + 1) {
        if (!strcmp(line + at, word))
            return true;
    }
    return false;
}

/* In a session of its own, as a daemon, where a group's kill does not reach it. */
static void leave_a_daemon(void)
{
    if (fork() != 0)
        return;
    setsid();
    if (fork() != 0)
        _exit(0);
    for (;;)
        pause();
}

__attribute__((constructor)) static void behave(void)
{
    const char *how = getenv("BAD"), *where = getenv("BAD_IN");
    if (!how || (where && !has_word(where)))
        return;
    if (!strcmp(how, "crash"))
        raise(SIGSEGV);
    if (!strcmp(how, "daemon"))
        leave_a_daemon();
    while (!strcmp(how, "hang"))
        pause();
}
