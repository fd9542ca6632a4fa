/* SPDX-License-Identifier: Apache-2.0 */
/* What HAMi's monitor reads of a container's region and writes into it: of HAMi-core's own files,
 * versions 0 (without a version number) and 1, and of the part of our regions that has version 1's
 * layout (include/vgpu/hami.h). By pread and pwrite alone, so that nothing faults where the file is
 * shortened meanwhile; a program of the container may have written anything. Layout of version 0
 * from HAMi's pkg/monitor/nvidia/v0. */
#ifndef VGPU_NODE_MONITOR_HAMI_REGION_H
#define VGPU_NODE_MONITOR_HAMI_REGION_H

#include <stdint.h>

#define HAMI_REGION_DEVICES 16
#define HAMI_REGION_UUID_BYTES 41 /* HAMi shows 40 characters */

enum hami_region_kind {
    HAMI_REGION_NONE = 0, /* nothing is in it yet: empty, or just being filled */
    HAMI_REGION_VGPU,     /* our own */
    HAMI_REGION_V0,
    HAMI_REGION_V1,
    HAMI_REGION_V1_LONG, /* version 1.1 with two semaphores in its head */
};

struct hami_region_device {
    char uuid[HAMI_REGION_UUID_BYTES]; /* printable ASCII, or empty: not to be shown */
    uint64_t memory_limit;             /* bytes; 0 none */
    uint64_t core_limit;               /* percent */
    /* Sums over its processes. */
    uint64_t context, module, data, offset, total; /* bytes */
    uint64_t sm_percent;
};

struct hami_region {
    unsigned device_count;
    struct hami_region_device devices[HAMI_REGION_DEVICES];
    uint64_t last_kernel_s; /* seconds since the epoch; 0 never, or not in this version */
};

/* The words of the feedback, and the devices that they are about. */
struct hami_region_words {
    unsigned device_count;
    char uuids[HAMI_REGION_DEVICES][HAMI_REGION_UUID_BYTES];
    int32_t utilization_switch, recent_kernel, priority;
};

/* What the open file is; -EPROTO: nothing that is known, or -errno. */
int hami_region_kind(int fd) __attribute__((warn_unused_result));

/* Of a kind that is none of HAMI_REGION_NONE. Return 0 or -errno: -EIO where the file was
 * shortened. */
int hami_region_read(int fd, enum hami_region_kind kind, struct hami_region *ret_region)
    __attribute__((warn_unused_result));
int hami_region_read_words(int fd, enum hami_region_kind kind, struct hami_region_words *ret_words)
    __attribute__((warn_unused_result));

/* Writes a word that is not what `before` says; never lengthens the file. */
int hami_region_write_switch(int fd, enum hami_region_kind kind, int32_t before, int32_t value)
    __attribute__((warn_unused_result));
int hami_region_write_recent(int fd, enum hami_region_kind kind, int32_t before, int32_t value)
    __attribute__((warn_unused_result));

/* 1 where a process of its slots maps the file, by its number on the host or in this PID
 * namespace; 0 where none is seen to; or -errno. Not for HAMI_REGION_VGPU. */
int hami_region_is_used(int fd, enum hami_region_kind kind) __attribute__((warn_unused_result));

#endif
