/* SPDX-License-Identifier: Apache-2.0 */
/* What a Pod's author wishes of devices and nodes, in annotations. Pure. */
#ifndef VGPU_SCHEDULE_WISH_H
#define VGPU_SCHEDULE_WISH_H

#include "net/error.h"
#include "schedule/policy.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WISH_USE_TYPE "nvidia.com/use-gputype"
#define WISH_NO_USE_TYPE "nvidia.com/nouse-gputype"
#define WISH_USE_UUID "nvidia.com/use-gpuuuid"
#define WISH_NO_USE_UUID "nvidia.com/nouse-gpuuuid"
#define WISH_NUMA_BIND "nvidia.com/numa-bind"
#define WISH_MODE "nvidia.com/vgpu-mode"
#define WISH_NODE_POLICY "hami.io/node-scheduler-policy"
#define WISH_DEVICE_POLICY "hami.io/gpu-scheduler-policy"
#define WISH_WEIGHTS "hami.io/device-scoring-weights"

/* In one list; bounds the time of a filter. */
#define WISH_ITEMS_MAX 1024

/* The items between commas without blanks around them; empty ones are left out. No item: no
 * constraint. */
struct wish_list {
    char *text; /* all items, each ended by NUL */
    const char **items;
    uint64_t *hashes; /* table_hash of each */
    size_t count;
};

struct wish {
    /* Parts of a model's name, in lower case. */
    struct wish_list use_types, no_use_types;
    /* Whole UUIDs. */
    struct wish_list use_uuids, no_use_uuids;
    bool numa_bind; /* all devices of a container on one NUMA node */
    char *mode;     /* a device's mode must be part of it; NULL: any */
    enum policy_node node_policy;
    struct policy policy;
    struct policy_weights weights;
};

/* What counts where the Pod says nothing. */
struct wish_defaults {
    enum policy_node node_policy;
    const char *device_policy; /* a text that policy_parse takes */
};

/* From metadata.annotations, NULL for none. A policy that is unknown, and a truth value that is
 * none, count as not set (HAMi); weights that are wrong are -EINVAL (HAMi), and so are lists of
 * more than WISH_ITEMS_MAX items. Or -ENOMEM. The caller finishes it. */
int wish_read(const json_t *annotations, const struct wish_defaults *defaults,
    struct wish *ret_wish, struct error *error) __attribute__((warn_unused_result));

/* `type` is in lower case. */
bool wish_takes_type(const struct wish *wish, const char *type);
bool wish_takes_mode(const struct wish *wish, const char *mode);
/* `hash` is table_hash(uuid). */
bool wish_takes_uuid(const struct wish *wish, const char *uuid, uint64_t hash);

void wish_finish(struct wish *wish);

#endif
