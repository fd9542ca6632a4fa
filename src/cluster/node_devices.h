/* SPDX-License-Identifier: Apache-2.0 */
/* A node's devices in hami.io/node-nvidia-register: a JSON array (HAMi from 2.8 on) or CSV (up to
 * 2.7, node_devices_csv.c). Pure. */
#ifndef VGPU_CLUSTER_NODE_DEVICES_H
#define VGPU_CLUSTER_NODE_DEVICES_H

#include "cluster/device_id.h"
#include "net/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODE_DEVICES_TEXT_MAX 262144
#define NODE_DEVICES_MAX 1024
#define NODE_DEVICES_PROFILES_MAX 64
#define NODE_DEVICES_PLACEMENTS_MAX 64
#define NODE_DEVICES_TYPE_BYTES 128
#define NODE_DEVICES_MODE_BYTES 32
#define NODE_DEVICES_PROFILE_BYTES 64

struct node_device_placement {
    uint32_t start, size; /* memory slices */
};

struct node_device_profile {
    char name[NODE_DEVICES_PROFILE_BYTES]; /* "1g.5gb" */
    int32_t memory_mib;
    int32_t cores_percent;
    uint32_t slices;
    struct node_device_placement *placements;
    size_t placement_count;
};

struct node_device {
    char id[DEVICE_UUID_BYTES];
    uint32_t index;
    int32_t count;                      /* as how many devices it is offered */
    int32_t memory_mib;                 /* with deviceMemoryScaling */
    int32_t cores_percent;              /* with deviceCoreScaling */
    char type[NODE_DEVICES_TYPE_BYTES]; /* the model, "NVIDIA A10" */
    int32_t numa;
    char mode[NODE_DEVICES_MODE_BYTES]; /* hami-core, mig, mps */
    bool healthy;
    struct node_device_profile *profiles;
    size_t profile_count;
};

struct node_devices {
    struct node_device *devices;
    size_t count;
};

/* JSON where the first byte that is no blank is "[", else CSV. What JSON leaves out is 0, "" or
 * false; health that is left out is unhealthy. Unknown keys are ignored. No device is no error, but
 * such a node has no GPU to use. Returns 0, -EINVAL, -E2BIG above the bounds, -ENOMEM. The caller
 * finishes it. */
int node_devices_decode(const char *text, struct node_devices *ret_devices, struct error *error)
    __attribute__((warn_unused_result));

/* Both write in the order of the index, then of the ID, whatever the order in memory. The caller
 * frees the text. JSON leaves out what is 0, "" or false. CSV has nine fields a device, or seven
 * (without index and mode) for readers that are older; a comma, colon or control character in a
 * name is -EINVAL there. Return 0, -EINVAL (text that is no UTF-8), -ENOMEM. */
int node_devices_encode_json(const struct node_devices *devices, char **ret_text,
    struct error *error) __attribute__((warn_unused_result));
int node_devices_encode_csv(const struct node_devices *devices, unsigned fields, char **ret_text,
    struct error *error) __attribute__((warn_unused_result));

/* A pointer a device in the order to write them; NULL without memory. The caller frees it. */
const struct node_device **node_devices_order(const struct node_devices *devices);

/* The type for a model's name: "NVIDIA-" before it where it does not begin with "NVIDIA", or always
 * as HAMi up to 2.7 has it. Cut where it does not fit. */
void node_devices_format_type(const char *model, bool always, char type[NODE_DEVICES_TYPE_BYTES]);

void node_devices_finish(struct node_devices *devices);

/* One more device, zeroed, at the end; NULL without memory or above the bound. */
struct node_device *node_devices_add(struct node_devices *devices);

/* For node_devices_decode, which chooses between them. */
int node_devices_decode_json(const char *text, struct node_devices *devices, struct error *error)
    __attribute__((warn_unused_result));
int node_devices_decode_csv(const char *text, struct node_devices *devices, struct error *error)
    __attribute__((warn_unused_result));

#endif
