/* SPDX-License-Identifier: Apache-2.0 */
/* What vgpu-scheduler is told by flags and variables; the names and defaults are HAMi's where it
 * has them. */
#ifndef VGPU_DAEMON_SCHEDULER_FLAGS_H
#define VGPU_DAEMON_SCHEDULER_FLAGS_H

#include "flags/flag_table.h"

#include <stdbool.h>
#include <stdint.h>

struct scheduler_flags {
    char http_bind[256], extender_bind[256], metrics_address[256]; /* extender_bind: "" */
    char certificate[1024], key[1024];                             /* both or none */
    char scheduler_name[254];
    char overwrite_env[8];
    char node_policy[64], device_policy[256];
    char node_selector[1024];
    char config_file[1024];
    char proof_key_file[1024];
    char owners[4096]; /* user names by commas */
    char resource_name[128], resource_memory[128], resource_percentage[128], resource_cores[128],
        resource_priority[128];                           /* "": as the configuration has it */
    int32_t default_memory, default_cores, default_count; /* -1: likewise */
    int64_t lock_expiry_ns, lock_retry_ns, flight_ns;
    char lease_name[254], lease_namespace[64], identity[254], pod_namespace[64];
    bool leader_elect, force_overwrite, legacy_metrics, filter_patch, all_nodes, debug;
};

extern const struct flag_table scheduler_flag_table;

#endif
