/* SPDX-License-Identifier: Apache-2.0 */
/* What was seen of the containers of this machine: containers, their devices and processes. */
#ifndef VGPU_COLLECT_COLLECTION_H
#define VGPU_COLLECT_COLLECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define COLLECT_UNKNOWN (-1.0) /* a share that cannot be told */

/* Device memory, in bytes. `bytes` is what counts; the kinds are parts of it. */
struct collected_bytes {
    uint64_t bytes, context, module, buffer, managed, unexplained, spilled;
};

enum collected_gate {
    COLLECT_GATE_NONE,    /* none was needed so far, or the program does not say */
    COLLECT_GATE_LAUNCH,  /* launches wait */
    COLLECT_GATE_CHANNEL, /* and what runs can be taken off the GPU */
};

struct collected_use {
    unsigned device; /* of the container's */
    struct collected_bytes memory;
    enum collected_gate gate;
    uint64_t gpu_time_ns; /* used since the process came, as far as it is measured */
};

struct collected_process {
    int pid;                    /* as the process knows itself */
    int host_pid;               /* as it is seen from here; 0: cannot be told */
    char *command;              /* its command line, not made fit to be printed; from malloc */
    uint64_t released_bytes;    /* moved to host memory by an order, or because it was idle */
    unsigned release_state;     /* enum vgpu_release_state */
    unsigned ledger;            /* 1 resource manager, 2 API, 0 not chosen yet */
    struct collected_use *uses; /* of each of the container's devices; from malloc */
};

struct collected_device {
    char uuid[48];
    uint64_t physical_bytes;              /* the card's own memory; 0 unknown */
    uint64_t memory_limit;                /* bytes; 0 none */
    bool memory_closed;                   /* a limit was asked for that is not understood */
    unsigned core_limit, core_soft_limit; /* percent; 0 none */
    struct collected_bytes memory;  /* of all processes, and what was given up and is still held */
    double share_now, share_minute; /* percent of the GPU's time, over the last second and minute;
                                       COLLECT_UNKNOWN where it is not measured */
    uint64_t busy_ns;               /* GPU time used since the region was made */
    uint64_t waited_ns;             /* launches waited for the limit, since then */
    uint64_t refusals;              /* of memory, since then */
    bool throttled; /* the limit keeps its programs waiting, or keeps them off the GPU, now */
};

struct collected_container {
    char *path; /* of the region's file, as the process that named it sees it; from malloc */
    dev_t file_device;
    ino_t file_inode;
    uint64_t read_ns; /* when its words of GPU time were read; CLOCK_MONOTONIC */
    uid_t owner;
    bool deleted; /* the file is: its processes make it anew when they next use the GPU */
    /* Whose it is, not made fit to be printed; empty where it is not known. */
    char pod_name[256], pod_namespace[64], pod_uid[64], container_name[64];
    bool paused, held; /* by vgpu pause; by HAMi's monitor */
    bool released;     /* `vgpu pause --release` has memory of it in host memory */
    bool checkpointed; /* the driver has a process of it checkpointed: `vgpu resume` restores it */
    bool lifted;       /* HAMi's monitor has taken the compute limits out of force */
    bool has_priority;
    uint32_t priority;      /* 0 high */
    uint64_t last_kernel_s; /* when it last launched, seconds since the epoch; 0 never */
    unsigned device_count, process_count;
    struct collected_device *devices;    /* from malloc */
    struct collected_process *processes; /* from malloc, by their slots */
    uint64_t *namespaces;                /* of processes[].pid; from malloc */
};

struct collect_problem {
    char *path; /* from malloc */
    int error;  /* -EPROTO: no region of this version */
};

struct collection {
    struct collected_container *containers; /* by name and path; from malloc */
    size_t count;
    size_t unreadable;                /* regions found that may not be read */
    struct collect_problem *problems; /* of files that were named, and of `pid` with path NULL */
    size_t problem_count;
};

void collection_free(struct collection *collection);

/* Frees what it holds, not the struct. */
void collection_free_container(struct collected_container *container);

#endif
