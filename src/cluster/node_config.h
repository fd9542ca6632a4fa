/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of a node's plugin: the "nvidia" block of device-config.yaml (which the caller
 * has made a json_t of; a scalar may be a text there), and over it the node's own entry in the
 * plugin's config.json. Pure. */
#ifndef VGPU_CLUSTER_NODE_CONFIG_H
#define VGPU_CLUSTER_NODE_CONFIG_H

#include "cluster/device_id.h"
#include "cluster/request.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODE_CONFIG_TEXT_MAX 1048576
#define NODE_CONFIG_WORD_BYTES 64
#define NODE_CONFIG_FILTERS_MAX 256
/* The largest deviceSplitCount: with 16 cards kubelet's message stays below 1 MiB. */
#define NODE_CONFIG_SPLIT_MAX 1024

struct node_config {
    struct request_config request;
    int64_t split_count;
    double memory_scaling, cores_scaling;   /* above 0 */
    int64_t preconfigured_memory_mib;       /* of a device that does not tell; 0: none */
    char log_level[NODE_CONFIG_WORD_BYTES]; /* LIBCUDA_LOG_LEVEL, "0" to "4"; "": not set */
    bool numa_topology;                     /* tell kubelet each device's NUMA node */
    bool core_limit_disabled;
    bool overwrite_env;                       /* for the webhook, as the two next */
    char core_policy[NODE_CONFIG_WORD_BYTES]; /* "", default, force, disable */
    char runtime_class[254];
    char mode[NODE_CONFIG_WORD_BYTES];         /* hami-core, mig, mps */
    char mig_strategy[NODE_CONFIG_WORD_BYTES]; /* none, single, mixed; "": as the flag says */
    bool preferred_allocation;
    /* Devices that are not offered. */
    char (*filter_uuids)[DEVICE_UUID_BYTES];
    size_t filter_uuid_count;
    uint32_t *filter_indexes;
    size_t filter_index_count;
};

/* Gets one line for each value that is not taken. */
typedef void node_config_report(void *context, const char *line);

/* HAMi's defaults, with deviceSplitCount 2 as its flag has it. The caller finishes it. */
void node_config_default(struct node_config *ret_config);

/* Each reads what is there over what `config` has; a key's case does not matter, null is as if it
 * were absent. A bad value leaves the field as it was, and is reported with its name, the value and
 * what is accepted; unknown keys are reported too. Return how many lines were reported.
 * `document` is the whole of either file. */
unsigned node_config_read_global(
    struct node_config *config, const json_t *document, node_config_report *report, void *context);
unsigned node_config_read_node(struct node_config *config, const json_t *document,
    const char *node_name, node_config_report *report, void *context);

/* The same for the text of config.json. A text that is not JSON is one line. */
unsigned node_config_read_node_text(struct node_config *config, const char *text,
    const char *node_name, node_config_report *report, void *context);

/* Whether a device is left out. */
bool node_config_filters(const struct node_config *config, const char *uuid, uint32_t index);

void node_config_finish(struct node_config *config);

#endif
