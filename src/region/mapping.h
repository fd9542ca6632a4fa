/* SPDX-License-Identifier: Apache-2.0 */
/* The container's shared region (include/vgpu/region.h) as this process has it mapped.
 *
 * Others may delete, replace or shorten the file at any moment. So its words are touched only
 * within a guard window (base/guard.h), and what this process must not lose with the file, its
 * devices and their limits, is remembered beside the mapping. */
#ifndef VGPU_REGION_MAPPING_H
#define VGPU_REGION_MAPPING_H

#include "vgpu/region.h"

#include "config/config.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

/* A device that this process has met. Its number in this process, the index into
 * region.devices[], never changes; its entry in the file does when the file is made anew. */
struct region_device {
    struct vgpu_device known; /* identity and limits as last seen in the file */
    int index;                /* position in the container's device list, -1 not in it */
    int entry;                /* in the file's devices[]; -1: there is no room for it */
};

/* What the container is told to do at once, as one look at the file has it. */
struct region_control {
    uint32_t epoch;
    bool paused;
    bool held;         /* HAMi's recent_kernel is below 0 */
    bool switched_off; /* HAMi's utilization_switch is 0 */
    uint32_t release;  /* vgpu_region.release */
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
    struct region_control known_control; /* likewise */
    bool control_known;                  /* they were seen */
    struct vgpu_identity known_identity;
    uint64_t lock_wait_ns;   /* for the initialiser of the file */
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

/* Whether the status is that of the mapped file. */
bool mapping_is_of(const struct region *region, const struct stat *status);

/* True while region->fd still is the mapped file: a program that closes all descriptors takes it
 * away, and its number may by now name another file. */
bool mapping_fd_is_ours(const struct region *region);

/* slot_high, made safe to use as a bound. Within a window. */
unsigned mapping_slot_bound(const struct region *region);

#endif
