/* SPDX-License-Identifier: Apache-2.0 */
/* What the webhook decides by: its settings, and what the scheduler knows of quotas. */
#ifndef VGPU_ADMISSION_ADMISSION_SETTINGS_H
#define VGPU_ADMISSION_ADMISSION_SETTINGS_H

#include "cluster/node_config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All is the caller's. */
struct admission_settings {
    /* Of it: request, overwrite_env, core_policy, runtime_class. */
    const struct node_config *config;
    const char *scheduler_name; /* "": Pods keep the name that they have */
    /* Whether a Pod with the name "default-scheduler" is ours too. */
    bool force_overwrite_default_scheduler;
    /* userInfo.username of those that write owned keys, as
     * "system:serviceaccount:<namespace>:<name>": this scheduler's, the device plugin's, and in a
     * migration those of HAMi. With none, nobody may. */
    const char *const *owners;
    size_t owner_count;
};

/* A namespace's quota, of all its ResourceQuota objects together. A limit of 0 admits nothing. */
struct admission_quota {
    bool memory_is_limited, cores_are_limited;
    int64_t memory_limit_mib, memory_used_mib; /* MiB, after the memory factor */
    int64_t cores_limit, cores_used;           /* percent of one device */
};

/* What the scheduler knows of quotas. `find` fills *ret_quota, or returns false where the namespace
 * has none. */
struct admission_quota_view {
    bool (*find)(const void *context, const char *namespace, struct admission_quota *ret_quota);
    const void *context;
};

#endif
