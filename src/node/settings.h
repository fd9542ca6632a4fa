/* SPDX-License-Identifier: Apache-2.0 */
/* All that vgpu-device-plugin is told: flags, environment, the device configuration and the node's
 * entry. One table (settings_flags.c) has each flag's name, variable, parser, default and text;
 * from it come --help and the checks of the man page. */
#ifndef VGPU_NODE_SETTINGS_H
#define VGPU_NODE_SETTINGS_H

#include "cluster/node_config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SETTINGS_NAME_BYTES 254
#define SETTINGS_PATH_BYTES 1024
#define SETTINGS_LIST_BYTES 1024

/* How a container is told its devices; several at once are possible. */
enum settings_list_strategy {
    SETTINGS_LIST_ENVVAR = 1,          /* NVIDIA_VISIBLE_DEVICES */
    SETTINGS_LIST_VOLUME_MOUNTS = 2,   /* /var/run/nvidia-container-devices/<id> */
    SETTINGS_LIST_CDI_ANNOTATIONS = 4, /* <cdi_annotation_prefix>nvidia-device-plugin_<uuid> */
    SETTINGS_LIST_CDI_CRI = 8,         /* the CDIDevices field */
};

struct node_settings {
    /* The node. */
    char node_name[SETTINGS_NAME_BYTES];
    char hook_path[SETTINGS_PATH_BYTES]; /* absolute; the node's files are below <hook_path>/vgpu */
    char config_file[SETTINGS_PATH_BYTES], node_config_file[SETTINGS_PATH_BYTES];
    /* The driver. */
    char driver_root[SETTINGS_PATH_BYTES];        /* --nvidia-driver-root, as on the host */
    char driver_root_inside[SETTINGS_PATH_BYTES]; /* where it is mounted for this process */
    char
        dev_root[SETTINGS_PATH_BYTES]; /* of device nodes, as on the host; "" becomes driver_root */
    /* Towards the kubelet. */
    char kubelet_socket[SETTINGS_PATH_BYTES];
    char pod_resources_socket[SETTINGS_PATH_BYTES];
    char resource_name[REQUEST_NAME_BYTES]; /* "nvidia.com/gpu" */
    bool mig_mixed;                         /* MIG devices are resources of their own */
    /* What a container gets. */
    unsigned list_strategies; /* of enum settings_list_strategy; never 0 */
    bool index_strategy;      /* NVIDIA_VISIBLE_DEVICES has indexes instead of UUIDs */
    bool pass_device_specs;   /* device nodes too */
    bool gdrcopy, gds, mofed; /* NVIDIA_GDRCOPY, _GDS, _MOFED=enabled */
    char cdi_annotation_prefix[SETTINGS_NAME_BYTES];
    bool ignore_disable_control; /* CUDA_DISABLE_CONTROL in a Pod lifts no limits */
    /* Towards the cluster. */
    bool register_csv;   /* hami.io/node-nvidia-register as schedulers up to HAMi 2.7 read it */
    bool topology_score; /* write hami.io/node-nvidia-score */
    bool require_proof;  /* Pods without proof of their assignment are no candidates */
    char proof_key_file[SETTINGS_PATH_BYTES]; /* "": no HMAC is accepted */
    /* Health. */
    char disable_health_checks[SETTINGS_LIST_BYTES], enable_health_checks[SETTINGS_LIST_BYTES];
    /* The library on the node. */
    char library_source[SETTINGS_PATH_BYTES]; /* "": nothing is installed */
    char installer[SETTINGS_PATH_BYTES];      /* vgpu-install */

    int64_t rescan_interval_s; /* between two looks at all cards */
    bool verbose;              /* log lines of level debug */

    /* device-config.yaml, over it the flags that were given, over those the node's entry. */
    struct node_config config;

    /* Which flags or variables were given (flag_table_bit). */
    uint64_t given;
    /* What --device-split-count and the like said, before the files were read. */
    int64_t flag_split_count;
    double flag_memory_scaling, flag_cores_scaling;
    bool flag_core_limit_disabled, flag_mig_mixed;
};

#endif
