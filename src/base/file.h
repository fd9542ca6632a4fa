/* SPDX-License-Identifier: Apache-2.0 */
/* What a descriptor is a descriptor of: by system call, because glibc's fstat is a symbol of 2.33
 * that older systems lack. */
#ifndef VGPU_BASE_FILE_H
#define VGPU_BASE_FILE_H

#include <stdbool.h>
#include <sys/stat.h>

/* As fstat(2), but returns 0 or -errno and keeps errno. */
int file_status(int fd, struct stat *ret_status) __attribute__((warn_unused_result));

/* Gives `bytes` from `offset` their storage without changing the file's size; sets the size. Tried
 * again where a signal interrupts: tmpfs answers so. Return 0 or -errno. */
int file_reserve(int fd, off_t offset, off_t bytes) __attribute__((warn_unused_result));
int file_set_size(int fd, off_t bytes) __attribute__((warn_unused_result));

/* Makes zeroes of the first `bytes`, and a hole where the file system can. Returns 0 or -errno. */
int file_blank(int fd, off_t bytes) __attribute__((warn_unused_result));

/* As lstat(2), likewise. */
int file_status_at(const char *path, struct stat *ret_status) __attribute__((warn_unused_result));

/* Moves a descriptor, close-on-exec, out of the way of programs that count on low numbers, or where
 * few are allowed off the standard streams' alone; returns the new one, or the same where there is
 * none. */
int file_raise(int fd) __attribute__((warn_unused_result));

/* Whether this process may make a file of so many bytes: writing past its limit (RLIMIT_FSIZE)
 * would raise SIGXFSZ. */
bool file_may_reach(off_t bytes);

#endif
