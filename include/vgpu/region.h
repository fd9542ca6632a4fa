/* SPDX-License-Identifier: Apache-2.0 */
/* The shared region of a container: the one file through which its processes account for device
 * memory and GPU time, and through which tools and monitors read them and set limits.
 *
 * The file is mapped shared by every process of the container. Offsets are frozen: a field never
 * moves, is never reused for another meaning, and new fields take reserved space. A change that an
 * older reader would misread raises VGPU_REGION_VERSION; anything else does not. All words are
 * in the machine's byte order, which `byte_order` proves.
 *
 * The first bytes of the file are the projection that HAMi's monitor reads, and in which it gives
 * its commands (vgpu/hami.h); our own part begins at VGPU_REGION_OFFSET.
 *
 * Trust: every process of the container can write the whole file. A reader checks each value that
 * it uses as an index, a count or a length, and trusts none of them for its own memory safety. */
#ifndef VGPU_REGION_H
#define VGPU_REGION_H

#include "vgpu/hami.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VGPU_REGION_OFFSET 2011136u             /* 491 pages: HAMi's 2,008,952 bytes, rounded up */
#define VGPU_REGION_MAGIC 0x3147455255504756ull /* "VGPUREG1" as bytes in the file */
#define VGPU_REGION_VERSION 4u
#define VGPU_REGION_BYTE_ORDER 0x01020304u
#define VGPU_REGION_DEVICES 64u
#define VGPU_REGION_SLOTS 1024u
#define VGPU_COMPUTE_SPANS 2048u         /* spans of time in which busy time is united: 67 ms */
#define VGPU_COMPUTE_HOLDS 4u            /* launches that waited, of which is kept when */
#define VGPU_COMPUTE_SPAN_NS 32768u      /* the length of each */
#define VGPU_HISTORY_MARKS 63u           /* a minute of them */
#define VGPU_HISTORY_MARK_NS 1000000000u /* the least time between two */

/* A process's use of one device. Written by its owner alone, read by all. */
struct vgpu_usage {
    uint64_t bytes;       /* 0: enforced: device memory held or reserved, managed memory, and
                             device memory that is backed by the host's */
    uint64_t pending;     /* 8: the part of `bytes` whose driver call has not answered yet */
    uint64_t lingering;   /* 16: freed here after export to others, who may still hold it */
    uint64_t imported;    /* 24: memory of other processes that this one holds a handle on */
    uint64_t context;     /* 32: `bytes` by kind: contexts, local memory, heaps */
    uint64_t module;      /* 40: modules and libraries */
    uint64_t buffer;      /* 48: allocations of the program */
    uint64_t managed;     /* 56: managed memory */
    uint64_t unexplained; /* 64: found by the audit, in no kind */
    uint64_t gpu_time_ns; /* 72: GPU time used, for compute limits */
    uint64_t exported;    /* 80: the part of `bytes` that other processes may have handles on */
    uint64_t asked_ns;    /* 88: when it last asked for GPU time; CLOCK_MONOTONIC */
    uint64_t gate;        /* 96: enum vgpu_gate: how it can be kept to a compute limit */
    uint64_t spilled;     /* 104: the part of `bytes` that is backed by host memory, because the
                             card, or the container's share of it, was full; in no other kind */
    uint64_t movable;     /* 112: the part of `buffer` that could be moved to host memory */
    uint64_t worked_ns;   /* 120: when it last submitted work, or a call waited to; only where
                             tenants take turns with the card's memory. CLOCK_MONOTONIC */
};

/* What holds a process's work on a device to the limit. */
enum vgpu_gate {
    VGPU_GATE_UNSAID = 0,  /* nothing had to yet */
    VGPU_GATE_LAUNCH = 1,  /* launches wait for their turn */
    VGPU_GATE_CHANNEL = 2, /* and what runs can be taken off the GPU: the channel gate works */
};

/* What the container is told of its memory on the card: the low two bits of vgpu_region.release. */
enum vgpu_release {
    VGPU_RELEASE_NONE = 0,      /* it stays there, and what was moved away comes back */
    VGPU_RELEASE_PAUSE = 1,     /* it goes to host memory, and work waits for the end of that */
    VGPU_RELEASE_ON_DEMAND = 2, /* it goes to host memory, until the next work wants it */
    /* as VGPU_RELEASE_PAUSE, and then nothing of the process calls the driver until the end of the
     * order: another process may have the driver checkpoint it */
    VGPU_RELEASE_CHECKPOINT = 3,
};

/* What a process has made of it. */
enum vgpu_release_state {
    VGPU_RELEASE_IDLE = 0,        /* nothing is moved away */
    VGPU_RELEASE_MOVING = 1,      /* on its way, either way */
    VGPU_RELEASE_DONE = 2,        /* what can be moved is in host memory */
    VGPU_RELEASE_PARTLY = 3,      /* some of it: the driver, or host memory, refused more */
    VGPU_RELEASE_NOT_DRAINED = 4, /* nothing: its work did not end in time */
    VGPU_RELEASE_CAPTURES = 5,    /* nothing: it captures work into a graph */
    VGPU_RELEASE_NO_ROOM = 6,     /* nothing: host memory is short */
    VGPU_RELEASE_PARKED = 7, /* all, and nothing of it calls the driver: VGPU_RELEASE_CHECKPOINT */
    /* The same. The one that has the driver checkpoint it writes this in the place of _PARKED, and
     * _PARKED again when it is restored: the process heeds no order in between. */
    VGPU_RELEASE_CHECKPOINTED = 8,
};

/* Slot states in the low two bits of vgpu_slot.state. */
enum vgpu_slot_state {
    VGPU_SLOT_FREE = 0,     /* anyone may claim it; its usage means nothing */
    VGPU_SLOT_CLAIMING = 1, /* its claimer is zeroing it */
    VGPU_SLOT_LIVE = 2,     /* counts */
};

/* A process. Slots never move. Claimed by compare-and-swap FREE to CLAIMING with the generation
 * raised by one; taken back by compare-and-swap LIVE to FREE on the very word that was judged
 * dead. While it lives its owner holds an open-file-description write lock on the byte of the file
 * at which `state` lies. */
struct vgpu_slot {
    uint64_t state;         /* 0: generation << 32 | pid << 2 | enum vgpu_slot_state */
    uint64_t start_time;    /* 8: clock ticks after boot, field 22 of /proc/<pid>/stat; 0 unknown */
    uint64_t pid_namespace; /* 16: inode of /proc/self/ns/pid; 0 unknown */
    char command[32];       /* 24: the command's name, for tools; not terminated if full */
    uint64_t ledger;        /* 56: 1 resource-manager ledger, 2 API ledger, 0 not chosen yet */
    uint64_t stack_start;   /* 64: field 28 of /proc/<pid>/stat, which exec changes; 0 unknown */
    uint64_t release;       /* 72: what became of the last order to release memory: the order
                               (vgpu_region.release) << 32 | enum vgpu_release_state */
    uint64_t released;    /* 80: bytes that it moved to host memory for it, or because it was idle,
                             and did not move back yet */
    uint64_t lacking;     /* 88: with VGPU_RELEASE_NO_ROOM: bytes of host memory that lack; parked
                             or checkpointed: bytes that the driver restores onto cards */
    uint64_t ready;       /* 96: bytes of host memory that it keeps for the next move to the host;
                             in no usage */
    uint64_t reserved[3]; /* 104 */
    struct vgpu_usage usage[VGPU_REGION_DEVICES]; /* 128 */
};

/* A device that some process of the container has met, and the live limits on it. */
struct vgpu_device {
    char uuid[48];              /* 0: "GPU-..." or "MIG-...", terminated; empty: entry not in use */
    uint64_t memory_limit;      /* 48: bytes; 0 none */
    uint64_t memory_closed;     /* 56: nonzero: a limit was asked for that is not understood */
    uint64_t physical_bytes;    /* 64: the card's own memory, 0 unknown */
    uint32_t core_limit;        /* 72: percent; 0 none */
    uint32_t core_soft_limit;   /* 76: percent, up to 100; 0 none. Means something only above
                                   core_limit */
    uint64_t settings_hash;     /* 80: of the environment that the limits came from; 0 from none */
    uint64_t orphaned;          /* 88: exported by processes that died; counts as lingering */
    uint64_t tenant;            /* 96: the container's random id on the GPU's board; 0 none yet */
    uint64_t hami_memory_limit; /* 104: what HAMi's part was last given of memory_limit; where that
                                   says something else, its monitor has set a limit */
    uint64_t hami_core_limit;   /* 112: likewise, as it stands there */
    uint64_t refusals; /* 120: charges of memory that were refused; a refused request that is asked
                          for again counts again */
};

/* Which of the defaults were set while programs ran: they hold for a device that is met later,
 * whatever the environment of the process that meets it says. */
enum vgpu_defaults_set {
    VGPU_DEFAULTS_MEMORY = 1,
    VGPU_DEFAULTS_CORES = 2,
    VGPU_DEFAULTS_SOFT_CORES = 4,
};

/* What gave the container its priority. */
enum vgpu_priority_set {
    VGPU_PRIORITY_UNSET = 0,       /* nobody: it has VGPU_PRIORITY_DEFAULT */
    VGPU_PRIORITY_ENVIRONMENT = 1, /* the environment of its first process */
    VGPU_PRIORITY_LIVE = 2,        /* set while programs ran: no environment sets it back */
};

#define VGPU_PRIORITY_DEFAULT 1u /* 0 is high, a larger number is lower */

/* The container's GPU time on one device, in nanoseconds; times are CLOCK_MONOTONIC. Written by all
 * its processes, without a lock: a process that is killed between two writes leaves at most the few
 * milliseconds wrong that it was about to add. */
struct vgpu_compute {
    uint64_t granted_ns;  /* 0: what the limit has given so far */
    uint64_t charged_ns;  /* 8: what was taken of it: work on its way by estimate, work done by
                             measure. The container may go on while granted - charged > 0 */
    uint64_t refilled_ns; /* 16: the time up to which was granted; 0: never */
    uint64_t busy_ns;     /* 24: measured: how long the container kept the device busy */
    uint64_t holds_made;  /* 32: how many launches waited for the limit; the n-th lies at
                             n % VGPU_COMPUTE_HOLDS */
    struct {
        uint64_t from_ns, to_ns; /* CLOCK_MONOTONIC: since when, and when it was admitted */
    } holds[VGPU_COMPUTE_HOLDS]; /* 40: the last ones */
    uint64_t parts_ns;           /* 104: what its processes took, each as it says: the sum, of which
                                    each that asks has an equal part */
    uint64_t waited_ns;          /* 112: how long launches waited for the limit, summed over the
                                    threads that waited */
    int64_t borrowed_bytes;      /* 120: of memory, not of time: how much more than its share the
                                    container may have on the card, because others lent it; below 0:
                                    how much less */
    /* 128: span number, its low 16 bits << 16 | nanoseconds of it in which some process was busy.
     * The span of time t is t / VGPU_COMPUTE_SPAN_NS; its word lies at that % VGPU_COMPUTE_SPANS,
     * its number is that / VGPU_COMPUTE_SPANS. */
    uint32_t spans[VGPU_COMPUTE_SPANS];
};

/* How busy_ns of vgpu_compute grew, for tools. A process that adds to busy_ns
 * VGPU_HISTORY_MARK_NS or more after the newest mark makes one; none does while the container does
 * not work, so later than that after the newest mark busy_ns has not changed since. */
struct vgpu_history {
    uint64_t made; /* 0: how many marks were ever made; the n-th lies at n % VGPU_HISTORY_MARKS */
    uint64_t reserved;
    struct {
        uint64_t time_ns;        /* CLOCK_MONOTONIC; 0: no mark, or it is being written */
        uint64_t busy_ns;        /* vgpu_compute.busy_ns before what was added at that time */
    } marks[VGPU_HISTORY_MARKS]; /* 16 */
};

/* Whose container it is, by the environment of its first process that says so. Each terminated, or
 * empty; what is longer is cut. */
struct vgpu_identity {
    uint64_t state; /* 0: 0 nobody said, 1 it is being written, 2 written */
    char pod_name[256];
    char pod_namespace[64];
    char pod_uid[64];
    char container_name[64];
    uint64_t times; /* 456: raised before the texts are written: unchanged, with state 2 before and
                       after, they were read whole */
    uint64_t reserved[6];
};

struct vgpu_region {
    uint64_t magic;          /* 0: a region without it is not initialised */
    uint32_t version;        /* 8 */
    uint32_t byte_order;     /* 12 */
    uint64_t size;           /* 16: bytes of this structure */
    uint32_t device_entries; /* 24: VGPU_REGION_DEVICES */
    uint32_t slot_entries;   /* 28: VGPU_REGION_SLOTS */
    uint32_t device_count;   /* 32: devices[] in use, from 0 up; only grows while a slot lives */
    uint32_t slot_high;      /* 36: no slot at or above this was ever claimed; only grows */
    uint64_t settings_hash;  /* 40: of the environment's limits that devices[] were set from */
    uint64_t default_memory_limit; /* 48: bytes, for devices without a limit of their own; 0 none */
    uint32_t default_core_limit;   /* 56: percent, likewise */
    uint32_t defaults_set;         /* 60: enum vgpu_defaults_set; 0: they are an environment's */
    uint32_t orders_epoch;         /* 64: a futex word. A change of limits, a pause, a resume,
                                      either end of the window and a question for ready memory raise
                                      it and wake its sleepers */
    uint32_t paused;               /* 68: 0 or 1: nothing of the container runs on the GPU */
    uint32_t priority;             /* 72: 0 high; VGPU_PRIORITY_DEFAULT where nobody set one */
    uint32_t priority_set;         /* 76: enum vgpu_priority_set */
    uint64_t window_closed_ns;     /* 80: when the container's governors last closed its GPU */
    uint64_t window_until_ns;      /* 88: and until when it is closed; 0 open. CLOCK_MONOTONIC */
    uint32_t default_core_soft_limit; /* 96: percent, for devices without one of their own */
    uint32_t release;                 /* 100: number of the order << 2 | enum vgpu_release */
    uint64_t coupled_ns;              /* 104: when kernels of one of the container's devices were
                                         last found to wait for those of another; 0 never */
    uint64_t ready_asked_ns;          /* 112: when a process last asked the others to give back the
                                         host memory that they keep ready; 0 never. None is kept
                                         for 1 s from then. CLOCK_MONOTONIC */
    uint64_t reserved[17];            /* 120 */
    struct vgpu_device devices[VGPU_REGION_DEVICES];  /* 256 */
    struct vgpu_slot slots[VGPU_REGION_SLOTS];        /* 8448 */
    struct vgpu_compute compute[VGPU_REGION_DEVICES]; /* 8528128: of devices[] */
    struct vgpu_history history[VGPU_REGION_DEVICES]; /* 9060608: of devices[] */
    struct vgpu_identity identity;                    /* 9126144 */
};

/* The file as a process maps it: from its beginning. */
#define VGPU_REGION_MAP_OFFSET 0u
struct vgpu_region_map {
    struct vgpu_hami hami;
    unsigned char reserved[VGPU_REGION_OFFSET - sizeof(struct vgpu_hami)];
    struct vgpu_region region;
};

#define VGPU_REGION_FILE_BYTES (VGPU_REGION_OFFSET + sizeof(struct vgpu_region))

#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(struct vgpu_usage) == 128, "frozen layout");
_Static_assert(offsetof(struct vgpu_usage, managed) == 56, "frozen layout");
_Static_assert(offsetof(struct vgpu_usage, gpu_time_ns) == 72, "frozen layout");
_Static_assert(offsetof(struct vgpu_usage, gate) == 96, "frozen layout");
_Static_assert(offsetof(struct vgpu_usage, spilled) == 104, "frozen layout");
_Static_assert(offsetof(struct vgpu_usage, movable) == 112, "frozen layout");
_Static_assert(offsetof(struct vgpu_usage, worked_ns) == 120, "frozen layout");
_Static_assert(offsetof(struct vgpu_slot, command) == 24, "frozen layout");
_Static_assert(offsetof(struct vgpu_slot, ledger) == 56, "frozen layout");
_Static_assert(offsetof(struct vgpu_slot, release) == 72, "frozen layout");
_Static_assert(offsetof(struct vgpu_slot, released) == 80, "frozen layout");
_Static_assert(offsetof(struct vgpu_slot, lacking) == 88, "frozen layout");
_Static_assert(offsetof(struct vgpu_slot, ready) == 96, "frozen layout");
_Static_assert(offsetof(struct vgpu_slot, usage) == 128, "frozen layout");
_Static_assert(sizeof(struct vgpu_slot) == 8320, "frozen layout");
_Static_assert(sizeof(struct vgpu_device) == 128, "frozen layout");
_Static_assert(offsetof(struct vgpu_device, core_limit) == 72, "frozen layout");
_Static_assert(offsetof(struct vgpu_device, tenant) == 96, "frozen layout");
_Static_assert(offsetof(struct vgpu_device, hami_memory_limit) == 104, "frozen layout");
_Static_assert(offsetof(struct vgpu_device, hami_core_limit) == 112, "frozen layout");
_Static_assert(offsetof(struct vgpu_device, refusals) == 120, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, settings_hash) == 40, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, defaults_set) == 60, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, orders_epoch) == 64, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, paused) == 68, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, priority) == 72, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, priority_set) == 76, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, window_closed_ns) == 80, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, window_until_ns) == 88, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, default_core_soft_limit) == 96, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, release) == 100, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, coupled_ns) == 104, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, ready_asked_ns) == 112, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, devices) == 256, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, slots) == 8448, "frozen layout");
_Static_assert(sizeof(struct vgpu_compute) == 8320, "frozen layout");
_Static_assert(offsetof(struct vgpu_compute, holds) == 40, "frozen layout");
_Static_assert(offsetof(struct vgpu_compute, waited_ns) == 112, "frozen layout");
_Static_assert(offsetof(struct vgpu_compute, borrowed_bytes) == 120, "frozen layout");
_Static_assert(offsetof(struct vgpu_compute, spans) == 128, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, compute) == 8528128, "frozen layout");
_Static_assert(sizeof(struct vgpu_history) == 1024, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, history) == 9060608, "frozen layout");
_Static_assert(sizeof(struct vgpu_identity) == 512, "frozen layout");
_Static_assert(offsetof(struct vgpu_identity, times) == 456, "frozen layout");
_Static_assert(offsetof(struct vgpu_region, identity) == 9126144, "frozen layout");
_Static_assert(sizeof(struct vgpu_region) == 9126656, "frozen layout");
_Static_assert(offsetof(struct vgpu_region_map, region) == VGPU_REGION_OFFSET, "frozen layout");
_Static_assert(sizeof(struct vgpu_region_map) == VGPU_REGION_FILE_BYTES, "frozen layout");
_Static_assert(VGPU_REGION_OFFSET % 4096 == 0, "frozen layout");
#endif

#ifdef __cplusplus
}
#endif

#endif
