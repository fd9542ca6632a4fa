/* SPDX-License-Identifier: Apache-2.0 */
/* The regions that a process maps, by /proc/PID/maps. */
#ifndef VGPU_HOST_MAPPED_H
#define VGPU_HOST_MAPPED_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mapping {
    uint64_t start, end, inode;
    unsigned device_major, device_minor; /* as the kernel shows them, which stat may not */
};

/* Called with each region that the process maps; `path` is as the process sees it. Answers whether
 * to go on. */
typedef bool mapped_visit(
    unsigned pid, const struct mapping *mapping, const char *path, void *context);

/* Goes through them. Returns 0, or -errno where the process cannot be looked at. */
int mapped_each(unsigned pid, mapped_visit *visit, void *context)
    __attribute__((warn_unused_result));

/* The same for the processes below it, its children and theirs, the nearest first. A process that
 * cannot be looked at is passed over. Returns 0, or -errno where processes cannot be listed. */
int mapped_each_below(unsigned pid, mapped_visit *visit, void *context)
    __attribute__((warn_unused_result));

/* Opens the mapped file; `flags` is O_RDONLY or O_RDWR. Returns a descriptor, or -errno: -ESTALE
 * where it was deleted and only the kernel's own link, which is root's, still leads to it. */
int mapped_open(unsigned pid, const struct mapping *mapping, const char *path, int flags)
    __attribute__((warn_unused_result));

#endif
