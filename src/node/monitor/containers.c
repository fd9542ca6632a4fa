/* SPDX-License-Identifier: Apache-2.0 */
#include "node/monitor/containers.h"

#include "base/text.h"
#include "net/log_line.h"
#include "node/monitor/containers_parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES_MAX 1024 /* in a container's directory: more are not looked through */
#define SUFFIX ".cache"

void containers_report(
    struct containers *containers, const struct container *container, const char *what, int error)
{
    struct containers_entry *entry = (struct containers_entry *)(uintptr_t)container;
    char name[3 * CONTAINERS_NAME_BYTES];
    (void)containers;
    if (entry->last_error == error || entry->lines >= CONTAINERS_LINES_MAX)
        return;
    entry->last_error = error;
    entry->lines++;
    text_escape(name, sizeof(name), entry->directory, strlen(entry->directory));
    log_line(LOG_LINE_WARNING, "containers: %s: %s: %s", name, what,
        error == -EPROTO ? "it is no region that is known"
        : error == -EIO  ? "the file is shorter than a region"
                         : strerror(-error));
}

void containers_close(struct containers_entry *entry)
{
    if (entry->container.fd >= 0)
        close(entry->container.fd);
    entry->container.fd = -1;
    entry->container.kind = HAMI_REGION_NONE;
}

void containers_drop(struct containers *containers, size_t at)
{
    containers_close(containers->entries[at]);
    free(containers->entries[at]);
    memmove(&containers->entries[at], &containers->entries[at + 1],
        (--containers->count - at) * sizeof(struct containers_entry *));
}

/* ---- the region's file ---- */

/* By a descriptor that opens nothing first: opening a device or a pipe can do things by itself, and
 * the name may lead to another file a moment later. */
static int open_file(int at, const char *name, bool *ret_may_write, struct stat *ret_status)
{
    char path[64];
    int place = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (place < 0)
        return -errno;
    int fd = fstat(place, ret_status) != 0 ? -errno : S_ISREG(ret_status->st_mode) ? 0 : -EPROTO;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", place);
    *ret_may_write = true;
    if (fd == 0)
        fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && (errno == EACCES || errno == EROFS || errno == EPERM)) {
        *ret_may_write = false;
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    }
    if (fd == -1)
        fd = -errno;
    close(place);
    return fd;
}

static bool ends_in(const char *name, const char *suffix)
{
    size_t length = strlen(name), end = strlen(suffix);
    return length > end && !strcmp(name + length - end, suffix);
}

/* The one file *.cache; -ENOENT: none yet, -EEXIST: there are several, -E2BIG: too many files. */
static int find_file(int directory, char name[CONTAINERS_NAME_BYTES])
{
    int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), result = -ENOENT;
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    unsigned count = 0;
    if (!list) {
        result = -errno;
        if (copy >= 0)
            close(copy);
        return result;
    }
    for (struct dirent *item; (item = readdir(list)) != NULL && result != -EEXIST;) {
        if (++count > FILES_MAX) {
            result = -E2BIG;
            break;
        }
        if (!ends_in(item->d_name, SUFFIX))
            continue;
        result = result == 0 ? -EEXIST : 0;
        snprintf(name, CONTAINERS_NAME_BYTES, "%s", item->d_name);
    }
    closedir(list);
    return result;
}

/* Whether the name still leads to the open file. */
static bool is_open(const struct containers_entry *entry, int at, const char *name)
{
    struct stat status;
    return entry->container.fd >= 0 && fstatat(at, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           status.st_ino == entry->file_status.st_ino && status.st_dev == entry->file_status.st_dev;
}

static void open_region(
    struct containers *containers, struct containers_entry *entry, int at, const char *name)
{
    if (is_open(entry, at, name))
        return;
    containers_close(entry);
    int fd = open_file(at, name, &entry->container.may_write, &entry->file_status);
    entry->container.fd = fd < 0 ? -1 : fd;
    if (fd < 0 && fd != -ENOENT)
        containers_report(containers, &entry->container, "the region's file", fd);
}

static bool has_changed(struct containers_entry *entry, int directory)
{
    struct stat status;
    if (fstat(directory, &status) != 0)
        return true;
    bool changed = status.st_mtim.tv_sec != entry->changed.tv_sec ||
                   status.st_mtim.tv_nsec != entry->changed.tv_nsec;
    entry->changed = status.st_mtim;
    return changed;
}

/* The directory's files are looked through only where it has changed, or the file is gone. */
static void look_in_directory(
    struct containers *containers, struct containers_entry *entry, int directory)
{
    const struct containers_record *record =
        containers_records_find(&containers->records, entry->directory);
    bool changed = has_changed(entry, directory);
    if (record && *record->cache) {
        open_region(containers, entry, directory, record->cache);
        return;
    }
    if (changed || (*entry->file && !is_open(entry, directory, entry->file))) {
        *entry->file = '\0';
        int error = find_file(directory, entry->file);
        if (error) {
            *entry->file = '\0';
            containers_close(entry);
        }
        if (error && error != -ENOENT)
            containers_report(containers, &entry->container,
                error == -EEXIST ? "more than one file *" SUFFIX : "its files", error);
    }
    if (*entry->file)
        open_region(containers, entry, directory, entry->file);
}

/* The account is the region by a name that the container does not reach: it wins. */
static bool look_at_account(struct containers *containers, struct containers_entry *entry)
{
    char path[PATH_MAX];
    struct stat status;
    int length =
        snprintf(path, sizeof(path), "%s/%s/account", containers->grants_path, entry->grant);
    if (!*entry->grant || length >= (int)sizeof(path) || lstat(path, &status) != 0)
        return false;
    open_region(containers, entry, AT_FDCWD, path);
    return true;
}

static void look_at_kind(struct containers *containers, struct containers_entry *entry)
{
    if (entry->container.fd < 0)
        return;
    int kind = hami_region_kind(entry->container.fd);
    if (kind < 0)
        containers_report(containers, &entry->container, "the region's file", kind);
    else
        entry->last_error = 0;
    entry->container.kind = kind < 0 ? HAMI_REGION_NONE : (enum hami_region_kind)kind;
}

/* ---- the directories ---- */

/* `<Pod's UID>_<container>`: neither has an underscore. */
static void take_identity(struct containers *containers, struct containers_entry *entry)
{
    const struct containers_record *record =
        containers_records_find(&containers->records, entry->directory);
    const char *bar = strchr(entry->directory, '_');
    bool named = bar && bar > entry->directory && bar[1] && !strchr(bar + 1, '_');
    *entry->grant = *entry->uid = *entry->name = '\0';
    if (record) {
        memcpy(entry->grant, record->id, sizeof(entry->grant));
        memcpy(entry->uid, record->pod_uid, sizeof(entry->uid));
        memcpy(entry->name, record->container, sizeof(entry->name));
    } else if (named) {
        snprintf(entry->uid, sizeof(entry->uid), "%.*s", (int)(bar - entry->directory),
            entry->directory);
        snprintf(entry->name, sizeof(entry->name), "%s", bar + 1);
    }
    entry->container.grant = *entry->grant ? entry->grant : NULL;
    entry->container.pod_uid = *entry->uid ? entry->uid : NULL;
    entry->container.container_name = *entry->name ? entry->name : NULL;
}

static struct containers_entry *add_entry(struct containers *containers, const char *directory)
{
    if (containers->count == containers->room) {
        size_t room = containers->room ? 2 * containers->room : 64;
        struct containers_entry **entries =
            realloc(containers->entries, room * sizeof(struct containers_entry *));
        if (!entries)
            return NULL;
        containers->entries = entries;
        containers->room = room;
    }
    struct containers_entry *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return NULL;
    snprintf(entry->directory, sizeof(entry->directory), "%s", directory);
    entry->container.directory = entry->directory;
    entry->container.fd = -1;
    return containers->entries[containers->count++] = entry;
}

static struct containers_entry *entry_of(struct containers *containers, const char *directory)
{
    for (size_t i = 0; i < containers->count; i++)
        if (!strcmp(containers->entries[i]->directory, directory))
            return containers->entries[i];
    if (containers->count < CONTAINERS_MAX)
        return add_entry(containers, directory);
    if (!containers->said_many)
        log_line(LOG_LINE_WARNING, "containers: %s has more than %d directories: not all are read",
            containers->path, CONTAINERS_MAX);
    containers->said_many = true;
    return NULL;
}

static void look_at(struct containers *containers, int parent, const char *name)
{
    int directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct containers_entry *entry = directory < 0 ? NULL : entry_of(containers, name);
    if (entry) {
        entry->seen = true;
        take_identity(containers, entry);
        if (!look_at_account(containers, entry))
            look_in_directory(containers, entry, directory);
        look_at_kind(containers, entry);
    }
    if (directory >= 0)
        close(directory);
}

void containers_scan(struct containers *containers)
{
    DIR *list = opendir(containers->path);
    containers_records_scan(&containers->records, containers->grants_path);
    if (!list && errno != ENOENT)
        return;
    for (size_t i = 0; i < containers->count; i++)
        containers->entries[i]->seen = false;
    for (struct dirent *item; list && (item = readdir(list)) != NULL;)
        if (item->d_name[0] != '.')
            look_at(containers, dirfd(list), item->d_name);
    if (list)
        closedir(list);
    for (size_t i = containers->count; i-- > 0;)
        if (!containers->entries[i]->seen)
            containers_drop(containers, i);
}

struct containers *containers_create(const char *hook_path, struct error *error)
{
    struct containers *containers = calloc(1, sizeof(*containers));
    if (!containers) {
        error_set(error, ENOMEM, "no memory for the containers");
        return NULL;
    }
    SLIST_INIT(&containers->records);
    int longest = snprintf(containers->path, sizeof(containers->path), "%s/containers", hook_path);
    snprintf(containers->grants_path, sizeof(containers->grants_path), "%s/grants", hook_path);
    if (longest + 2 * CONTAINERS_NAME_BYTES < (int)sizeof(containers->path))
        return containers;
    error_set(error, ENAMETOOLONG, "%.100s...: the path is too long", hook_path);
    containers_destroy(containers);
    return NULL;
}

void containers_destroy(struct containers *containers)
{
    if (!containers)
        return;
    while (containers->count)
        containers_drop(containers, containers->count - 1);
    containers_records_free(&containers->records);
    free(containers->entries);
    free(containers);
}

size_t containers_count(const struct containers *containers)
{
    return containers->count;
}

const struct container *containers_at(const struct containers *containers, size_t at)
{
    return &containers->entries[at]->container;
}

bool containers_grant_path(
    const struct containers *containers, const struct container *container, char *path, size_t size)
{
    int length = container->grant ? snprintf(path, size, "%s/%s/limits.d", containers->grants_path,
                                        container->grant)
                                  : -1;
    return length >= 0 && (size_t)length < size;
}

uint64_t containers_removed(const struct containers *containers)
{
    return containers->removed;
}
