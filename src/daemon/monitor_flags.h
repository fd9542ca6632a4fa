/* SPDX-License-Identifier: Apache-2.0 */
/* What vgpu-monitor is told: flags, and the variables that stand for them. One table
 * (monitor_flags.c) has each flag's name, variable, default and text; from it comes --help. */
#ifndef VGPU_DAEMON_MONITOR_FLAGS_H
#define VGPU_DAEMON_MONITOR_FLAGS_H

#include "flags/flag_table.h"

#include <stdbool.h>
#include <stdint.h>

struct monitor_flags {
    char node_name[254];
    char hook_path[1024];      /* absolute */
    char metrics_address[256]; /* ":9394" */
    bool legacy_metrics;
    int64_t resync_ns;             /* 1 s and above */
    int64_t feedback_ns;           /* between two rounds; 100 ms and above */
    char driver_root[1024];        /* of NVML's library, as on the host */
    char driver_root_inside[1024]; /* where it is mounted for this process; "" */
    bool verbose;
};

extern const struct flag_table monitor_flag_table;

/* What the table cannot say. Returns 0, or -EINVAL with one line: name, value, what is accepted. */
int monitor_flags_check(const struct monitor_flags *flags, struct error *error)
    __attribute__((warn_unused_result));

#endif
