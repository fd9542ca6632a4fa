/* SPDX-License-Identifier: Apache-2.0 */
/* A region by its file's name, by a process that maps it, or by the environment. */
#include "tool/choose.h"

#include "base/config_process.h"
#include "base/file.h"
#include "base/parse.h"
#include "region/region_file.h"
#include "region/region_set.h"
#include "tool/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PID_MAX 4194304u /* the kernel's own largest */

static const char *explain(int error)
{
    switch (error) {
    case -EPROTO:
        return "it is not a region of this version";
    case -ELOOP:
        return "it is a symbolic link";
    case -EPERM:
        return "it is another user's";
    case -ESTALE:
        return "it was deleted; its processes make it anew when they next use the GPU";
    default:
        return strerror(-error);
    }
}

static int refuse(const struct chosen_region *chosen, int error)
{
    tool_error(
        "cannot use the region %.256s (%s): %s", chosen->path, chosen->reason, explain(error));
    return TOOL_FAILED;
}

static int open_path(struct chosen_region *chosen)
{
    int fd = region_file_open(chosen->path, false);
    int error = fd < 0 ? fd : region_set_open(&chosen->region, fd);
    return error ? refuse(chosen, error) : 0;
}

static int choose_file(const char *file, struct chosen_region *chosen)
{
    if (!*file || strlen(file) >= sizeof(chosen->path)) {
        tool_error("--region \"%.256s\" is not accepted; accepted: the path of a file", file);
        return TOOL_USAGE;
    }
    snprintf(chosen->path, sizeof(chosen->path), "%s", file);
    snprintf(chosen->reason, sizeof(chosen->reason), "named by --region");
    return open_path(chosen);
}

/* Only what says where the region lies: complaints about a limit's variable are none of ours. */
static char *find_region_variable(const char *name)
{
    return strcmp(name, "CUDA_DEVICE_MEMORY_SHARED_CACHE") ? NULL : config_process_lookup(name);
}

static int choose_by_environment(struct chosen_region *chosen)
{
    struct config config;
    config_process_look();
    config_read(&config, find_region_variable);
    const char *reason = config.region_named ? "named by CUDA_DEVICE_MEMORY_SHARED_CACHE"
                                             : "the default; --region or --pid name another";
    if (region_file_is_pinned())
        reason = "root's, which holds everywhere here";
    snprintf(chosen->reason, sizeof(chosen->reason), "%s", reason);
    snprintf(chosen->path, sizeof(chosen->path), "%s", config.region_path);
    char path[sizeof(chosen->region.path)];
    int error = region_file_path(&config, path, sizeof(path));
    if (!error && strlen(path) >= sizeof(chosen->path))
        error = -ENAMETOOLONG;
    if (error)
        return refuse(chosen, error);
    memcpy(chosen->path, path, strlen(path) + 1);
    return open_path(chosen);
}

/* A line of /proc/PID/maps that maps a region. */
struct mapping {
    uint64_t start, end, inode;
};

/* The path begins where the line's sixth field does; a newline in it is written as \012. */
static bool is_region_mapping(const char *line, struct mapping *ret_mapping, const char **ret_path)
{
    char shared;
    uint64_t offset;
    int behind = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*c%*c%*c%c %" SCNx64 " %*x:%*x %" SCNu64 " %n",
            &ret_mapping->start, &ret_mapping->end, &shared, &offset, &ret_mapping->inode,
            &behind) != 5 ||
        !behind || shared != 's' || offset != VGPU_REGION_MAP_OFFSET || line[behind] != '/')
        return false;
    *ret_path = line + behind;
    return ret_mapping->end - ret_mapping->start >= sizeof(struct vgpu_region_map);
}

/* Opens what lies at the path if it is the file that is mapped. */
static int open_if_mapped(const char *path, const struct mapping *mapping)
{
    struct stat status;
    int error = file_status_at(path, &status);
    if (error)
        return error == -ENOENT ? -ESTALE : error;
    if (!S_ISREG(status.st_mode) || status.st_ino != mapping->inode)
        return -ESTALE;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    if (file_status(fd, &status) == 0 && status.st_ino == mapping->inode)
        return fd;
    close(fd);
    return -ESTALE;
}

/* The kernel's own link to the mapped file needs root's rights. Else a container's path means what
 * it means there through the process's root, or here where the process is in a chroot. */
static int open_mapping(unsigned pid, const struct mapping *mapping, const char *path)
{
    char name[PATH_MAX + 64];
    snprintf(name, sizeof(name), "/proc/%u/map_files/%" PRIx64 "-%" PRIx64, pid, mapping->start,
        mapping->end);
    int fd = open(name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0)
        return fd;
    snprintf(name, sizeof(name), "/proc/%u/root%s", pid, path);
    fd = open_if_mapped(name, mapping);
    return fd == -ESTALE ? open_if_mapped(path, mapping) : fd;
}

/* Lines of a file, up to one that does not fit. */
struct lines {
    int fd;
    size_t start, end;
    char text[2 * PATH_MAX];
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

/* The first region that the process maps. 0, -ENODATA where it maps none, or another -errno. */
static int open_mapped(unsigned pid, struct chosen_region *chosen)
{
    char name[64];
    struct lines lines = {0};
    int error = -ENODATA;
    snprintf(name, sizeof(name), "/proc/%u/maps", pid);
    lines.fd = open(name, O_RDONLY | O_CLOEXEC);
    if (lines.fd < 0)
        return -errno;
    for (char *line; error == -ENODATA && (line = next_line(&lines));) {
        struct mapping mapping;
        const char *path;
        if (!is_region_mapping(line, &mapping, &path))
            continue;
        snprintf(chosen->path, sizeof(chosen->path), "%.*s", PATH_MAX - 1, path);
        int fd = open_mapping(pid, &mapping, path);
        error = fd < 0 ? fd : region_set_open(&chosen->region, fd);
    }
    close(lines.fd);
    return error;
}

static int choose_by_pid(const char *text, struct chosen_region *chosen)
{
    uint64_t pid;
    if (parse_number(text, PID_MAX, &pid) != 0 || !pid) {
        tool_error("--pid \"%.64s\" is not accepted; accepted: a process's number", text);
        return TOOL_USAGE;
    }
    snprintf(chosen->reason, sizeof(chosen->reason), "of process %" PRIu64, pid);
    int error = open_mapped((unsigned)pid, chosen);
    if (error && chosen->path[0])
        return refuse(chosen, error);
    if (error == -ENODATA)
        tool_error("process %" PRIu64 " has no region: it runs without vgpu, or has not used the "
                   "GPU yet",
            pid);
    else if (error == -ENOENT || error == -ESRCH)
        tool_error("there is no process %" PRIu64, pid);
    else if (error)
        tool_error("process %" PRIu64 " cannot be looked at: %s", pid, strerror(-error));
    return error ? TOOL_FAILED : 0;
}

int region_choose(const struct region_choice *choice, struct chosen_region *ret_chosen)
{
    *ret_chosen = (struct chosen_region){.region = {.fd = -1, .slot = -1}};
    if (choice->file && choice->pid) {
        tool_error("--region and --pid exclude each other");
        return TOOL_USAGE;
    }
    if (choice->file)
        return choose_file(choice->file, ret_chosen);
    return choice->pid ? choose_by_pid(choice->pid, ret_chosen) : choose_by_environment(ret_chosen);
}
