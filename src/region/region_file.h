/* SPDX-License-Identifier: Apache-2.0 */
/* The region's file: opened safely, checked, made where it is missing. What lies in it is read and
 * written by system call here, so that nothing faults if it is shortened meanwhile. */
#ifndef VGPU_REGION_REGION_FILE_H
#define VGPU_REGION_REGION_FILE_H

#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* Where an administrator puts the region that a container's environment cannot replace. */
#define REGION_PINNED_PATH "/etc/vgpu/region"
/* Where the node's agent mounts the region of a container that has a grant. The file has a second
 * name on the node, so that it stays when the container deletes the first. */
#define REGION_MOUNTED_PATH "/etc/vgpu/account"

bool region_file_is_pinned(void);

/* Whether a region with this status keeps its limits against the environment of the calling
 * process: root's does against all others', and so does one whose owner a user namespace hides,
 * because it may be root's. */
bool region_file_pins(const struct stat *status);

/* Whether the open file of this status, found under a name that all users share, may be used as the
 * caller's region. The caller's own may. Another user's may not, with one exception: in a
 * container, root's region holds the programs of all users, as the container's limits are meant for
 * all of them. It counts only where it has limits: a region without any was left by a program that
 * asked for none, and the limits of the first user would hold all. May wait 0.2 s for
 * a region that is just being made. */
bool region_file_is_trusted(int fd, const struct stat *status);

/* The path of the region that the configuration means:
 * - REGION_PINNED_PATH where root's file lies there;
 * - the path that was named;
 * - the default path, or one with the user's number behind it where what lies at the default path
 *   is not to be used (region_file_is_trusted).
 * ret_path has room for `path_bytes`. Returns 0, -ENAMETOOLONG, or -EPERM where both are somebody
 * else's. */
int region_file_path(const struct config *config, char *ret_path, size_t path_bytes)
    __attribute__((warn_unused_result));

/* Opens the file close-on-exec at a descriptor out of the program's way, for reading and writing;
 * `create` makes it, mode 0666, with its directories, where it is missing. Never follows a symbolic
 * link at the path's end, never opens what is no regular file or has a second name (but at
 * REGION_PINNED_PATH and REGION_MOUNTED_PATH). Returns the
 * descriptor or -errno: -EPROTO for what cannot be a region. */
int region_file_open(const char *path, bool create) __attribute__((warn_unused_result));

/* Longest wait for the file's initialisation lock. */
#define REGION_INITIALISER_WAIT_NS 2000000000ull

enum region_file_make {
    REGION_FILE_KEEP, /* never write */
    REGION_FILE_MAKE, /* a file that holds nothing but zeroes, or HAMi-core's (region/hami_file.h),
                         becomes a region; a region whose end was cut off is whole again */
    REGION_FILE_MEND, /* also a file of any smaller size: it is known to have been a region */
};

/* Whether the file is a region of this version, made one where `make` says so. The caller holds the
 * file lock of the initialiser unless it only looks. Returns 1 where it was made now, 0 where it is
 * one, -EPROTO where it is something else, -EBUSY where a process still uses it by HAMi-core's
 * library, either of which is left as it is, or -errno. */
int region_file_prepare(int fd, enum region_file_make make) __attribute__((warn_unused_result));

/* Whether the file's maker ended before the file was a region: it is empty, holds zeroes alone, or
 * has a region's size and no head. The caller holds the file lock of the initialiser. */
bool region_file_is_unmade(int fd);

#endif
