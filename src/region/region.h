/* SPDX-License-Identifier: Apache-2.0 */
/* The container's shared region (include/vgpu/region.h) as this process maps it. */
#ifndef VGPU_REGION_REGION_H
#define VGPU_REGION_REGION_H

#include "vgpu/region.h"

#include "base/config.h"

#include <stdbool.h>
#include <sys/types.h>

struct region {
    struct vgpu_region *shared; /* NULL: not attached */
    int fd;                     /* close-on-exec, high; carries the slot's lock */
    dev_t device;               /* identity of the mapped file */
    ino_t inode;
};

/* Opens, creates where it is missing, validates and maps the region that the configuration names,
 * and gives it the configuration's limits where no process of the container lives and they differ
 * from those it holds. Blocks at most 2 s on another process that initialises the file.
 * Returns 0, or -errno after one log line naming the file: -EPROTO the file is not a region of
 * ours, -EACCES, -EROFS, -ENOSPC and the like as the kernel said. */
int region_attach(struct region *region, const struct config *config)
    __attribute__((warn_unused_result));

/* As region_attach for a file that exists, without applying limits (for tools). */
int region_open(struct region *region, const char *path) __attribute__((warn_unused_result));

/* Unmaps and closes; accepts a region that is not attached. */
void region_detach(struct region *region);

/* True while region->fd still is the mapped file: a program that closes all descriptors takes it
 * away, and its number may by now name another file. */
bool region_fd_is_ours(const struct region *region);

/* The entry of the device `uuid`, added with the configuration's limits for the container's
 * index-th device (-1: not in its list) where the region has none yet. Returns the index into
 * devices[], -ENOSPC where the table is full, -ENAMETOOLONG for a UUID that does not fit. */
int region_device(struct region *region, const char *uuid, int index, const struct config *config)
    __attribute__((warn_unused_result));

/* The entry of the device `uuid`, or -ENOENT. */
int region_device_find(const struct region *region, const char *uuid)
    __attribute__((warn_unused_result));

/* slot_high, made safe to use as a bound. */
unsigned region_slot_bound(const struct region *region);

#endif
