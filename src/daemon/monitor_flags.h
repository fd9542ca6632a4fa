/* SPDX-License-Identifier: Apache-2.0 */
/* What vgpu-monitor is told: flags, and the variables that stand for them. One table
 * (monitor_flags.c) has each flag's name, variable, default and text; from it comes --help. */
#ifndef VGPU_DAEMON_MONITOR_FLAGS_H
#define VGPU_DAEMON_MONITOR_FLAGS_H

#include "net/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum monitor_action {
    MONITOR_RUN,
    MONITOR_HELP,
    MONITOR_VERSION,
};

struct monitor_flags {
    char node_name[254];
    char hook_path[1024];      /* absolute */
    char metrics_address[256]; /* ":9394" */
    bool legacy_metrics;
    uint64_t resync_s;             /* 1 and above */
    uint64_t feedback_ns;          /* between two rounds; 100 ms and above */
    char driver_root[1024];        /* of NVML's library, as on the host */
    char driver_root_inside[1024]; /* where it is mounted for this process; "" */
    bool verbose;
};

/* Reads the environment, over it the arguments. Returns 0, or -EINVAL with one line: name, value,
 * what is accepted. */
int monitor_flags_read(struct monitor_flags *ret_flags, int argc, char *const *argv,
    enum monitor_action *ret_action, struct error *error) __attribute__((warn_unused_result));

void monitor_flags_print_help(FILE *file);

#endif
