/* SPDX-License-Identifier: Apache-2.0 */
/* Files, by descriptor and by path. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DESCRIPTOR_FLOOR 300
#define STANDARD_FLOOR 3 /* below it programs write text, and their parents close */

int file_status(int fd, struct stat *ret_status)
{
    int errno_kept = errno;
    /* The kernel's structure is the C library's on 64-bit machines. */
    int error = syscall(SYS_fstat, fd, ret_status) == 0 ? 0 : -errno;
    errno = errno_kept;
    return error;
}

int file_status_at(const char *path, struct stat *ret_status)
{
    int errno_kept = errno;
    int error =
        syscall(SYS_newfstatat, AT_FDCWD, path, ret_status, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
    errno = errno_kept;
    return error;
}

int file_reserve(int fd, off_t offset, off_t bytes)
{
    int result;
    do {
        result = fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, bytes);
    } while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : -errno;
}

int file_set_size(int fd, off_t bytes)
{
    int result;
    do {
        result = ftruncate(fd, bytes);
    } while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : -errno;
}

static int write_zeroes(int fd, off_t bytes)
{
    static const char zeroes[4096];
    for (off_t at = 0; at < bytes;) {
        size_t most = sizeof(zeroes), left = (size_t)(bytes - at);
        ssize_t written = pwrite(fd, zeroes, left < most ? left : most, at);
        if (written < 0 && errno != EINTR)
            return -errno;
        at += written > 0 ? written : 0;
    }
    return 0;
}

int file_blank(int fd, off_t bytes)
{
    int result;
    do {
        result = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes);
    } while (result != 0 && errno == EINTR);
    if (result == 0)
        return 0;
    return errno == EOPNOTSUPP || errno == ENOSYS ? write_zeroes(fd, bytes) : -errno;
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
