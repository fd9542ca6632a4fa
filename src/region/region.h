/* SPDX-License-Identifier: Apache-2.0 */
/* The container's shared region (include/vgpu/region.h) as this process maps it.
 *
 * Others may delete, replace or shorten the file at any moment. So its words are touched only
 * within a guard window (base/guard.h), and what this process must not lose with the file, its
 * devices and their limits, is remembered beside the mapping.
 *
 * All functions need the caller's lock where several threads share the region, except
 * region_device_known. */
#ifndef VGPU_REGION_REGION_H
#define VGPU_REGION_REGION_H

#include "vgpu/region.h"

#include "config/config.h"

#include <stdbool.h>
#include <sys/types.h>

/* A device that this process has met. Its number in this process, the index into
 * region.devices[], never changes; its entry in the file does when the file is made anew. */
struct region_device {
    struct vgpu_device known; /* identity and limits as last seen in the file */
    int index;                /* position in the container's device list, -1 not in it */
    int entry;                /* in the file's devices[]; -1: there is no room for it */
};

/* What the container is told to do at once, as one look at the file has it. */
struct region_orders {
    uint32_t epoch;
    bool paused;
    bool held;         /* HAMi's recent_kernel is below 0 */
    bool switched_off; /* HAMi's utilization_switch is 0 */
    enum vgpu_priority_set priority_set;
    uint32_t priority;
};

/* The settings of a region that no environment ever gave limits: of none, so that none of a process
 * that comes is taken while others live. */
#define REGION_SET_FROM_OUTSIDE 0x3154455355504757ull

struct region {
    struct vgpu_region *shared;  /* NULL: not attached. The address stays until region_detach. */
    struct vgpu_region_map *map; /* what `shared` lies in */
    int fd;                      /* close-on-exec, high; carries the slot's lock */
    dev_t device;                /* identity of the mapped file */
    ino_t inode;
    bool lost;               /* the file was shortened; memory of our own lies in its place */
    bool kept_from_children; /* forked children do not have the mapping */
    bool pinned;             /* root's file, and we are not root: the environment is not taken */
    bool own_only;           /* the default path: see region_file_is_trusted */
    const struct config *config; /* of the process; NULL for a tool's look */
    uint64_t settings_hash;      /* of this process's own environment; 0: it sets no limit */
    struct region_settings {
        uint64_t hash;
        uint64_t memory_limit; /* for devices without a limit of their own, as core_limit */
        uint32_t core_limit, core_soft_limit;
        uint32_t set; /* which of them were set while programs ran: enum vgpu_defaults_set */
    } known_settings; /* the file's, as last seen */
    uint32_t granted; /* grant_sequence of what was last read of the grant */
    struct region_orders known_orders; /* likewise */
    bool orders_known;                 /* they were seen */
    struct vgpu_identity known_identity;
    uint64_t lock_wait_ns;   /* for who initialises the file */
    uint64_t whole_seen_ns;  /* when the file was last seen to be there, and whole */
    uint64_t path_seen_ns;   /* when the path was last seen to name the file */
    uint64_t mend_failed_ns; /* when a device's entry could last not be mended; 0 never */
    uint64_t failed_ns;      /* when the file could last not be had again; 0 never */
    bool failure_said;
    int slot;           /* -1: none was to be had, or not asked for */
    uint64_t word;      /* the slot's state word */
    bool slot_is_empty; /* claimed anew: what the process holds is not in it yet (account_self.c) */
    unsigned device_count; /* devices[] in use */
    struct region_device devices[VGPU_REGION_DEVICES];
    char path[PATH_MAX + 16];
};

/* Opens, creates where it is missing, checks and maps the region that the configuration means,
 * gives it the configuration's limits where no process of the container lives and they differ from
 * those it holds (or it never held any), and claims a slot: who has attached counts as living.
 * `region` and `config` stay in use until region_detach. Blocks at most 2 s on another process that
 * initialises the file. Returns 0, or -errno after one log line naming the file: -EPROTO the file
 * is not a region of ours, -EACCES, -EROFS, -ENOSPC and the like as the kernel said. */
int region_attach(struct region *region, const struct config *config)
    __attribute__((warn_unused_result));

/* As region_attach, for another attempt: not a word in the log, and it blocks at most 0.1 s. */
int region_attach_again(struct region *region, const struct config *config)
    __attribute__((warn_unused_result));

/* As region_attach for a file that exists, without limits, without a slot and without a word in the
 * log (for tools). */
int region_open(struct region *region, const char *path) __attribute__((warn_unused_result));

/* Gives the slot back, unmaps and closes; accepts a region that is not attached. */
void region_detach(struct region *region);

/* What a forked child does with its parent's: as region_detach, but the descriptor stays open,
 * because the parent's slot is locked through it. */
void region_abandon(struct region *region);

/* Makes sure that the file still is the one that new processes of the container find, and whole.
 * Where it was deleted, replaced or shortened, moves to the file at the path, made anew where there
 * is none, with the limits last seen; where the program closed our descriptor, opens the file
 * again. One fstat where all is well. Returns 0, or -errno where there is nothing to share (tried
 * again every 10 ms). */
int region_keep(struct region *region) __attribute__((warn_unused_result));

/* Whether region_keep found all well within the last 0.25 ms: then a charge may do without it. A
 * refusal, and what needs the descriptor, may not. */
bool region_was_kept(const struct region *region);

/* True while region->fd still is the mapped file: a program that closes all descriptors takes it
 * away, and its number may by now name another file. */
bool region_fd_is_ours(const struct region *region);

/* slot_high, made safe to use as a bound. Within a window. */
unsigned region_slot_bound(const struct region *region);

#define REGION_INDEX_AS_MET                                                                        \
    (-2) /* the position in the list cannot be told: devices count as met                          \
          */

/* Within a window: enters the device `uuid`, with the configuration's limits for the container's
 * index-th device (-1: not in its list) where the file has none for it yet. Returns the device's
 * number, -ENOSPC where a table is full, -ENAMETOOLONG for a UUID that does not fit, or another
 * -errno where the file cannot be locked. */
int region_device(struct region *region, const char *uuid, int index)
    __attribute__((warn_unused_result));

/* The number of a device that was entered, or -ENOENT. Any thread, without lock. */
int region_device_known(const struct region *region, const char *uuid)
    __attribute__((warn_unused_result));

/* Within a window: enters all known devices again, after the file was made anew, with the limits
 * that it then has, or else those last seen. Under the initialiser's lock. */
void region_devices_again(struct region *region);

/* Within a window, under the initialiser's lock: takes the environment's limits into a region whose
 * rules allow it (docs/region.md, "Limits"). `fresh`: the file was made just now. */
void region_settings_take(struct region *region, bool fresh);

/* Within a window: the file's entry of the device, NULL where it has none and can have none.
 * Remembers its limits; enters the device again where others made the file anew; gives it this
 * process's limits where it never had any and the region by now has. */
struct vgpu_device *region_device_entry(struct region *region, unsigned number);

/* Within a window: the container's id on the device's board, made where it has none. 0 where the
 * file has no entry of the device. */
uint64_t region_device_tenant(struct region *region, unsigned number);

#endif
