/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pretend machine: one shared file that the simulated libcuda, NVML and RM device of all its
 * processes map. This header is what those libraries may call; the file's layout is in
 * machine_layout.h.
 */
#ifndef VGPU_SIM_MACHINE_MACHINE_H
#define VGPU_SIM_MACHINE_MACHINE_H

#include "sim/machine/description.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SIM_WARN_UNUSED __attribute__((warn_unused_result))

/* ---- The machine ---- */

/*
 * Finds or creates the machine and maps it: VGPU_SIM holds the description; the file is its
 * machine=FILE, else VGPU_SIM_MACHINE, else /tmp/vgpu-sim-<uid>-<session id>. A name in the
 * environment that ends in "/" is a directory, made where it is missing, with one machine for each
 * shape. The first comer's
 * description shapes the devices. Cheap when done before; any thread. Returns 0 or -errno: -EINVAL
 * description not understood (or at odds with the machine that exists), others from the file. A
 * failure is remembered and said once on stderr. No descriptor stays open. Every other function
 * here needs a successful sim_attach(), unless it says otherwise.
 */
int sim_attach(void) SIM_WARN_UNUSED;

/* This process' own description: behaviours hold per process, the shape (devices) is the machine's.
 * Never NULL. */
const struct sim_description *sim_description(void);

const char *sim_driver_version(void); /* "580.159.04" */
unsigned sim_cuda_version(void);      /* 13000 */

/*
 * ---- Devices: index 0 to count - 1 is a card's NVML index, and the deviceId of RM class 0x80 ----
 * The MIG compute instances have the indices behind: each is a device with memory and a compute
 * engine of its own, whose card (model.mig_card) does nothing itself.
 */
struct sim_device {
    struct sim_model model;
    char uuid[48];          /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", derived from the index;
                               an instance's: "MIG-..." */
    uint8_t uuid_bytes[16]; /* the same, as cuDeviceGetUuid_v2 gives it */
    char pci_bus_id[16]; /* "0000:01:00.0": 4-digit domain, upper-case hex, as cuDeviceGetPCIBusId
                            gives it */
    uint32_t pci_domain;
    uint32_t pci_bus;
    uint32_t pci_device;
    uint32_t minor;          /* of /dev/nvidiaN */
    uint32_t instance_count; /* of a card: above 0 it is in MIG mode */
    uint32_t gpu_instance;   /* of an instance: its number among its card's, from 1 up */
};

unsigned sim_device_count(void); /* cards */
unsigned sim_unit_count(void);   /* cards and instances */
/* An instance's card; a card itself. */
const struct sim_device *sim_device_card(const struct sim_device *device);
const struct sim_device *sim_device(unsigned index); /* NULL if there is none; valid for ever */

struct sim_usage {
    uint64_t total_bytes;    /* NVML's total */
    uint64_t reserved_bytes; /* CUDA's total is total - reserved */
    uint64_t used_bytes;     /* given out to objects of all processes */
    uint64_t free_bytes;     /* total - reserved - used */
};
/* What the device has given out now, a card in MIG mode what its instances have; memory of dead
 * processes is collected first. */
void sim_device_usage(unsigned index, struct sim_usage *ret_usage);

/* ---- RM descriptors ---- */

/*
 * A new descriptor of the machine (close-on-exec), as open("/dev/nvidiactl") or /dev/nvidia<N>
 * would be, or -errno
 * (-EMFILE: no slot left). RM clients allocated through it live until its last duplicate is closed:
 * close(2) frees all, and a forked child that inherited it keeps all. It is only good for ioctl,
 * dup, close, and passing to others.
 */
int sim_rm_open(void) SIM_WARN_UNUSED;

/* Whether fd is a descriptor of the machine. Keeps errno. */
bool sim_rm_is_descriptor(int fd);

/*
 * What the simulated libcuda and NVML use for every RM call: ioctl(2) by its symbol, so that
 * interposers see it; with no-rm (after a try with sandbox=), or where libvgpu-sim-rm.so is not
 * loaded (ENOTTY), the call is executed without any ioctl. Returns 0 with the result in the
 * structure's status, or -1 with errno.
 */
int sim_rm_ioctl(int fd, unsigned long request, void *arg) SIM_WARN_UNUSED;

/* Executes an RM ioctl on the machine, never by ioctl(2). Same result. */
int sim_rm_execute(int fd, unsigned long request, void *arg) SIM_WARN_UNUSED;

/*
 * Maps the memory into the GPU's address space, or no longer (nvidia-uvm's business in the real
 * driver, which takes a handle of its own for it: mapped memory is never private). Freeing the
 * object ends it too.
 */
void sim_memory_map(int fd, uint32_t client, uint32_t object, bool mapped);

/*
 * ---- Checkpoints (machine_checkpoint.c) ----
 * One process asks another for a step; a thread of that one does it and answers. A process that
 * ends takes its state with it. One that asked and died is not waited for: what it asked for is
 * done.
 */
enum sim_checkpoint_state {
    SIM_CHECKPOINT_RUNNING,
    SIM_CHECKPOINT_LOCKED,
    SIM_CHECKPOINT_DONE,
    SIM_CHECKPOINT_FAILED,
};
enum sim_checkpoint_kind {
    SIM_CHECKPOINT_LOCK,
    SIM_CHECKPOINT_SAVE,
    SIM_CHECKPOINT_RESTORE,
    SIM_CHECKPOINT_UNLOCK,
};

/* A process, as the slot of its RM descriptor. */
struct sim_checkpoint_process {
    uint32_t slot;
    uint32_t generation;
    pid_t pid;
    pid_t thread; /* 0: it takes no such calls */
};
/* -ESRCH where no process of that pid has an RM client, -EPERM where it is another user's. Dead
 * ones are collected first. */
int sim_checkpoint_find(pid_t pid, struct sim_checkpoint_process *ret_process) SIM_WARN_UNUSED;
/* -ESRCH: it is gone. */
int sim_checkpoint_state(const struct sim_checkpoint_process *process,
    enum sim_checkpoint_state *ret_state) SIM_WARN_UNUSED;
/*
 * Asks for the step and waits for its end. Returns 0 with the process' answer in *ret_result,
 * -EINVAL where the step is not for its state, -ETIMEDOUT after until_ns (SIM_NEVER: no such), with
 * the process as it was, or -ESRCH.
 */
int sim_checkpoint_ask(const struct sim_checkpoint_process *process, enum sim_checkpoint_kind kind,
    uint64_t until_ns, uint32_t *ret_result) SIM_WARN_UNUSED;

/* ---- the process' own side; fd: its RM descriptor, `thread` the one that calls what follows ----
 */
int sim_checkpoint_serve(
    int fd, pid_t thread, struct sim_checkpoint_process *ret_self) SIM_WARN_UNUSED;
/* Takes no lock. True with what is asked now. */
bool sim_checkpoint_asked(const struct sim_checkpoint_process *self, uint32_t *ret_request);
/* False: it is over (its time passed, or the process that asked gave it up). */
bool sim_checkpoint_open(const struct sim_checkpoint_process *self, uint32_t request,
    enum sim_checkpoint_kind *ret_kind);
/* The process is in that state and its answer is the result. False: the request was over. */
bool sim_checkpoint_answer(const struct sim_checkpoint_process *self, uint32_t request,
    enum sim_checkpoint_state state, uint32_t result);
enum sim_checkpoint_state sim_checkpoint_own_state(const struct sim_checkpoint_process *self);
/* Whether all the work of its streams is done, and whether none of its groups is disabled. */
bool sim_checkpoint_is_idle(const struct sim_checkpoint_process *self);
bool sim_checkpoint_is_enabled(const struct sim_checkpoint_process *self);

/* A device-memory object of a client. */
struct sim_memory_object {
    uint32_t handle;
    uint32_t parent;
    uint64_t bytes;
    bool mapped;
    bool shared; /* other processes may duplicate it */
    bool held;   /* another handle, or a descriptor, has the memory, too */
};
/* Fills at most max entries and returns how many there are in all. */
size_t sim_memory_objects(uint32_t client, struct sim_memory_object *ret_objects, size_t max);

/* ---- Processes on a device ---- */
struct sim_process {
    pid_t pid;                   /* that made the RM client; not shifted by nvml-pid=host */
    uint64_t private_bytes;      /* memory with one handle only */
    uint64_t shared_owned_bytes; /* memory with more handles, this process' own */
    uint64_t shared_duped_bytes; /* memory that another process owns (RM_DUP_OBJECT, import) */
    uint64_t busy_ns;            /* its kernels ran, since the process came */
};
/* Those with a channel group on the device, that is with a context. Fills at most max entries, each
 * pid once, dead ones collected first; returns how many there are in all. */
unsigned sim_device_processes(unsigned index, struct sim_process *ret_processes, unsigned max);

/*
 * ---- Timeline ----
 * What all streams of all processes have to do lies in the machine, and happens as time passes,
 * whether anybody looks or not; docs/simulator.md says how. Times are CLOCK_MONOTONIC in ns, exact
 * whenever they are asked for.
 */
uint64_t sim_clock_ns(void);

/* A duration that never ends. */
#define SIM_NEVER UINT64_MAX

struct sim_group_id {
    uint32_t index;
    uint32_t generation;
};
/*
 * Makes the context behind a channel group known: its handle and its client's, allocated on fd; 0
 * where it has none (an MPS client). The group lives until the descriptor is closed or it is
 * destroyed, with the work that is not done. Returns 0 or -errno.
 */
int sim_group_create(int fd, unsigned device, uint32_t client, uint32_t object,
    struct sim_group_id *ret_group) SIM_WARN_UNUSED;
/* The group's objects were made anew, as the driver does it when it restores a checkpoint. False:
 * there is no such group or object. */
bool sim_group_restore(
    const struct sim_group_id *group, int fd, uint32_t client, uint32_t object) SIM_WARN_UNUSED;
/* A switch of its channels met one of its kernels after that. */
bool sim_group_is_failed(const struct sim_group_id *group);
void sim_group_destroy(const struct sim_group_id *group);

/* A place in a stream's work: done when all before it is. All zero: done. */
struct sim_ticket {
    uint32_t ring;
    uint32_t generation;
    uint32_t sequence;
    uint64_t load_ns;
};

enum sim_work_kind {
    SIM_WORK_KERNEL, /* on the compute engine of the group's device, in turn with others */
    SIM_WORK_COPY,   /* beside it */
    SIM_WORK_AFTER,  /* waits */
};

struct sim_work {
    enum sim_work_kind kind;
    uint64_t duration_ns;
    struct sim_ticket after;
    /* A kernel with parties goes on only while that many of the meeting run, each on a device of
     * its own; it keeps its device busy meanwhile. */
    uint64_t meeting;
    uint32_t parties; /* 0: meets none */
};

/* A stream's work, one after another. The caller's storage and the caller's lock; begin with the
 * group alone. */
struct sim_queue {
    struct sim_group_id group;
    struct sim_ticket last; /* done when all of it is */
    uint32_t seen;
};

/* Where an event's time will stand. The caller's storage; begin with zeros. */
struct sim_mark {
    uint32_t index;
    uint32_t generation; /* 0: none taken */
    uint64_t at_ns;      /* 0: not known yet */
};

/* Appends. False: no room now, nothing was done, try again later. The work of a group that
 * is gone is done at once. Blocks for no more than the machine's lock; makes no system call while
 * no two processes compete or wait for each other. */
bool sim_queue_add(struct sim_queue *queue, const struct sim_work *work) SIM_WARN_UNUSED;
/* The same with a mark, which forgets what it stood for before: it gets the time at which all that
 * is on the queue is done. All zero where the machine has no more marks. */
bool sim_queue_record(struct sim_queue *queue, struct sim_mark *mark) SIM_WARN_UNUSED;
/* Holds up what comes behind until the mark is dropped. */
bool sim_queue_hold(struct sim_queue *queue, struct sim_mark *mark) SIM_WARN_UNUSED;
/* How much of it is not done. Above `enough` is exact, else it may be less already. */
unsigned sim_queue_length(struct sim_queue *queue, unsigned enough);

/* Is it done? If not, *ret_look_ns (if given) is when to ask again: never later than it is done
 * while no process ends another's work, and some milliseconds ahead at most. */
bool sim_ticket_done(const struct sim_ticket *ticket, uint64_t *ret_look_ns);

/* True with the time once what it marks is done. */
bool sim_mark_read(struct sim_mark *mark, uint64_t *ret_at_ns) SIM_WARN_UNUSED;
void sim_mark_drop(struct sim_mark *mark);

/*
 * An event that several processes know: what was recorded last, by whichever of them. It goes with
 * the process that made it; then nothing waits for it. Any thread.
 */
struct sim_event {
    uint32_t index;
    uint32_t generation; /* 0: none */
};
/* On a descriptor of the maker's; all that is known so far is that `ticket` was recorded. 0 or
 * -errno (-ENOSPC: the machine has no more). */
int sim_event_create(
    int fd, const struct sim_ticket *ticket, struct sim_event *ret_event) SIM_WARN_UNUSED;
void sim_event_destroy(const struct sim_event *event);
bool sim_event_lives(const struct sim_event *event);
void sim_event_record(const struct sim_event *event, const struct sim_ticket *ticket);
/* What a stream that begins to wait for the event now waits for. Finds processes that died before
 * they got there. */
struct sim_ticket sim_event_ticket(const struct sim_event *event);

/* NVML's view, one sample each 200 ms (seen on H200, driver 580.159.04). Share of the last whole
 * window, 0 to 100. */
#define SIM_SAMPLE_NS 200000000ull
#define SIM_SAMPLES_MAX 72
struct sim_sample {
    uint64_t end_ns;
    pid_t pid; /* the one that ran last in the window: a sample names one process only */
    unsigned busy_percent;
};
unsigned sim_device_utilization(unsigned index);
/* Windows that ended after since_ns, oldest first, with work in them or any; returns how many, at
 * most SIM_SAMPLES_MAX. */
unsigned sim_device_samples(unsigned index, uint64_t since_ns, bool idle_too,
    struct sim_sample ret_samples[SIM_SAMPLES_MAX]);

/* ---- Failing on demand, counting ---- */

/*
 * Counts a call of the function (exported name, "cuMemAlloc_v2") and asks whether a fail= rule
 * wants it to fail. True: return *ret_code at once, without any effect (default code: 2 for cu…,
 * 999 for nvml…). Rules count the calls of this process; sim_calls() those of the whole machine.
 * A code of SIM_SIGNALS and more sends the process that signal instead, before the call (SIGKILL
 * 100009, SIGSTOP 100019). Any thread; cheap. Works without sim_attach() (false).
 */
#define SIM_SIGNALS 100000u
bool sim_fail(const char *function, uint32_t *ret_code) SIM_WARN_UNUSED;
void sim_count(const char *function); /* counts only, no rule */
uint64_t sim_calls(const char *function);

/* Calls failed on demand are counted as SIM_FAILED and SIM_FAILED " cuMemAlloc_v2" besides. */
#define SIM_FAILED "failed"
void sim_count_failed(const char *function);

/* The calls of all functions whose names begin with the prefix: "cu", "nvml", "RM_". */
uint64_t sim_calls_all(const char *prefix);
/* One of them, as it is counted; NULL where there is none. */
const char *sim_called(const char *prefix);

#endif
