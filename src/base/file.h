/* SPDX-License-Identifier: Apache-2.0 */
/* Files, by descriptor and by path. What a descriptor is a descriptor of is asked by system call,
 * because glibc's fstat is a symbol of 2.33 that older systems lack. */
#ifndef VGPU_BASE_FILE_H
#define VGPU_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Whether a system call's error means that it is not to be had here: the kernel or the file system
 * lacks it, or a container's system-call filter refuses it (EPERM, EACCES or ENOSYS, as the filter
 * says). Only for calls that give no such error for another reason. */
bool file_is_unavailable(int error);

/* As fstat(2), but returns 0 or -errno and keeps errno. */
int file_status(int fd, struct stat *ret_status) __attribute__((warn_unused_result));

/* As lstat(2), likewise. */
int file_status_at(const char *path, struct stat *ret_status) __attribute__((warn_unused_result));

/* What makes a file longer. None of it raises a signal: where the process's limit on file sizes
 * (RLIMIT_FSIZE) is in the way the error is -EFBIG. Interrupted calls are tried again: tmpfs
 * answers so. All return 0, or what was written, or -errno. */

/* Gives `bytes` from `offset` their storage without changing the file's size; 0 as well where
 * there is no such call: then a write through a mapping may find the file system full. */
int file_reserve(int fd, off_t offset, off_t bytes) __attribute__((warn_unused_result));

/* Sets the size to `bytes`, which is more than it was. */
int file_lengthen(int fd, off_t bytes) __attribute__((warn_unused_result));

/* As pwrite(2). */
ssize_t file_write_at(int fd, const void *data, size_t bytes, off_t offset)
    __attribute__((warn_unused_result));

/* As write(2), once, of any descriptor: -EPIPE without SIGPIPE as well. */
ssize_t file_write(int fd, const void *data, size_t bytes) __attribute__((warn_unused_result));

/* Makes zeroes of the first `bytes`, and a hole where the file system can. */
int file_blank(int fd, off_t bytes) __attribute__((warn_unused_result));

/* Whether the file, of which `bytes` are looked at, holds nothing but zeroes, or nothing. */
bool file_is_blank(int fd, off_t bytes);

/* Moves a descriptor, close-on-exec, out of the way of programs that count on low numbers, or where
 * few are allowed off the standard streams' alone; returns the new one, or the same where there is
 * none. */
int file_raise(int fd) __attribute__((warn_unused_result));

/* Moves `fd` to the number of `former` (-1: none), which is closed thereby: no thread meets a
 * closed descriptor in between. Returns the number that the file has now; where it cannot be moved,
 * `fd`, and `former` is closed. */
int file_replace(int former, int fd) __attribute__((warn_unused_result));

/* Whether this process may make a file of this size: writing past its limit (RLIMIT_FSIZE)
 * would raise SIGXFSZ. */
bool file_may_reach(off_t bytes);

#endif
