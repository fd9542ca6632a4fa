/* SPDX-License-Identifier: Apache-2.0 */
/* Removing what Pods left that are gone. The directories are the containers' own to write: nothing
 * in them is followed or trusted. */
#include "base/clock.h"
#include "base/text.h"
#include "net/log_line.h"
#include "node/monitor/containers_parts.h"
#include "node/monitor/pod_names.h"
#include "region/region_read.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILES_AT_ONCE 1000 /* removed in one call */
#define DEPTH_MAX 16       /* of directories; one more is left, with a line */
#define KNOWN_MIN_S 10     /* a watch that has come back needs a while to tell what it missed */
#define LINES_MAX 64       /* about removals that fail */
#define SECOND_NS 1000000000ull

/* ---- whether a process lives in it ---- */

static int has_live_slot(int fd)
{
    struct region_reading reading;
    struct vgpu_slot slot;
    bool locked;
    int live = region_read(fd, &reading);
    if (live == -EPROTO || live == -EIO)
        return 0; /* nothing of ours can live in it */
    for (unsigned i = 0; live == 0 && i < reading.slot_bound; i++)
        live = region_read_slot(&reading, i, &slot, &locked);
    return live;
}

/* What cannot be told counts as alive. */
static bool is_used(const struct container *container)
{
    if (container->fd < 0 || container->kind == HAMI_REGION_NONE)
        return false;
    int used = container->kind == HAMI_REGION_VGPU
                   ? has_live_slot(container->fd)
                   : hami_region_is_used(container->fd, container->kind);
    return used != 0 && used != -EIO;
}

/* ---- removing ---- */

static int remove_below(int directory, unsigned depth, unsigned *left);

static int remove_item(int directory, const char *name, unsigned depth, unsigned *left)
{
    if (!*left)
        return -EAGAIN;
    --*left;
    if (unlinkat(directory, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    if (depth >= DEPTH_MAX)
        return -ELOOP;
    int below = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = below < 0 ? -errno : remove_below(below, depth + 1, left);
    if (!error && unlinkat(directory, name, AT_REMOVEDIR) != 0)
        error = -errno;
    return error;
}

/* Takes the descriptor. */
static int remove_below(int directory, unsigned depth, unsigned *left)
{
    DIR *list = fdopendir(directory);
    int error = 0;
    if (!list) {
        error = -errno;
        close(directory);
        return error;
    }
    for (struct dirent *item; !error && (item = readdir(list)) != NULL;)
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0)
            error = remove_item(dirfd(list), item->d_name, depth, left);
    closedir(list);
    return error;
}

static int remove_directory(const char *parent, const char *name, unsigned *left)
{
    int at = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return -errno;
    int directory = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = directory < 0 ? -errno : remove_below(directory, 0, left);
    if (!error && unlinkat(at, name, AT_REMOVEDIR) != 0)
        error = -errno;
    close(at);
    return error;
}

/* The time as files have it. A clock that was set back makes nothing old. */
static bool is_older(const struct containers *containers, const char *name, uint64_t age_s)
{
    char path[PATH_MAX + CONTAINERS_NAME_BYTES];
    struct stat status;
    size_t length = strlen(containers->path);
    memcpy(path, containers->path, length);
    path[length] = '/';
    memcpy(path + length + 1, name, strlen(name) + 1);
    return lstat(path, &status) == 0 &&
           (int64_t)time(NULL) - (int64_t)status.st_mtime > (int64_t)age_s;
}

static void say(struct containers *containers, const struct containers_entry *entry, int error)
{
    char name[3 * CONTAINERS_NAME_BYTES];
    text_escape(name, sizeof(name), entry->directory, strlen(entry->directory));
    if (!error)
        log_line(LOG_LINE_INFO, "containers: %s is removed: its Pod is gone", name);
    else if (error != -EAGAIN && error != -ENOTEMPTY && containers->removal_lines++ < LINES_MAX)
        log_line(LOG_LINE_WARNING, "containers: %s cannot be removed: %s", name, strerror(-error));
}

static bool is_gone(const struct containers *containers, const struct containers_entry *entry,
    const struct pod_names *names, uint64_t age_s)
{
    return entry->container.pod_uid && !pod_names_find(names, entry->container.pod_uid) &&
           (entry->removing || is_older(containers, entry->directory, age_s)) &&
           !is_used(&entry->container);
}

void containers_remove_gone(
    struct containers *containers, const struct pod_names *names, uint64_t age_s)
{
    uint64_t known_ns = pod_names_known_ns(names, clock_now_ns());
    unsigned left = FILES_AT_ONCE;
    if (!known_ns || known_ns / SECOND_NS < (age_s < KNOWN_MIN_S ? age_s : KNOWN_MIN_S))
        return;
    for (size_t i = containers->count; i-- > 0 && left;) {
        struct containers_entry *entry = containers->entries[i];
        if (!is_gone(containers, entry, names, age_s))
            continue;
        int error = remove_directory(containers->path, entry->directory, &left);
        say(containers, entry, error);
        entry->removing = true;
        if (error)
            continue;
        containers->removed++;
        containers_drop(containers, i);
    }
}
