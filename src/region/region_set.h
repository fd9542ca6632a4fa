/* SPDX-License-Identifier: Apache-2.0 */
/* A running container's limits, looked at and changed from outside of it: for tools and monitors.
 *
 * What is set here holds for every process of the container from its next charge or launch on. The
 * environments of processes that come do not set it back while anybody lives in the container, and
 * not afterwards where they ask for what the region was made with (docs/region.md, "Limits"). */
#ifndef VGPU_REGION_REGION_SET_H
#define VGPU_REGION_REGION_SET_H

#include "region/region.h"

#define REGION_ALL_DEVICES (-1)

struct region_change {
    bool memory, cores, soft_cores, priority; /* which of them is changed */
    uint64_t memory_bytes;                    /* 0: no limit */
    uint32_t core_percent;                    /* 1 to 99; 0: no limit */
    uint32_t soft_percent;                    /* 1 to 100; 0: no soft limit */
    uint32_t priority_level;                  /* the container's, whatever the device; 0 high */
};

/* A device as the file has it now. */
struct region_look {
    struct vgpu_device device; /* its uuid is terminated */
    uint64_t used_bytes;       /* by all live processes of the container */
};

/* Checks and maps the region that `fd` is open on, for reading and writing; keeps or closes the
 * descriptor. Only region_detach and the functions below may be used with it. Returns 0 or -errno:
 * -EPROTO for what is no region of this version, -ESTALE for a file that was deleted. */
int region_set_open(struct region *region, int fd) __attribute__((warn_unused_result));

/* How many devices the container's processes have met, at most VGPU_REGION_DEVICES; -EIO where the
 * file was shortened under us. */
int region_set_device_count(struct region *region) __attribute__((warn_unused_result));

/* The device'th, from 0 in the order in which they were met; REGION_ALL_DEVICES: what holds for
 * devices that nobody has met yet. Frees the slots of dead processes. Returns 0, -ENODEV where
 * there is none, or -EIO. */
int region_set_look(struct region *region, int device, struct region_look *ret_look)
    __attribute__((warn_unused_result));

/* What the container as a whole is told. */
struct region_state {
    bool paused;
    enum vgpu_release release;
    bool held;   /* HAMi's monitor has it wait */
    bool lifted; /* HAMi's monitor has taken its compute limits out of force */
    bool has_priority;
    uint32_t priority;
};

/* Returns 0 or -EIO. */
int region_set_state(struct region *region, struct region_state *ret_state)
    __attribute__((warn_unused_result));

/* Pauses the container or lets it go on, and wakes its programs; does not wait. A user who may set
 * limits may do either, whatever paused it. *ret_was: whether it was paused before. Returns 0,
 * -EPERM or -EIO, as region_set_limits. */
int region_set_paused(struct region *region, bool paused, bool *ret_was)
    __attribute__((warn_unused_result));

/* Orders the container's memory off the card, or back (VGPU_RELEASE_NONE), and wakes its programs;
 * does not wait. *ret_order: the order's word. As region_set_paused. */
int region_set_release(struct region *region, enum vgpu_release release, uint32_t *ret_order)
    __attribute__((warn_unused_result));

/* What a process that has a slot made of the last order: `to` in the place of `from`, where it is
 * that. By the process's number in its own PID namespace, and that namespace's inode. Returns 0,
 * -ESRCH where there is no such process, or none in that state, -EPERM or -EIO. */
int region_set_release_state(struct region *region, int pid, uint64_t pid_namespace,
    enum vgpu_release_state from, enum vgpu_release_state to) __attribute__((warn_unused_result));

/* Changes the limits of one device, or of all, those not met yet included. What is in use already
 * stays. Returns 0 or -errno with nothing changed: -EPERM where the file is another user's and we
 * are not root, -ENODEV, -ETIMEDOUT where others held the initialiser's lock for 2 s; or -EIO where
 * the file was shortened meanwhile. */
int region_set_limits(struct region *region, int device, const struct region_change *change)
    __attribute__((warn_unused_result));

#endif
