/* SPDX-License-Identifier: Apache-2.0 */
/* What a container gets: environment, mounts, device nodes, CDI names, as kubelet's
 * ContainerAllocateResponse has them. Pure: which files exist, which library is installed and
 * random names are arguments; to make directories is the caller's. */
#ifndef VGPU_CLUSTER_ALLOCATE_ANSWER_H
#define VGPU_CLUSTER_ALLOCATE_ANSWER_H

#include "cluster/pod_devices.h"
#include "net/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How the runtime learns of the devices; more than one may be set. */
enum allocate_strategy {
    ALLOCATE_ENVVAR = 1,          /* NVIDIA_VISIBLE_DEVICES lists them */
    ALLOCATE_VOLUME_MOUNTS = 2,   /* mounts of /dev/null do, and the variable names their place */
    ALLOCATE_CDI_ANNOTATIONS = 4, /* an annotation lists their CDI names */
    ALLOCATE_CDI_CRI = 8,         /* the answer's own field does */
};

/* The vendor and class of CDI names: those of HAMi's own specification file, and those of the file
 * that nvidia-ctk writes. */
#define ALLOCATE_CDI_KIND_HAMI "k8s.device-plugin.nvidia.com/gpu"
#define ALLOCATE_CDI_KIND_TOOLKIT "nvidia.com/gpu"
#define ALLOCATE_CDI_PREFIX "cdi.k8s.io/"
#define ALLOCATE_VOLUME_ROOT "/var/run/nvidia-container-devices"
#define ALLOCATE_LOCK_DIRECTORY "/tmp/vgpulock"

struct allocate_node {
    const char *container_path;
    const char *host_path;
    const char *permissions; /* "rw" */
};

struct allocate_mount {
    const char *container_path;
    const char *host_path;
    bool read_only;
};

/* A device of this node. */
struct allocate_card {
    const char *uuid;
    uint32_t index;
    int32_t memory_mib; /* as it is registered; 0: not known */
    const struct allocate_node *nodes;
    size_t node_count;
};

struct allocate_settings {
    const char *hook_path;    /* HOOK_PATH; files lie below <hook_path>/vgpu */
    const char *library_path; /* on the host; NULL: <hook_path>/vgpu/libvgpu.so */
    unsigned strategies;      /* of enum allocate_strategy */
    bool by_index;            /* devices are named by index, not by UUID */
    const char *cdi_kind;
    const char *cdi_prefix; /* of the annotation's key */
    bool mig_mode;          /* operating mode "mig": devices alone, no limits of ours */
    double memory_scaling;
    bool core_limit_disabled;
    const char *log_level; /* LIBCUDA_LOG_LEVEL; NULL or "": not set */
    bool gdrcopy, gds, mofed;
    bool has_license;                  /* <hook_path>/vgpu/license exists */
    bool pass_nodes;                   /* PASS_DEVICE_SPECS */
    const struct allocate_node *nodes; /* those that all containers get, where pass_nodes is set */
    size_t node_count;
    const struct allocate_mount *mounts; /* more, as /etc/vgpu/limits.d */
    size_t mount_count;
    const struct allocate_card *cards;
    size_t card_count;
};

struct allocate_subject {
    /* Of the container's own directory on the host, as allocate_directory_format makes it. */
    const char *directory;
    bool control_disabled;   /* CUDA_DISABLE_CONTROL: the library is not preloaded */
    const char *cache_uuid;  /* random, 36 characters: the name of its region's file */
    const char *answer_uuid; /* random: the end of the CDI annotation's key */
};

struct allocate_pair {
    char *name, *value;
};

/* All texts are the answer's own. */
struct allocate_answer {
    struct allocate_pair *variables;
    size_t variable_count;
    struct allocate_pair *annotations;
    size_t annotation_count;
    struct allocate_mount *mounts;
    size_t mount_count;
    struct allocate_node *nodes;
    size_t node_count;
    char **cdi_names;
    size_t cdi_name_count;
};

/* The answer for a container with these devices, in this order. MIG devices, and all devices in MIG
 * mode, come without limits and mounts of ours: the hardware separates them. A memory limit of 0
 * MiB, which HAMi's library takes for none, becomes the memory of the card. Returns 0; -ENODEV for
 * a device that is not among the cards; -EINVAL for a memory limit of 0 on a card whose memory is
 * not known; -ENOMEM. The caller finishes it. */
int allocate_answer_make(const struct allocate_settings *settings,
    const struct allocate_subject *subject, const struct pod_device *devices, size_t device_count,
    struct allocate_answer *ret_answer, struct error *error) __attribute__((warn_unused_result));

void allocate_answer_finish(struct allocate_answer *answer);

/* "<hook_path>/vgpu/containers/<pod_uid>_<container>"; the caller frees it. NULL where a name is
 * empty or has a slash, or without memory. */
char *allocate_directory_format(const char *hook_path, const char *pod_uid, const char *container);

/* A comma list of envvar, volume-mounts, cdi-annotations and cdi-cri. */
int allocate_strategies_parse(const char *text, unsigned *ret_strategies, struct error *error)
    __attribute__((warn_unused_result));

#endif
