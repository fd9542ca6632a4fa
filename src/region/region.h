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
    uint64_t settings_hash; /* of this process's own environment; 0: it sets no limit */
    int slot;      /* claimed when it was attached; -1: none was to be had, or not asked for */
    uint64_t word; /* the slot's state word */
    char path[PATH_MAX];
};

/* Opens, creates where it is missing, validates and maps the region that the configuration names,
 * gives it the configuration's limits where no process of the container lives and they differ from
 * those it holds (or it never held any), and claims a slot: who has attached counts as living.
 * Blocks at most 2 s on another process that initialises the file. Returns 0, or -errno after one
 * log line naming the file: -EPROTO the file is not a region of ours, -EACCES, -EROFS, -ENOSPC and
 * the like as the kernel said. */
int region_attach(struct region *region, const struct config *config)
    __attribute__((warn_unused_result));

/* As region_attach for a file that exists, without applying limits (for tools). */
int region_open(struct region *region, const char *path) __attribute__((warn_unused_result));

/* Unmaps and closes; accepts a region that is not attached. */
void region_detach(struct region *region);

/* Opens the mapped file anew by its path where the program has closed our descriptor. Returns 0, or
 * -ENOENT where the path is gone or names another file by now. */
int region_reopen(struct region *region) __attribute__((warn_unused_result));

/* True while region->fd still is the mapped file: a program that closes all descriptors takes it
 * away, and its number may by now name another file. */
bool region_fd_is_ours(const struct region *region);

/* All functions on a region that are called by several threads of a process need the caller's lock.
 *
 * The entry of the device `uuid`, added with the configuration's limits for the container's
 * index-th device (-1: not in its list) where the region has none yet, or never got limits from any
 * environment. Returns the index into
 * devices[], -ENOSPC where the table is full, -ENAMETOOLONG for a UUID that does not fit, or
 * another -errno where the file cannot be locked. */
int region_device(struct region *region, const char *uuid, int index, const struct config *config)
    __attribute__((warn_unused_result));

/* The entry of the device `uuid`, or -ENOENT. */
int region_device_find(const struct region *region, const char *uuid)
    __attribute__((warn_unused_result));

/* False where the entry never got limits and this process's environment is the one that has them:
 * region_device then gives them to it. */
bool region_device_is_settled(const struct region *region, int entry);

/* slot_high, made safe to use as a bound. */
unsigned region_slot_bound(const struct region *region);

#endif
