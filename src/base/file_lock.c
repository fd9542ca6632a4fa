/* SPDX-License-Identifier: Apache-2.0 */
/* Open-file-description locks by fcntl. */
#include "base/file_lock.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/sleep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

static struct flock byte_lock(short type, off_t byte)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
}

static int control(int fd, int command, struct flock *lock)
{
    int errno_kept = errno;
    int error = fcntl(fd, command, lock) == 0 ? 0 : -errno;
    errno = errno_kept;
    return error;
}

/* A lock that another holds is EAGAIN on Linux, never EACCES. A network file system without a lock
 * service says ENOLCK. */
static int take(int fd, short type, off_t byte)
{
    struct flock lock = byte_lock(type, byte);
    int error = control(fd, F_OFD_SETLK, &lock);
    return file_is_unavailable(error) || error == -ENOLCK ? -EINVAL : error;
}

int file_lock_take(int fd, off_t byte)
{
    return take(fd, F_WRLCK, byte);
}

int file_lock_share(int fd, off_t byte)
{
    return take(fd, F_RDLCK, byte);
}

int file_lock_wait(int fd, off_t byte, uint64_t wait_ns)
{
    uint64_t start = clock_now_ns();
    for (;;) {
        int error = file_lock_take(fd, byte);
        if (error == -EINVAL)
            return 0;
        if (error != -EAGAIN && error != -EINTR)
            return error;
        if (clock_now_ns() - start > wait_ns)
            return -ETIMEDOUT;
        sleep_ns(200000);
    }
}

void file_lock_drop(int fd, off_t byte)
{
    struct flock lock = byte_lock(F_UNLCK, byte);
    (void)control(fd, F_OFD_SETLK, &lock);
}

int file_lock_held(int fd, off_t byte)
{
    struct flock lock = byte_lock(F_WRLCK, byte);
    int error = control(fd, F_OFD_GETLK, &lock);
    if (error)
        return error;
    return lock.l_type != F_UNLCK;
}
