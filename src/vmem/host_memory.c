/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups, and the machine. */
#include "vmem/host_memory.h"

#include "base/machine_memory.h"
#include "base/parse.h"
#include "base/saturating.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 512
#define GROUPS_BYTES 2048 /* of /proc/self/cgroup */
#define STAT_BYTES 4096   /* memory.stat has some 1,500 bytes, v1's totals at the end */

/* As much as fits, terminated. False where it cannot be read. */
static bool read_file(const char *path, char *text, size_t size)
{
    ssize_t got = -1;
    size_t length = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while (length + 1 < size &&
           ((got = read(fd, text + length, size - 1 - length)) > 0 || (got < 0 && errno == EINTR)))
        length += got > 0 ? (size_t)got : 0;
    close(fd);
    text[length] = '\0';
    return got >= 0 && length > 0;
}

/* "max", and v1's number for it, are no bound. */
static uint64_t read_number(const char *directory, const char *name)
{
    char path[PATH_BYTES + 64], text[32];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    if (!read_file(path, text, sizeof(text)) || *text < '0' || *text > '9')
        return UINT64_MAX;
    uint64_t number = parse_digits(text);
    return number >= (uint64_t)1 << 62 ? UINT64_MAX : number;
}

static void bind(struct host_memory *memory, uint64_t bytes, const char *bound)
{
    if (bytes < memory->free_bytes)
        *memory = (struct host_memory){.free_bytes = bytes, .bound = bound};
}

/* Behind the name at a line's beginning; 0 where there is none. */
static uint64_t line_of(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (!strncmp(line, name, length) && line[length] == ' ')
            return parse_digits(line + length + 1);
    }
    return 0;
}

/* What the group holds of files: the kernel gives it up where memory is wanted. */
static uint64_t read_cached(const char *directory, bool v2)
{
    char path[PATH_BYTES + 64], text[STAT_BYTES];
    snprintf(path, sizeof(path), "%s/memory.stat", directory);
    if (!read_file(path, text, sizeof(text)))
        return 0;
    return line_of(text, v2 ? "inactive_file" : "total_inactive_file") +
           line_of(text, v2 ? "active_file" : "total_active_file");
}

static void bind_group(
    struct host_memory *memory, const char *directory, bool v2, uint64_t spilled_bytes)
{
    uint64_t limit = read_number(directory, v2 ? "memory.max" : "memory.limit_in_bytes");
    uint64_t used = read_number(directory, v2 ? "memory.current" : "memory.usage_in_bytes");
    if (limit != UINT64_MAX && used != UINT64_MAX)
        bind(memory,
            saturating_difference(saturating_difference(limit,
                                      saturating_difference(used, read_cached(directory, v2))),
                spilled_bytes),
            "the memory cgroup's limit");
}

/* The process's group and all above it that are seen. In a container the path may name what is not
 * mounted there: then the mount's own root is looked at. */
static void bind_groups(
    struct host_memory *memory, char mount[PATH_BYTES], const char *path, bool v2, uint64_t spilled)
{
    size_t root = strlen(mount), length = strcspn(path, "\n");
    if (root + length + 1 >= PATH_BYTES)
        length = 0;
    memcpy(mount + root, path, length);
    mount[root + length] = '\0';
    for (char *end = mount + root + length;; end--) {
        if (*end && *end != '/')
            continue;
        *end = '\0';
        bind_group(memory, mount, v2, spilled);
        if (end <= mount + root)
            return;
    }
}

/* What stands behind the n-th ":" of a line "id:controllers:path". */
static const char *field(const char *line, int number)
{
    while (number && *line && *line != '\n')
        number -= *line++ == ':';
    return line;
}

/* Whether the controllers of a v1 line, as "cpu,memory", have memory among them. */
static bool has_memory(const char *controllers)
{
    size_t length = strcspn(controllers, ":\n");
    for (const char *at = controllers; at < controllers + length; at += strcspn(at, ",:\n") + 1) {
        if (!strncmp(at, "memory", 6) && strchr(",:", at[6]))
            return true;
    }
    return false;
}

static void look_at_groups(struct host_memory *memory, const char *root, uint64_t spilled_bytes)
{
    char text[GROUPS_BYTES], path[PATH_BYTES], mount[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    if (!read_file(path, text, sizeof(text)))
        return;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        bool v2 = !strncmp(line, "0::", 3);
        if (!v2 && !has_memory(field(line, 1)))
            continue;
        snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup%s", root, v2 ? "" : "/memory");
        bind_groups(memory, mount, field(line, 2), v2, spilled_bytes);
    }
}

struct host_memory host_memory_look_below(const char *root, uint64_t spilled_bytes)
{
    int errno_kept = errno;
    struct host_memory memory = {.free_bytes = UINT64_MAX, .bound = "nothing"};
    look_at_groups(&memory, root, spilled_bytes);
    bind(&memory, machine_memory_free(root), "the machine's available memory");
    errno = errno_kept;
    return memory;
}

struct host_memory host_memory_look(uint64_t spilled_bytes)
{
    return host_memory_look_below("", spilled_bytes);
}
