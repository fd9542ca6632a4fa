/* SPDX-License-Identifier: Apache-2.0 */
/* A region's file as HAMi-core's own library leaves it. Of each of its versions: it opens the file
 * with O_CREAT and mode 0666, seeks to the structure's size and writes one byte there, so that the
 * file is one byte longer than the structure; then it fills the structure in through a mapping,
 * under a POSIX lock on that many bytes from 0, the magic number last. Processes that were killed
 * stay in its slots. Facts from HAMi-core's sources, from before versions to 1.2. */
#ifndef VGPU_REGION_HAMI_FILE_H
#define VGPU_REGION_HAMI_FILE_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether a file of this size that is no region of ours is HAMi-core's: by its magic number
 * whatever the size, or by the size where HAMi-core was killed before it had written that. By
 * pread. */
bool hami_file_is(int fd, off_t size);

/* The process that still uses the file by HAMi-core's library, or 0: a process of the slots, in
 * this PID namespace, that maps the file. Where what it maps may not be read, one that was there
 * when HAMi-core's library last wrote the time. What is in the slots may be anything, numbers that
 * are other processes' by now included. Of a newer version, whose slots are not known,
 * any process that is seen to map the file. */
int hami_file_user(int fd, off_t size);

/* Keeps HAMi-core's library from initialising the file meanwhile; waits for one that does. */
int hami_file_lock(int fd) __attribute__((warn_unused_result));
void hami_file_unlock(int fd);

#endif
