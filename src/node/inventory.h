/* SPDX-License-Identifier: Apache-2.0 */
/* The node's cards as they are offered: whole cards, and MIG devices where the strategy is "mixed".
 * All of it belongs to the thread of the event loop. */
#ifndef VGPU_NODE_INVENTORY_H
#define VGPU_NODE_INVENTORY_H

#include "cluster/device_id.h"
#include "cluster/node_devices.h"
#include "cluster/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INVENTORY_CARDS_MAX 128
#define INVENTORY_PATH_BYTES 64
/* Of one card: /dev/nvidia<N>, and for a MIG device the two capabilities. */
#define INVENTORY_NODES_MAX 3
#define INVENTORY_CONTROL_NODES_MAX 4

struct inventory;
struct node_settings;
struct scan;
struct scan_card;

struct node_card {
    char uuid[DEVICE_UUID_BYTES];
    char parent[DEVICE_UUID_BYTES];           /* the card of a MIG device; "": a whole card */
    char resource[REQUEST_NAME_BYTES];        /* "nvidia.com/gpu", "nvidia.com/mig-1g.10gb" */
    char profile[NODE_DEVICES_PROFILE_BYTES]; /* of a MIG device: "1g.10gb" */
    uint32_t index;                           /* the card's in NVML; a MIG device has its card's */
    uint32_t mig_index;                       /* of a MIG device on its card */
    uint32_t gpu_instance, compute_instance;  /* of a MIG device */
    uint32_t minor;                           /* of /dev/nvidia<minor> */
    int64_t memory_mib;                       /* as NVML tells (preConfiguredDeviceMemory where
                                                 it does not) */
    int64_t scaled_memory_mib;                /* with deviceMemoryScaling; a MIG device: as is */
    int32_t cores_percent;                    /* 100 x deviceCoreScaling; a MIG device: 100 */
    uint32_t replicas;                        /* as how many devices the kubelet sees it */
    char type[NODE_DEVICES_TYPE_BYTES];       /* the model, "NVIDIA A10" */
    char bus_id[INVENTORY_PATH_BYTES];        /* "00000000:3B:00.0" */
    int numa;                                 /* below 0: not known */
    bool healthy;
    /* Paths in a container; on the host below node_settings.dev_root. */
    char nodes[INVENTORY_NODES_MAX][INVENTORY_PATH_BYTES];
    unsigned node_count;
};

/* Sorted by index, then MIG index. Valid until the next change. */
const struct node_card *inventory_cards(const struct inventory *inventory, size_t *ret_count);

/* NULL where there is none of this UUID. */
const struct node_card *inventory_find(const struct inventory *inventory, const char *uuid);

/* Device nodes that every container with a card needs and that the node has: /dev/nvidiactl,
 * /dev/nvidia-uvm, /dev/nvidia-uvm-tools, /dev/nvidia-modeset. Paths as in struct node_card. */
const char *const *inventory_control_nodes(const struct inventory *inventory, size_t *ret_count);

/* Whether NVML has answered at all since the start; without it there are no cards. */
bool inventory_is_known(const struct inventory *inventory);

/* `settings` stays the caller's, outlives the inventory, and is read again at each change.
 * on_change comes where a card, its figures or its health has changed. NULL without memory. */
struct inventory *inventory_create(
    const struct node_settings *settings, void (*on_change)(void *context), void *context);
void inventory_destroy(struct inventory *inventory);

/* What health.c is built on: the cards as they were seen, offered or not. A card that a look does
 * not show stays, with a problem: the kubelet and the scheduler have to hear of it, and Pods run on
 * it. It is forgotten where the driver was loaded anew without it. A MIG device that its card does
 * not show any more was removed. */
void inventory_take_scan(struct inventory *inventory, const struct scan *scan);
/* NVML does not answer at all. */
void inventory_take_absence(struct inventory *inventory, const char *problem);
const struct scan_card *inventory_facts(const struct inventory *inventory, size_t *ret_count);
/* Makes the offered cards from that and the settings, and calls on_change where they differ. */
void inventory_derive(struct inventory *inventory,
    bool (*is_healthy)(void *context, const char *uuid), void *context);

#endif
