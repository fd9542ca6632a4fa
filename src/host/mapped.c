/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and opening what a process maps. */
#include "host/mapped.h"

#include "base/file.h"
#include "vgpu/region.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A system's page, at most: a mapping ends with one. */
#define PAGE_MOST 65536u

/* All of a file of just a region's size. The path begins where the line's sixth field does; a
 * newline in it is written as \012. */
static bool is_region_mapping(const char *line, struct mapping *ret_mapping, const char **ret_path)
{
    char shared;
    uint64_t offset;
    int behind = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*c%*c%*c%c %" SCNx64 " %x:%x %" SCNu64 " %n",
            &ret_mapping->start, &ret_mapping->end, &shared, &offset, &ret_mapping->device_major,
            &ret_mapping->device_minor, &ret_mapping->inode, &behind) != 7 ||
        !behind || shared != 's' || offset != VGPU_REGION_MAP_OFFSET || line[behind] != '/')
        return false;
    *ret_path = line + behind;
    uint64_t bytes = ret_mapping->end - ret_mapping->start;
    return bytes >= sizeof(struct vgpu_region_map) &&
           bytes < sizeof(struct vgpu_region_map) + PAGE_MOST;
}

/* Opens what lies at the path if it is the file that is mapped. */
static int open_if_mapped(const char *path, const struct mapping *mapping, int flags)
{
    struct stat status;
    int error = file_status_at(path, &status);
    if (error)
        return error == -ENOENT ? -ESTALE : error;
    if (!S_ISREG(status.st_mode) || status.st_ino != mapping->inode)
        return -ESTALE;
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    if (file_status(fd, &status) == 0 && status.st_ino == mapping->inode)
        return fd;
    close(fd);
    return -ESTALE;
}

/* The kernel's own link to the mapped file needs root's rights. Else a container's path means what
 * it means there through the process's root, or here where the process is in a chroot. */
int mapped_open(unsigned pid, const struct mapping *mapping, const char *path, int flags)
{
    char name[PATH_MAX + 64];
    snprintf(name, sizeof(name), "/proc/%u/map_files/%" PRIx64 "-%" PRIx64, pid, mapping->start,
        mapping->end);
    int fd = open(name, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0)
        return file_raise(fd);
    snprintf(name, sizeof(name), "/proc/%u/root%s", pid, path);
    fd = open_if_mapped(name, mapping, flags);
    if (fd == -ESTALE)
        fd = open_if_mapped(path, mapping, flags);
    return fd < 0 ? fd : file_raise(fd);
}

/* Lines of a file, up to one that does not fit. */
struct lines {
    int fd;
    size_t start, end;
    char text[4 * PATH_MAX];
};

static void fill(struct lines *lines)
{
    memmove(lines->text, lines->text + lines->start, lines->end - lines->start);
    lines->end -= lines->start;
    lines->start = 0;
    while (lines->end < sizeof(lines->text)) {
        ssize_t got = read(lines->fd, lines->text + lines->end, sizeof(lines->text) - lines->end);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return;
        lines->end += (size_t)got;
    }
}

/* NULL at the end. The rest of a line that is too long would be taken for a line of its own. */
static char *next_line(struct lines *lines)
{
    char *line = lines->text + lines->start;
    if (!memchr(line, '\n', lines->end - lines->start)) {
        fill(lines);
        line = lines->text;
    }
    char *end = memchr(line, '\n', lines->end - lines->start);
    if (!end)
        return NULL;
    *end = '\0';
    lines->start = (size_t)(end + 1 - lines->text);
    return line;
}

int mapped_each(unsigned pid, mapped_visit *visit, void *context)
{
    char name[64];
    struct lines lines;
    struct mapping mapping;
    const char *path;
    snprintf(name, sizeof(name), "/proc/%u/maps", pid);
    lines.start = lines.end = 0;
    lines.fd = open(name, O_RDONLY | O_CLOEXEC);
    if (lines.fd < 0)
        return -errno;
    for (char *line; (line = next_line(&lines)) != NULL;) {
        /* What shares nothing is no region: the fields need not be read. */
        const char *rights = strchr(line, ' ');
        if (rights && strlen(rights) > 5 && rights[4] == 's' &&
            is_region_mapping(line, &mapping, &path) && !visit(pid, &mapping, path, context))
            break;
    }
    close(lines.fd);
    return 0;
}
