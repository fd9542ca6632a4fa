/* SPDX-License-Identifier: Apache-2.0 */
/* Open-file-description locks on single bytes of the region's file or a registry's (Linux 3.15).
 * They belong to the open file: fork shares them, exec (close-on-exec) and the last close drop
 * them, death included, just as the driver treats its own descriptors. All functions keep errno. */
#ifndef VGPU_BASE_FILE_LOCK_H
#define VGPU_BASE_FILE_LOCK_H

#include <stdint.h>
#include <sys/types.h>

/* A write lock. Returns 0, -EAGAIN where another open file holds it, -EINVAL where there are no
 * such locks: the kernel or the file system has none, or a system-call filter refuses them.
 */
int file_lock_take(int fd, off_t byte) __attribute__((warn_unused_result));

/* Tries until `wait_ns` have passed; then -ETIMEDOUT. Where there are no such locks it returns 0
 * and nothing is held. */
int file_lock_wait(int fd, off_t byte, uint64_t wait_ns) __attribute__((warn_unused_result));

/* A read lock, which others may have on the byte as well; turns a write lock of ours into one
 * without a gap. Returns 0, -EAGAIN where another open file holds it for writing, -EINVAL as above.
 */
int file_lock_share(int fd, off_t byte) __attribute__((warn_unused_result));

void file_lock_drop(int fd, off_t byte);

/* 1 where another open file holds the byte in either way, 0 where none does, -errno where it cannot
 * be told. About 0.2 us. */
int file_lock_held(int fd, off_t byte) __attribute__((warn_unused_result));

#endif
