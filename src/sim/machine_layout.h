/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine file as it is mapped, and what the machine's own parts share. Everything in it but
 * the counters is under the one robust lock. `live` words are primary and written last (or cleared
 * first); links, counts and totals follow from them, so that recovery after a killed owner can
 * compute them anew.
 */
#ifndef VGPU_SIM_MACHINE_LAYOUT_H
#define VGPU_SIM_MACHINE_LAYOUT_H

#include "sim/machine.h"

#include <pthread.h>
#include <stdatomic.h>

#define SIM_LAYOUT_VERSION 2u
#define SIM_MAGIC 0x316d697375706776ull /* "vgpusim1" */

#define SIM_SLOTS_MAX 1024u
#define SIM_CLIENTS_MAX 1024u
#define SIM_OBJECTS_MAX (1u << 18)
#define SIM_OBJECT_BUCKETS (1u << 17)
#define SIM_COUNTERS_MAX 2048u
#define SIM_SEGMENTS_MAX 1024u
#define SIM_WINDOWS_MAX 128u
#define SIM_EXPORTS_MAX 16u
#define SIM_METADATA_BYTES 64u
#define SIM_NONE UINT32_MAX

/* What an export attached to a description. */
struct sim_export {
    uint32_t max_objects; /* 0: nothing was exported to it */
    uint32_t device;
    uint32_t memories[SIM_EXPORTS_MAX]; /* indexes, or SIM_NONE */
    uint8_t metadata[SIM_METADATA_BYTES];
};

/* An open file description of the machine file. Its lock byte is held by the description itself. */
struct sim_slot {
    uint32_t live;
    uint32_t generation;
    int32_t pid;
    uint32_t pad;
    uint64_t busy_ns[SIM_DEVICES_MAX];
    struct sim_export exported;
};

enum sim_share { SIM_PRIVATE, SIM_SHARED_OWNED, SIM_SHARED_DUPED, SIM_SHARES };

struct sim_client {
    uint32_t live;
    uint32_t handle;
    uint32_t slot;
    int32_t pid;
    uint32_t next_handle;
    uint32_t bucket_next;
    uint32_t first_child;
    uint32_t pad;
    uint32_t channel_groups[SIM_DEVICES_MAX];
    uint64_t bytes[SIM_DEVICES_MAX][SIM_SHARES];
};

struct sim_object {
    uint32_t live;
    uint32_t client;
    uint32_t handle;
    uint32_t parent; /* object index, SIM_NONE below the client itself */
    uint32_t class_id;
    uint32_t device; /* index, or SIM_NONE */
    uint32_t memory; /* index, or SIM_NONE */
    uint32_t engine_type;
    uint32_t timeslice_us;
    uint32_t disabled;
    uint32_t shared;      /* other processes may duplicate it (RM_NR_SHARE) */
    uint32_t mapped;      /* nvidia-uvm has a handle of its own for this one */
    uint32_t bucket_next; /* also links the free list */
    uint32_t first_child;
    uint32_t sibling_next;
    uint32_t sibling_previous;
    uint32_t memory_next; /* next handle on the same memory */
    uint32_t memory_previous;
};

struct sim_memory {
    uint32_t device;
    uint32_t owner;        /* the handle whose client it counts as owned for, or SIM_NONE */
    uint32_t references;   /* handles and exported descriptors; 0 = free */
    uint32_t mappings;     /* of its handles, how many are mapped */
    uint32_t first_handle; /* object; also links the free list */
    uint32_t pad;
    uint64_t bytes;
};

struct sim_segment {
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t duration_ns;
    uint32_t slot;
    uint32_t generation;
    int32_t pid;
    uint32_t pad;
};

struct sim_window {
    uint64_t number; /* end time / SIM_SAMPLE_NS */
    uint64_t busy_ns;
    int32_t last_pid;
    uint32_t pad;
};

struct sim_timeline {
    uint32_t first; /* running counts; place = count % SIM_SEGMENTS_MAX */
    uint32_t end;
    uint64_t accounted_ns; /* all before is in the windows */
    uint64_t queue_end_ns;
    struct sim_segment segments[SIM_SEGMENTS_MAX];
    struct sim_window windows[SIM_WINDOWS_MAX];
};

struct sim_counter {
    _Atomic uint32_t live;
    uint32_t pad;
    _Atomic uint64_t calls;
    char name[48];
};

struct sim_machine {
    _Atomic uint64_t magic;
    uint32_t layout_version;
    uint32_t cuda_version;
    uint64_t file_bytes;
    char boot_id[40];
    char driver_version[32];
    pthread_mutex_t lock;

    uint32_t device_count;
    uint32_t slots_end; /* no live slot at or after it */
    uint32_t objects_end;
    uint32_t memories_end;
    uint32_t free_object;
    uint32_t free_memory;
    uint32_t next_client;
    uint32_t clients_end;

    struct sim_device devices[SIM_DEVICES_MAX];
    uint64_t used_bytes[SIM_DEVICES_MAX];
    struct sim_timeline timelines[SIM_DEVICES_MAX];
    struct sim_counter counters[SIM_COUNTERS_MAX];
    struct sim_slot slots[SIM_SLOTS_MAX];
    uint32_t client_buckets[SIM_CLIENTS_MAX];
    struct sim_client clients[SIM_CLIENTS_MAX];
    uint32_t object_buckets[SIM_OBJECT_BUCKETS];
    struct sim_object objects[SIM_OBJECTS_MAX];
    struct sim_memory memories[SIM_OBJECTS_MAX];
};

/* The mapping, or NULL before sim_attach(). */
extern struct sim_machine *sim_machine;

/* The lock survives its owner: the next taker recomputes whatever follows from the live objects. */
void sim_lock(void);
void sim_unlock(void);

/* A descriptor of the machine file without a slot, for a moment's use; -errno. */
int sim_file_open(void) SIM_WARN_UNUSED;
/* Whether fd is a description of the machine file. Keeps errno. */
bool sim_file_is(int fd);

/* The slot behind fd, or SIM_NONE. */
uint32_t sim_slot_of_locked(int fd);
/* Finds slots whose last descriptor is closed and frees what they held. */
void sim_reap_locked(void);

/* Counts the call against all rules that match it; whether one of them wants this very call to
 * fail. Any thread. */
bool sim_rule_hits(enum sim_rule_kind kind, const char *function, uint32_t number,
    const struct sim_rule **ret_rule) SIM_WARN_UNUSED;

/* Ends the work of a slot now: what its dead owner had queued never runs. */
void sim_timeline_drop_slot_locked(uint32_t slot);

#endif
