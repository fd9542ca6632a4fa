/* SPDX-License-Identifier: Apache-2.0 */
/* Small files that others replace: tokens, certificates, configurations. */
#ifndef VGPU_NET_FILE_READ_H
#define VGPU_NET_FILE_READ_H

#include "net/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* Which file a path led to, and in which state: device, inode, size and times. A volume of
 * Kubernetes replaces a link, so that the inode differs. */
struct file_stamp {
    unsigned long long device, inode;
    long long size, modified_ns, changed_ns;
};

/* Whether the path now leads to a file in another state than `stamp` says; false as well where it
 * leads nowhere. */
bool file_stamp_differs(const struct file_stamp *stamp, const char *path);

/* Reads the whole of a regular file of at most `bytes_max` into the heap, with a NUL behind it; the
 * caller frees *ret_data. Returns 0 or -errno (-EFBIG where it is longer). */
int file_read(const char *path, size_t bytes_max, char **ret_data, size_t *ret_bytes,
    struct file_stamp *ret_stamp, struct error *error) __attribute__((warn_unused_result));

#endif
