/* SPDX-License-Identifier: Apache-2.0 */
/* What the environment asks for: HAMi-core's and vgpu-controller's variables as one structure.
 * docs/environment.md lists every variable. */
#ifndef VGPU_CONFIG_CONFIG_H
#define VGPU_CONFIG_CONFIG_H

#include "base/report_place.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define CONFIG_DEVICE_LISTS 3
#define CONFIG_DEVICES 64
#define CONFIG_REGION_PATH "/tmp/cudevshr.cache"
#define CONFIG_BOARD_DIRECTORY "/tmp/vgpulock" /* which HAMi mounts into its containers */
#define CONFIG_RECORD_KERNEL_INTERVAL_S 1
#define CONFIG_PRIORITY 1 /* of a task that says nothing; 0 is higher */

enum value_state {
    VALUE_UNSET,   /* no limit asked for */
    VALUE_SET,     /* `value` holds */
    VALUE_INVALID, /* asked for, but not understood: memory then fails closed */
};

struct config_value {
    enum value_state state;
    uint64_t value; /* bytes or percent */
};

enum ledger_choice { LEDGER_AUTO, LEDGER_RM, LEDGER_API };

/* GPU_CORE_UTILIZATION_POLICY */
enum core_policy {
    CORE_POLICY_DEFAULT, /* compute limits hold */
    CORE_POLICY_FORCE,   /* they hold whatever a monitor's switch says */
    CORE_POLICY_DISABLE, /* this process keeps to none */
};

/* VGPU_GATE: by what a compute limit is kept. */
enum gate_choice {
    GATE_AUTO,    /* launches wait; what runs too long is taken off the GPU where that works */
    GATE_LAUNCH,  /* launches wait, and nothing else */
    GATE_CHANNEL, /* what runs is taken off the GPU; launches wait only where that does not work */
};

/* Whose container it is, in the bounds of the region's texts: printable, terminated, and cut where
 * it is too long. Empty where it was not said. */
enum { CONFIG_POD_NAMESPACE, CONFIG_POD_UID, CONFIG_CONTAINER_NAME, CONFIG_IDENTITY_TEXTS };
struct config_identity {
    bool given;                           /* any of them was */
    char pod_name[256];                   /* VGPU_POD_NAME, else POD_NAME */
    char text[CONFIG_IDENTITY_TEXTS][64]; /* VGPU_POD_NAMESPACE and so on */
};

struct grant; /* region/grant.h */

struct config {
    const struct grant *grant; /* the node's word, which goes before all others; NULL: none */
    /* The un-indexed value stands for every device without one of its own. */
    struct config_value memory_default, memory[CONFIG_DEVICES];
    struct config_value cores_default, cores[CONFIG_DEVICES];
    struct config_value soft_default, soft[CONFIG_DEVICES]; /* CUDA_CORE_SOFT_LIMIT */
    uint32_t priority;                                      /* CUDA_TASK_PRIORITY; 0 high */
    bool has_priority;                                      /* it was given, and understood */
    uint32_t record_kernel_interval_s;                      /* RECORD_KERNEL_INTERVAL */
    enum ledger_choice ledger;                              /* VGPU_LEDGER */
    enum core_policy core_policy;
    enum gate_choice gate;
    bool region_named;    /* CUDA_DEVICE_MEMORY_SHARED_CACHE was given */
    bool region_too_long; /* the name does not fit: unusable, and cut in region_path */
    char region_path[PATH_MAX];
    char registry_directory[PATH_MAX];             /* VGPU_BOARD_DIR; used only if it exists */
    char report_directory[REPORT_DIRECTORY_BYTES]; /* VGPU_REPORT_DIR; empty: none is wanted */
    /* Lists of devices, as the environment has them; NULL behind the last. Positions of limits
     * count in the first that names a device. */
    const char *device_lists[CONFIG_DEVICE_LISTS + 1];
    struct config_identity identity;
    /* How much the limit may exceed the container's share of the card, in 2^-20; CONFIG_RATIO_ONE:
     * it may, and the card is the bound; 0: it may not. */
    uint64_t oversubscription_default, oversubscription[CONFIG_DEVICES];
    bool oversubscription_is_indexed; /* some device was named by its index */
    uint64_t host_pool_bytes;         /* VGPU_HOST_POOL; UINT64_MAX: not said */
    uint64_t host_pool_ready_bytes;   /* VGPU_HOST_POOL_READY; 0: none */
    unsigned turn_overhead_percent;   /* VGPU_TURN_OVERHEAD */
    uint64_t idle_release_s;          /* VGPU_IDLE_RELEASE; 0: never */
};

#define CONFIG_RATIO_ONE (1u << 20)

/* Reads all variables through `lookup` (getenv's contract) and reports each value that is not
 * understood in one log line. */
void config_read(struct config *config, char *(*lookup)(const char *name));

/* Takes back all that an environment may say of limits, priority, policy, ledger and gate. */
void config_forget_limits(struct config *config);

/* The limit of the container's index-th device; index beyond the table or below 0: the default. */
struct config_value config_memory_limit(const struct config *config, int index);
struct config_value config_core_limit(const struct config *config, int index);

/* Its soft limit: percent above its compute limit, 100 for all of the GPU. VALUE_UNSET where the
 * device has no compute limit, which then is the whole GPU already. */
struct config_value config_core_soft_limit(const struct config *config, int index);

/* True where any device's memory is limited, or was meant to be. */
bool config_limits_memory(const struct config *config);

/* True where single devices have limits of their own. */
bool config_has_indexed_limits(const struct config *config);

/* True where the i-th position of the device list matters, so that it must be resolved. */
bool config_is_indexed(const struct config *config);

#endif
