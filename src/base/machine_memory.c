/* SPDX-License-Identifier: Apache-2.0 */
/* /proc/meminfo. */
#include "base/machine_memory.h"

#include "base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MEMINFO_BYTES 512 /* its first lines say what is wanted */
#define RESERVE_LEAST (256ull << 20)
#define RESERVE_PART 32

static uint64_t kib_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    if (!at)
        return UINT64_MAX;
    at += strlen(name);
    return parse_digits(at + strspn(at, " ")) << 10;
}

uint64_t machine_memory_free(const char *root)
{
    char path[PATH_MAX], text[MEMINFO_BYTES];
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = -1;
    size_t length = 0;
    if (fd < 0)
        return UINT64_MAX;
    while (length + 1 < sizeof(text) &&
           ((got = read(fd, text + length, sizeof(text) - 1 - length)) > 0 ||
               (got < 0 && errno == EINTR)))
        length += got > 0 ? (size_t)got : 0;
    close(fd);
    text[length] = '\0';
    uint64_t total = kib_of(text, "MemTotal:"), available = kib_of(text, "MemAvailable:");
    if (total == UINT64_MAX || available == UINT64_MAX)
        return UINT64_MAX;
    uint64_t reserve = total / RESERVE_PART > RESERVE_LEAST ? total / RESERVE_PART : RESERVE_LEAST;
    return available > reserve ? available - reserve : 0;
}
