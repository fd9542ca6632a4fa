/* SPDX-License-Identifier: Apache-2.0 */
#include "net/unix_socket.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define QUEUE 64
#define CLAIM_TRIES 3

static int make_address(const char *path, struct sockaddr_un *ret_address, struct error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (!length || length >= sizeof(address.sun_path))
        return error_set(error, ENAMETOOLONG, "socket %s: 1 to %zu bytes are accepted, not %zu",
            path, sizeof(address.sun_path) - 1, length);
    memcpy(address.sun_path, path, length);
    *ret_address = address;
    return 0;
}

bool unix_socket_find(const char *path, struct unix_socket_file *ret_file)
{
    struct stat status;
    if (lstat(path, &status) != 0)
        return false;
    *ret_file = (struct unix_socket_file){status.st_dev, status.st_ino,
        status.st_ctim.tv_sec * 1000000000LL + status.st_ctim.tv_nsec};
    return true;
}

bool unix_socket_same(const struct unix_socket_file *a, const struct unix_socket_file *b)
{
    return a->device == b->device && a->inode == b->inode && a->changed_ns == b->changed_ns;
}

void unix_socket_remove(const char *path, const struct unix_socket_file *file)
{
    struct unix_socket_file there;
    if (unix_socket_find(path, &there) && unix_socket_same(&there, file))
        unlink(path);
}

int unix_socket_connect(const char *path, int *ret_fd, struct error *error)
{
    struct sockaddr_un address;
    int bad = make_address(path, &address, error);
    if (bad)
        return bad;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(error, errno, "socket for %s: %s", path, strerror(errno));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        int code = errno;
        close(fd);
        return error_set(error, code, "connect to %s: %s", path, strerror(code));
    }
    *ret_fd = fd;
    return 0;
}

/* Makes way at a path that is taken: 0 where it is free now. */
static int clear_stale(const char *path, struct error *error)
{
    struct unix_socket_file file;
    struct stat status;
    int fd = -1;
    if (!unix_socket_find(path, &file) || lstat(path, &status) != 0)
        return 0;
    if (!S_ISSOCK(status.st_mode))
        return error_set(error, EEXIST, "%s is no socket", path);
    int failed = unix_socket_connect(path, &fd, NULL);
    if (!failed)
        close(fd);
    /* A full queue is one of a living program as well. */
    if (!failed || failed == -EAGAIN)
        return error_set(error, EADDRINUSE, "another program serves %s", path);
    if (failed == -ENOENT)
        return 0;
    if (failed != -ECONNREFUSED)
        return error_set(error, -failed, "connect to %s: %s", path, strerror(-failed));
    unix_socket_remove(path, &file);
    return 0;
}

/* A name is made by link(2), which never replaces one that another program has just claimed. */
static int claim(const char *own, const char *path, struct error *error)
{
    for (int i = 0; i < CLAIM_TRIES; i++) {
        if (link(own, path) == 0)
            return 0;
        if (errno != EEXIST)
            return error_set(error, errno, "make %s: %s", path, strerror(errno));
        int failed = clear_stale(path, error);
        if (failed)
            return failed;
    }
    return error_set(error, EADDRINUSE, "other programs keep making %s", path);
}

static int listen_at(int fd, const char *own, const char *path, struct error *error)
{
    struct sockaddr_un address;
    int bad = make_address(own, &address, error);
    if (bad)
        return bad;
    unlink(own);
    /* bind(2) gives the file the mode of the descriptor. */
    if (fchmod(fd, 0600) != 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        return error_set(error, errno, "bind %s: %s", own, strerror(errno));
    int failed = 0;
    if (listen(fd, QUEUE) != 0)
        failed = error_set(error, errno, "listen at %s: %s", own, strerror(errno));
    if (!failed)
        failed = claim(own, path, error);
    unlink(own);
    return failed;
}

int unix_socket_listen(
    const char *path, int *ret_fd, struct unix_socket_file *ret_file, struct error *error)
{
    char own[PATH_MAX];
    struct unix_socket_file file;
    snprintf(own, sizeof(own), "%s.%d", path, (int)getpid());
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(error, errno, "socket for %s: %s", path, strerror(errno));
    int failed = listen_at(fd, own, path, error);
    if (!failed && !unix_socket_find(path, &file))
        failed = error_set(error, ENOENT, "%s was removed at once", path);
    if (failed) {
        close(fd);
        return failed;
    }
    *ret_fd = fd;
    *ret_file = file;
    return 0;
}
