/* SPDX-License-Identifier: Apache-2.0 */
/* A region as one look from outside has it, for tools: by pread alone, on a descriptor that may be
 * read-only. It maps nothing, takes no lock, writes nothing and waits for nobody, so it can neither
 * harm the container's programs nor be harmed by a file that is shortened or deleted meanwhile.
 *
 * What is read is a copy: counts in it are bounded and texts terminated, all else is as the file
 * has it. Threads: each with a struct of its own. All functions return -errno: -EIO for a file that
 * was shortened while it was read. */
#ifndef VGPU_REGION_REGION_READ_H
#define VGPU_REGION_REGION_READ_H

#include "region/region_identity.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* The region's first part, up to its devices. */
struct region_head {
    uint64_t magic;
    uint32_t version, byte_order;
    uint64_t size;
    uint32_t device_entries, slot_entries;
    uint32_t device_count, slot_high;
    uint64_t settings_hash, default_memory_limit;
    uint32_t default_core_limit, defaults_set;
    uint32_t orders_epoch, paused, priority, priority_set;
    uint64_t window_closed_ns, window_until_ns;
    uint32_t default_core_soft_limit, release;
    uint64_t coupled_ns, ready_asked_ns;
    uint64_t reserved[17];
};

/* HAMi's commands, and what stands around them, at the end of its part. */
struct region_hami_words {
    int32_t proc_num, utilization_switch, recent_kernel, priority;
    uint64_t last_kernel_time;
};

/* The first words of struct vgpu_compute. */
struct region_compute_words {
    uint64_t granted_ns, charged_ns, refilled_ns, busy_ns, holds_made;
    uint64_t holds[2 * VGPU_COMPUTE_HOLDS];
    uint64_t parts_ns, waited_ns;
};

struct region_reading {
    int fd; /* the caller's; not closed here */
    struct stat status;
    uint64_t read_ns; /* when the words of GPU time were read; CLOCK_MONOTONIC */
    struct region_head head;
    struct region_hami_words hami;
    unsigned device_count, slot_bound; /* of the head, made safe to use */
    struct vgpu_device devices[VGPU_REGION_DEVICES];
    struct region_compute_words compute[VGPU_REGION_DEVICES];
};

/* Reads all but slots, history and identity. -EPROTO for what is no region of this version, without
 * a look at more than its head. The descriptor must be kept open for the functions below. */
int region_read(int fd, struct region_reading *ret_reading) __attribute__((warn_unused_result));

/* Whether a head is that of a region of this version. */
bool region_head_is_ours(const struct region_head *head);

/* The index-th slot with the usage of the first device_count devices; the rest of *ret_slot is left
 * as it is. Returns 1 where its process lives (*ret_locked: an open file of it says so, so that it
 * need not be looked for in /proc), 0 where the slot is free, being claimed, or its process is
 * dead.
 */
int region_read_slot(const struct region_reading *reading, unsigned index,
    struct vgpu_slot *ret_slot, bool *ret_locked) __attribute__((warn_unused_result));

/* Of the device-th device. */
int region_read_history(const struct region_reading *reading, unsigned device,
    struct vgpu_history *ret_history) __attribute__((warn_unused_result));

/* Empty where nobody said anything. */
int region_read_identity(const struct region_reading *reading, struct region_identity *ret_identity)
    __attribute__((warn_unused_result));

/* Exactly `bytes` from `offset` of the file. */
int region_read_exactly(int fd, uint64_t offset, void *target, size_t bytes)
    __attribute__((warn_unused_result));

#endif
