/* SPDX-License-Identifier: Apache-2.0 */
#include "net/file_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long long in_ns(struct timespec time)
{
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static struct file_stamp stamp_of(const struct stat *status)
{
    return (struct file_stamp){status->st_dev, status->st_ino, status->st_size,
        in_ns(status->st_mtim), in_ns(status->st_ctim)};
}

bool file_stamp_differs(const struct file_stamp *stamp, const char *path)
{
    struct stat status;
    if (stat(path, &status))
        return false;
    struct file_stamp now = stamp_of(&status);
    return now.device != stamp->device || now.inode != stamp->inode || now.size != stamp->size ||
           now.modified_ns != stamp->modified_ns || now.changed_ns != stamp->changed_ns;
}

/* Returns the number of bytes, or -errno. */
static ssize_t read_all(int fd, char *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = read(fd, data + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

static int read_open(
    int fd, size_t bytes_max, char **ret_data, size_t *ret_bytes, struct file_stamp *ret_stamp)
{
    struct stat status;
    if (fstat(fd, &status))
        return -errno;
    if (!S_ISREG(status.st_mode))
        return -EINVAL;
    if (status.st_size > (off_t)bytes_max)
        return -EFBIG;
    /* One more than it should be, to notice that it has grown. */
    size_t room = (size_t)status.st_size + 1;
    char *data = malloc(room + 1);
    if (!data)
        return -ENOMEM;
    ssize_t bytes = read_all(fd, data, room);
    if (bytes < 0 || (size_t)bytes == room) {
        free(data);
        return bytes < 0 ? (int)bytes : -EAGAIN;
    }
    data[bytes] = 0;
    *ret_data = data;
    *ret_bytes = (size_t)bytes;
    if (ret_stamp)
        *ret_stamp = stamp_of(&status);
    return 0;
}

int file_read(const char *path, size_t bytes_max, char **ret_data, size_t *ret_bytes,
    struct file_stamp *ret_stamp, struct error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int failure = fd < 0 ? -errno : read_open(fd, bytes_max, ret_data, ret_bytes, ret_stamp);
    if (fd >= 0)
        close(fd);
    if (failure == -EFBIG)
        return error_set(error, EFBIG, "%s has more than %zu bytes", path, bytes_max);
    if (failure == -EINVAL)
        return error_set(error, EINVAL, "%s is not a regular file", path);
    if (failure)
        return error_set(error, -failure, "cannot read %s: %s", path, strerror(-failure));
    return 0;
}
