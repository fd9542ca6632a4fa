/* SPDX-License-Identifier: Apache-2.0 */
/* Unix sockets at a path: claimed only where no living program serves it, and given up only where
 * it is still the own one. Descriptors are non-blocking and close-on-exec. */
#ifndef VGPU_NET_UNIX_SOCKET_H
#define VGPU_NET_UNIX_SOCKET_H

#include <stdbool.h>
#include <sys/types.h>

#include "net/error.h"

/* Which file a path names at the moment. */
struct unix_socket_file {
    dev_t device;
    ino_t inode;
    long long changed_ns; /* the inode's change time: a new file may get a removed one's number */
};

/* Listens at `path`, for the owner only (mode 0600). It listens before the path names it, so that
 * nobody meets a socket that refuses. A socket there that nobody serves is removed. -EADDRINUSE: a
 * living program serves it, -EEXIST: something else than a socket is there, -ENAMETOOLONG, others
 * of bind(2). */
__attribute__((warn_unused_result)) int unix_socket_listen(
    const char *path, int *ret_fd, struct unix_socket_file *ret_file, struct error *error);

/* Connects; does not wait. -EAGAIN: its queue is full, others of connect(2). */
__attribute__((warn_unused_result)) int unix_socket_connect(
    const char *path, int *ret_fd, struct error *error);

/* false: there is none. */
bool unix_socket_find(const char *path, struct unix_socket_file *ret_file);
bool unix_socket_same(const struct unix_socket_file *a, const struct unix_socket_file *b);

/* Removes the path where it still names this file. */
void unix_socket_remove(const char *path, const struct unix_socket_file *file);

#endif
