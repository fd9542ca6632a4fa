/* SPDX-License-Identifier: Apache-2.0 */
/* Files, by descriptor and by path. */
#include "base/file.h"

#include "base/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLANK_PIECE_BYTES 4096
#define DESCRIPTOR_FLOOR 300
#define STANDARD_FLOOR 3 /* below it programs write text, and their parents close */

bool file_is_unavailable(int error)
{
    return error == -ENOSYS || error == -EPERM || error == -EACCES || error == -EOPNOTSUPP;
}

static int status_of(long result)
{
    return result == 0 ? 0 : -errno;
}

int file_status(int fd, struct stat *ret_status)
{
    int errno_kept = errno;
    /* The kernel's structure is the C library's on 64-bit machines. */
    int error = status_of(syscall(SYS_fstat, fd, ret_status));
    if (file_is_unavailable(error))
        error = status_of(syscall(SYS_newfstatat, fd, "", ret_status, AT_EMPTY_PATH));
    errno = errno_kept;
    return error;
}

/* What is opened so may be anything, and is not touched. */
static int status_by_descriptor(const char *path, struct stat *ret_status)
{
    int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int error = status_of(syscall(SYS_fstat, fd, ret_status));
    close(fd);
    return error;
}

int file_status_at(const char *path, struct stat *ret_status)
{
    int errno_kept = errno;
    int error = status_of(syscall(SYS_newfstatat, AT_FDCWD, path, ret_status, AT_SYMLINK_NOFOLLOW));
    if (file_is_unavailable(error))
        error = status_by_descriptor(path, ret_status);
    errno = errno_kept;
    return error;
}

/* Where the limit cannot be told it may be any. */
static bool is_within_limit(off_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= (rlim_t)bytes);
}

/* What may make a file longer, and so raise SIGXFSZ. tmpfs raises it also where storage is asked
 * for behind the file's end. */
struct growth {
    enum { GROWTH_RESERVE, GROWTH_SIZE, GROWTH_WRITE } by;
    int fd;
    off_t offset;
    size_t bytes;
    const void *data;
};

static ssize_t grow_once(const struct growth *growth)
{
    switch (growth->by) {
    case GROWTH_RESERVE:
        return fallocate(growth->fd, FALLOC_FL_KEEP_SIZE, growth->offset, (off_t)growth->bytes);
    case GROWTH_SIZE:
        return ftruncate(growth->fd, growth->offset + (off_t)growth->bytes);
    default:
        return pwrite(growth->fd, growth->data, growth->bytes, growth->offset);
    }
}

static ssize_t grow_uninterrupted(const struct growth *growth)
{
    ssize_t result;
    do {
        result = grow_once(growth);
    } while (result < 0 && errno == EINTR);
    return result < 0 ? -errno : result;
}

static ssize_t grow(const struct growth *growth)
{
    struct hold hold;
    if (is_within_limit(growth->offset + (off_t)growth->bytes))
        return grow_uninterrupted(growth);
    if (!hold_begin(&hold))
        return -EFBIG;
    ssize_t result = grow_uninterrupted(growth);
    hold_end(&hold, result == -EFBIG ? SIGXFSZ : 0);
    return result;
}

int file_reserve(int fd, off_t offset, off_t bytes)
{
    int error = (int)grow(
        &(struct growth){.by = GROWTH_RESERVE, .fd = fd, .offset = offset, .bytes = (size_t)bytes});
    return file_is_unavailable(error) ? 0 : error;
}

ssize_t file_write_at(int fd, const void *data, size_t bytes, off_t offset)
{
    return grow(&(struct growth){
        .by = GROWTH_WRITE, .fd = fd, .offset = offset, .bytes = bytes, .data = data});
}

/* Where only writing makes a file longer, its last byte does. */
int file_lengthen(int fd, off_t bytes)
{
    ssize_t error = grow(&(struct growth){.by = GROWTH_SIZE, .fd = fd, .bytes = (size_t)bytes});
    if (file_is_unavailable((int)error))
        error = file_write_at(fd, "", 1, bytes - 1);
    return error < 0 ? (int)error : 0;
}

ssize_t file_write(int fd, const void *data, size_t bytes)
{
    struct hold hold;
    bool held = hold_begin(&hold);
    ssize_t written = write(fd, data, bytes);
    int error = written < 0 ? errno : 0;
    if (held)
        hold_end(&hold, error == EFBIG ? SIGXFSZ : error == EPIPE ? SIGPIPE : 0);
    return error ? -error : written;
}

static int write_zeroes(int fd, off_t bytes)
{
    static const char zeroes[16384];
    for (off_t at = 0; at < bytes;) {
        size_t most = sizeof(zeroes), left = (size_t)(bytes - at);
        ssize_t written = file_write_at(fd, zeroes, left < most ? left : most, at);
        if (written < 0)
            return (int)written;
        at += written;
    }
    return 0;
}

int file_blank(int fd, off_t bytes)
{
    int result;
    do {
        result =
            bytes > 0 ? fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes) : 0;
    } while (result != 0 && errno == EINTR);
    if (result == 0)
        return 0;
    return file_is_unavailable(-errno) ? write_zeroes(fd, bytes) : -errno;
}

bool file_is_blank(int fd, off_t bytes)
{
    static const char zeros[BLANK_PIECE_BYTES];
    char piece[BLANK_PIECE_BYTES];
    if (lseek(fd, 0, SEEK_DATA) < 0 && errno == ENXIO)
        return true;
    for (off_t at = 0; at < bytes; at += BLANK_PIECE_BYTES) {
        size_t left = (size_t)(bytes - at);
        ssize_t got = pread(fd, piece, left < sizeof(piece) ? left : sizeof(piece), at);
        if (got < 0 || memcmp(piece, zeros, (size_t)got) != 0)
            return false;
    }
    return true;
}

int file_raise(int fd)
{
    struct rlimit limit;
    bool few = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur <= DESCRIPTOR_FLOOR + 16;
    if (few && fd >= STANDARD_FLOOR)
        return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, few ? STANDARD_FLOOR : DESCRIPTOR_FLOOR);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

bool file_may_reach(off_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           limit.rlim_cur >= (rlim_t)bytes;
}

int file_replace(int former, int fd)
{
    if (former < 0)
        return fd;
    bool replaced = dup3(fd, former, O_CLOEXEC) >= 0;
    close(replaced ? fd : former);
    return replaced ? former : fd;
}
