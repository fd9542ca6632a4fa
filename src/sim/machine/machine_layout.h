/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine file as it is mapped, and what the machine's own parts share. Everything in it but
 * the counters is under the one robust lock. `live` words are primary and written last (or cleared
 * first); links, counts and totals follow from them, so that recovery after a killed owner can
 * compute them anew.
 */
#ifndef VGPU_SIM_MACHINE_MACHINE_LAYOUT_H
#define VGPU_SIM_MACHINE_MACHINE_LAYOUT_H

#include "sim/machine/machine.h"

#include <pthread.h>
#include <stdatomic.h>

#define SIM_LAYOUT_VERSION 7u
#define SIM_MAGIC 0x316d697375706776ull /* "vgpusim1" */

#define SIM_SLOTS_MAX 1024u
#define SIM_CLIENTS_MAX 1024u
#define SIM_OBJECTS_MAX (1u << 18)
#define SIM_OBJECT_BUCKETS (1u << 17)
#define SIM_COUNTERS_MAX 2048u
#define SIM_GROUPS_MAX 1024u
#define SIM_RINGS_MAX 1024u
#define SIM_OPS_MAX 2048u
#define SIM_MARKS_MAX (1u << 17)
#define SIM_EVENTS_MAX 4096u
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

/* The checkpoint calls' view of a process, on the slot of its RM client. `request` and `answered`
 * count, and are written after what belongs to them; they are equal while nothing is asked. */
struct sim_checkpoint {
    int32_t thread;    /* of the process, which does what is asked; 0: it takes no such calls */
    uint32_t state;    /* enum sim_checkpoint_state */
    uint32_t kind;     /* of the last request: enum sim_checkpoint_kind */
    uint32_t result;   /* of what was answered last */
    uint64_t until_ns; /* when the last request is over by itself; SIM_NEVER: not */
    uint32_t request;
    uint32_t answered;
};

/* An open file description of the machine file. Its lock byte is held by the description itself. */
struct sim_slot {
    uint32_t live;
    uint32_t generation;
    int32_t pid;
    uint32_t pad;
    uint64_t busy_ns[SIM_DEVICES_MAX];
    struct sim_checkpoint checkpoint;
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

struct sim_window {
    uint64_t number; /* end time / SIM_SAMPLE_NS */
    uint64_t busy_ns;
    int32_t last_pid;
    uint32_t pad;
};

/* What waits in a ring; kinds after the public ones are the machine's own. */
enum { SIM_OP_MARK = SIM_WORK_AFTER + 1, SIM_OP_HOLD };
struct sim_op {
    uint32_t kind;
    uint32_t index;      /* of the ring waited for, or of the mark; a kernel: its parties */
    uint32_t generation; /* … its */
    uint32_t sequence;   /* … its */
    uint64_t value_ns;   /* what is left of a kernel; a copy's duration */
    union {
        uint64_t wake_ns; /* of a copy that has begun: its end */
        uint64_t meeting; /* of a kernel with parties */
    };
};

/* The work of one stream, from the first that is not done to the last; live while there is any.
 * Counts run on; place = count % SIM_OPS_MAX. */
struct sim_ring {
    uint32_t live;
    uint32_t generation;
    uint32_t group;
    uint32_t first;
    uint32_t end;
    uint32_t waited; /* another ring waits, or waited, for this one */
    uint32_t next;   /* in the one list that it is in: free, ready, marked, delayed or waiting */
    uint32_t pad;
    uint64_t issued_ns;   /* all durations of this life */
    uint64_t executed_ns; /* … of them, what is done, but for what runs now */
    struct sim_op ops[SIM_OPS_MAX];
};

/* A context's channel group on a device's compute engine. */
struct sim_group {
    uint32_t live;
    uint32_t generation;
    uint32_t slot;
    uint32_t device;
    uint32_t object; /* the channel group; SIM_NONE: an MPS client has none */
    int32_t pid;
    uint32_t stopped;     /* all its channels are disabled */
    uint32_t runnable;    /* has something to do and is not stopped; counted in its engine */
    uint32_t first_ready; /* rings whose first work is a kernel, in the order they became so */
    uint32_t last_ready;
    uint32_t marked;   /* rings that have come to a mark, and wait for the group's turn */
    uint32_t restored; /* from a checkpoint: what disables its channels ends the kernel that runs */
    uint32_t failed;   /* … and did */
};

/* A device's compute engine. resident: the group whose state is on it, SIM_NONE, or another number
 * where that was taken off. */
struct sim_engine {
    uint32_t runnable_groups;
    uint32_t turn; /* the group that has the engine, or SIM_NONE */
    uint32_t last; /* … that had it last */
    uint32_t resident;
    uint32_t running; /* ring, or SIM_NONE */
    uint32_t pad;
    uint64_t slice_start_ns; /* ahead while it changes groups */
    uint64_t run_start_ns;   /* SIM_NEVER: what runs waits for the others of its meeting */
    struct sim_window windows[SIM_WINDOWS_MAX];
};

/* When a place in a ring was passed; or, while it lives, that none passes it. */
struct sim_mark_slot {
    uint32_t live;
    uint32_t generation;
    uint32_t slot;
    uint32_t next_free;
    uint64_t at_ns; /* 0: not yet */
};

/* An event that several processes know. */
struct sim_event_slot {
    uint32_t live;
    uint32_t generation;
    uint32_t slot; /* of the process that made it */
    uint32_t pad;
    struct sim_ticket ticket;
};

struct sim_timeline {
    uint64_t now_ns; /* all before has happened */
    uint64_t reaped_ns;
    uint64_t delayed_ns; /* the first of the delayed rings' ends */
    uint32_t delayed;    /* rings whose first work is a copy */
    uint32_t waiting;    /* … waits for another ring, or is held */
    uint32_t changed;    /* the engines, or those that wait, have to be looked at */
    uint32_t groups_end;
    uint32_t rings_end;
    uint32_t marks_end;
    uint32_t free_ring;
    uint32_t free_mark;
    uint32_t events_end;
    uint32_t pad;
    struct sim_engine engines[SIM_DEVICES_MAX];
    struct sim_group groups[SIM_GROUPS_MAX];
    struct sim_mark_slot marks[SIM_MARKS_MAX];
    struct sim_event_slot events[SIM_EVENTS_MAX];
    struct sim_ring rings[SIM_RINGS_MAX];
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

    uint32_t device_count; /* cards, and instances of cards in MIG mode behind them */
    uint32_t card_count;
    uint32_t slots_end; /* no live slot at or after it */
    uint32_t objects_end;
    uint32_t memories_end;
    uint32_t free_object;
    uint32_t free_memory;
    uint32_t next_client;
    uint32_t clients_end;

    struct sim_device devices[SIM_DEVICES_MAX];
    uint64_t used_bytes[SIM_DEVICES_MAX];
    struct sim_counter counters[SIM_COUNTERS_MAX];
    struct sim_slot slots[SIM_SLOTS_MAX];
    uint32_t client_buckets[SIM_CLIENTS_MAX];
    struct sim_client clients[SIM_CLIENTS_MAX];
    uint32_t object_buckets[SIM_OBJECT_BUCKETS];
    struct sim_object objects[SIM_OBJECTS_MAX];
    struct sim_memory memories[SIM_OBJECTS_MAX];
    struct sim_timeline timeline;
};

/* The mapping, or NULL before sim_attach(). */
extern struct sim_machine *sim_machine;

/* Those of the description, in an empty machine. `salt`: of their UUIDs. */
void sim_devices_init(
    struct sim_machine *machine, const struct sim_description *description, uint64_t salt);

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

/* ---- the timeline (machine_timeline.c) ---- */
/* An empty one, before anybody else sees it. */
void sim_timeline_init(struct sim_machine *machine);
/* Lets happen what happens until now, which it returns; where groups of several processes compete,
 * or one waits for another, it looks now and then whether they live. Then every index must be
 * looked up again. */
uint64_t sim_timeline_look_locked(void);
/* The same without looking for dead processes. */
uint64_t sim_timeline_advance_locked(void);
/* Looks now whether processes died, unless a process did a moment ago. */
void sim_timeline_look_for_dead_locked(void);
/* What has become of a ring's first work is looked at, now. */
void sim_timeline_begin_locked(uint32_t ring);
/* A mark that held a ring is gone, now. */
void sim_timeline_released_locked(void);
bool sim_timeline_passed_locked(uint32_t ring, uint32_t generation, uint32_t sequence);
/* Ends the work of a group, of a slot, now: it never runs, and what waits for it goes on. */
void sim_timeline_drop_group_locked(uint32_t group);
void sim_timeline_drop_slot_locked(uint32_t slot);
/* Whether the channel group was restored from a checkpoint and has a kernel on the GPU, whose
 * context has failed then. */
bool sim_timeline_fail_restored_locked(uint32_t object);
/* A channel group's channels, or its time slice, changed. */
void sim_timeline_channels_changed_locked(uint32_t object);
/* The channel group is no more. */
void sim_timeline_object_gone_locked(uint32_t object);
/* The figure that follows from what an earlier one left, after an owner of the lock died. */
void sim_timeline_recover_locked(void);

/* ---- events of several processes (machine_event.c) ---- */
void sim_events_drop_slot_locked(uint32_t slot);
void sim_events_recover_locked(void);

/* ---- NVML's windows (machine_samples.c) ---- */
void sim_windows_add(struct sim_window *windows, int32_t pid, uint64_t start_ns, uint64_t end_ns);

#endif
