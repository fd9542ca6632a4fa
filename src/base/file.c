/* SPDX-License-Identifier: Apache-2.0 */
/* fstat and lstat by system call. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

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
