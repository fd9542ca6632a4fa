/* SPDX-License-Identifier: Apache-2.0 */
/* The first bytes of the region's file: HAMi-core's shared region, version 1.2, little endian, as
 * its monitors map it from the host. A projection: our processes write it, and nobody of them
 * reads from it but the monitor's orders (docs/region.md, "HAMi's part").
 *
 * Trust: as with the whole file. What a monitor finds as a count may have been written by any
 * program of the container. */
#ifndef VGPU_HAMI_H
#define VGPU_HAMI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VGPU_HAMI_MAGIC 19920718
#define VGPU_HAMI_MAJOR 1u
#define VGPU_HAMI_MINOR 2u
#define VGPU_HAMI_DEVICES 16u
#define VGPU_HAMI_SLOTS 1024u
#define VGPU_HAMI_NO_SM_LIMIT 100u

enum vgpu_hami_status {
    VGPU_HAMI_DEAD = 0,
    VGPU_HAMI_RUNNING = 1,
    VGPU_HAMI_SUSPENDED = 2,
};

struct vgpu_hami_memory {
    uint64_t context; /* bytes */
    uint64_t module;
    uint64_t data;   /* the program's allocations, with managed and spilled memory */
    uint64_t offset; /* what the driver has beyond all that */
    uint64_t total;  /* the sum; never below it for a reader who takes the total last */
    uint64_t reserved[3];
};

struct vgpu_hami_util {
    uint64_t decoder; /* percent; not written */
    uint64_t encoder; /* likewise */
    uint64_t sm;      /* percent of the device's time */
    uint64_t reserved[3];
};

struct vgpu_hami_slot {
    int32_t pid;     /* 0: as the process itself knows it */
    int32_t hostpid; /* 4: 0 where it is not known */
    struct vgpu_hami_memory used[VGPU_HAMI_DEVICES];
    uint64_t
        monitorused[VGPU_HAMI_DEVICES]; /* 1032: bytes on the device: none managed or spilled */
    struct vgpu_hami_util device_util[VGPU_HAMI_DEVICES]; /* 1160 */
    int32_t status;                                       /* 1928: enum vgpu_hami_status */
    int32_t reserved_word;
    uint64_t sequence; /* 1936: even: nobody is writing. Not written: each word stands for itself */
    uint64_t reserved[2];
};

#define VGPU_HAMI_SEMAPHORE_SHARED 128

/* glibc's sem_t, from 2.21. HAMi-core's library alone takes it; a new region has it free. */
struct vgpu_hami_semaphore {
    uint32_t value, waiters; /* 0: 1 free */
    int32_t shared;          /* 8: between processes */
    uint32_t reserved[5];
};

struct vgpu_hami {
    int32_t magic; /* 0 */
    uint32_t major, minor;
    int32_t sm_init_flag;                         /* 12: 0: the limits were not scaled */
    uint64_t owner_pid;                           /* 16: who holds the semaphore: nobody ever */
    struct vgpu_hami_semaphore lock;              /* 24: not used by ours */
    uint64_t device_count;                        /* 56 */
    char uuid[VGPU_HAMI_DEVICES][96];             /* 64 */
    uint64_t limit[VGPU_HAMI_DEVICES];            /* 1600: bytes; 0 none. The monitor may set it */
    uint64_t sm_limit[VGPU_HAMI_DEVICES];         /* 1728: percent; 0 or 100 none. Likewise */
    struct vgpu_hami_slot slots[VGPU_HAMI_SLOTS]; /* 1856 */
    int32_t proc_num;                             /* 2008896: no slot at or above it is in use */
    int32_t utilization_switch; /* 2008900: by the monitor: 0 the compute limit is not in force
                                   (unless GPU_CORE_UTILIZATION_POLICY forces it) */
    int32_t recent_kernel;      /* 2008904: below 0, by the monitor: the container must wait; the
                                   container's programs set it positive when they work */
    int32_t priority;           /* 2008908: the container's */
    uint64_t last_kernel_time;  /* 2008912: seconds since the epoch; 0 never */
    struct vgpu_hami_semaphore late_lock; /* 2008920: likewise */
};

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(struct vgpu_hami_memory) == 64, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami_memory, data) == 16, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami_memory, total) == 32, "HAMi's layout");
_Static_assert(sizeof(struct vgpu_hami_util) == 48, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami_util, sm) == 16, "HAMi's layout");
_Static_assert(sizeof(struct vgpu_hami_slot) == 1960, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami_slot, hostpid) == 4, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami_slot, used) == 8, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami_slot, monitorused) == 1032, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami_slot, device_util) == 1160, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami_slot, status) == 1928, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami_slot, sequence) == 1936, "HAMi's layout");
_Static_assert(sizeof(struct vgpu_hami_semaphore) == 32, "HAMi's layout");
_Static_assert(sizeof(struct vgpu_hami) == 2008952, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami, sm_init_flag) == 12, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami, owner_pid) == 16, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami, lock) == 24, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami, device_count) == 56, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami, uuid) == 64, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami, limit) == 1600, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami, sm_limit) == 1728, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami, slots) == 1856, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami, proc_num) == 2008896, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami, utilization_switch) == 2008900, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami, recent_kernel) == 2008904, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami, priority) == 2008908, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami, last_kernel_time) == 2008912, "HAMi's layout");
_Static_assert(offsetof(struct vgpu_hami, late_lock) == 2008920, "HAMi's layout");
#endif

#ifdef __cplusplus
}
#endif

#endif
