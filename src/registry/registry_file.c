/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, checking and making a registry's file. Not the region's way in one point: the name lies
 * in a directory of other containers' users, who may see the file at any moment, so it is linked
 * when it is whole. Hard links to it are let be: nothing is written into what is not a registry
 * already. */
#include "registry/registry_file.h"

#include "base/file.h"
#include "registry/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_TRIES 10
#define REGISTRY_BYTES ((off_t)sizeof(struct vgpu_board))
#define PIECE_BYTES 1024
_Static_assert(sizeof(struct vgpu_board) % PIECE_BYTES == 0, "in whole pieces");

/* What never changes of the head. */
struct head {
    uint64_t magic;
    uint32_t version, byte_order;
    uint64_t size;
};
_Static_assert(sizeof(struct head) == offsetof(struct vgpu_board, slot_entries), "as laid out");

static const struct head whole_head = {.magic = VGPU_BOARD_MAGIC,
    .version = VGPU_BOARD_VERSION,
    .byte_order = VGPU_BOARD_BYTE_ORDER,
    .size = sizeof(struct vgpu_board)};

static bool is_plain(const char *text)
{
    for (; *text; text++) {
        bool letter = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z');
        if (!letter && !(*text >= '0' && *text <= '9') && *text != '-')
            return false;
    }
    return true;
}

int registry_file_path(const char *directory, const char *uuid, char *ret_path, size_t path_bytes)
{
    if (!*directory)
        return -ENOENT;
    if (!*uuid || !is_plain(uuid))
        return -EINVAL;
    int length = snprintf(ret_path, path_bytes, "%s/" VGPU_BOARD_FILE_PREFIX "%s", directory, uuid);
    return (size_t)length < path_bytes ? 0 : -ENAMETOOLONG;
}

/* Over all of it: so its storage exists before it is written through a mapping. In pieces, because
 * the program's thread may have a small stack. */
static int write_whole(int fd)
{
    char piece[PIECE_BYTES] = {0};
    if (!file_may_reach(REGISTRY_BYTES))
        return -EFBIG;
    memcpy(piece, &whole_head, sizeof(whole_head));
    for (off_t at = 0; at < REGISTRY_BYTES; at += PIECE_BYTES) {
        ssize_t written = file_write_at(fd, piece, PIECE_BYTES, at);
        if (written != PIECE_BYTES)
            return written < 0 ? (int)written : -ENOSPC;
        memset(piece, 0, sizeof(whole_head));
    }
    return 0;
}

/* Writes nothing that another process that mends it, or works on it already, could miss: the head's
 * words that never change, and a byte behind the last slot's words that grows the file, but never
 * cuts it. */
static int mend(int fd)
{
    if (!file_may_reach(REGISTRY_BYTES))
        return -EFBIG;
    ssize_t written = file_write_at(fd, "", 1, REGISTRY_BYTES - 1);
    int error = written < 0 ? (int)written : file_reserve(fd, 0, REGISTRY_BYTES);
    if (error)
        return error;
    written = file_write_at(fd, &whole_head, sizeof(whole_head), 0);
    if (written < 0)
        return (int)written;
    return written == (ssize_t)sizeof(whole_head) ? 0 : -ENOSPC;
}

static int check_contents(int fd, const struct stat *status, bool make)
{
    struct head seen = {0};
    ssize_t bytes = pread(fd, &seen, sizeof(seen), 0);
    if (bytes < 0)
        return -errno;
    /* Also the beginning of a head, of a file that was cut off there. */
    bool known = memcmp(&seen, &whole_head, (size_t)bytes) == 0;
    if (known && status->st_size >= REGISTRY_BYTES)
        return 0;
    return make && (known ||
                       (status->st_size <= REGISTRY_BYTES && file_is_blank(fd, status->st_size)))
               ? mend(fd)
               : -EPROTO;
}

/* Looked at before it is opened, because opening a device or a pipe can do things by itself, and
 * again after, because it may have been exchanged. O_NONBLOCK: also where another has a lease. */
static int open_existing(const char *path, bool make)
{
    struct stat status;
    int error = file_status_at(path, &status);
    if (error)
        return error;
    if (!S_ISREG(status.st_mode))
        return S_ISLNK(status.st_mode) ? -ELOOP : -EPROTO;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    error = file_status(fd, &status);
    if (!error)
        error = S_ISREG(status.st_mode) ? check_contents(fd, &status, make) : -EPROTO;
    if (error) {
        close(fd);
        return error;
    }
    return fd;
}

static int fill(int fd)
{
    if (fchmod(fd, 0666) != 0)
        return -errno;
    return write_whole(fd);
}

/* Without a name until it is linked: a process that is killed leaves nothing behind. */
static int make_unnamed(const char *directory, const char *path)
{
    char self[64];
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    int error = fill(fd);
    if (!error && linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) != 0)
        error = -errno;
    close(fd);
    return error;
}

static int make_named(const char *path)
{
    char name[PATH_MAX + 32];
    snprintf(name, sizeof(name), "%s.%016llx", path, (unsigned long long)registry_tenant_new());
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    int error = fill(fd);
    if (!error && link(name, path) != 0)
        error = -errno;
    unlink(name);
    close(fd);
    return error;
}

/* Not every file system has files without a name, and linking them takes /proc. */
static int make_file(const char *path)
{
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(directory, sizeof(directory), "%.*s", slash ? (int)(slash - path) : 0, path);
    int error = make_unnamed(*directory ? directory : "/", path);
    if (file_is_unavailable(error) || error == -EISDIR || error == -EINVAL || error == -ENOENT)
        error = make_named(path);
    return error == -EEXIST ? 0 : error;
}

/* Somebody may delete it between two of these steps. */
int registry_file_open(const char *path, bool make)
{
    int fd = open_existing(path, make);
    for (int i = 0; fd == -ENOENT && make && i < OPEN_TRIES; i++) {
        int error = make_file(path);
        if (error)
            return error;
        fd = open_existing(path, make);
    }
    return fd < 0 ? fd : file_raise(fd);
}
