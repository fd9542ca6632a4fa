/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/monitor_flags.h"

#include <errno.h>
#include <stddef.h>

#define SECOND_NS INT64_C(1000000000)
#define MS_NS INT64_C(1000000)

#define AT(member)                                                                                 \
    offsetof(struct monitor_flags, member), sizeof(((struct monitor_flags *)NULL)->member)

/* Names, variables and defaults are HAMi's where it has them. */
static const struct flag_row rows[] = {
    {"node-name", "NODE_NAME", FLAG_TEXT, AT(node_name), "", NULL,
        .help = "name of the Node object; needed"},
    {"hook-path", "HOOK_PATH", FLAG_PATH, AT(hook_path), "/usr/local/vgpu", NULL,
        .help = "directory that has the directories containers and grants"},
    {"metrics-bind-address", NULL, FLAG_TEXT, AT(metrics_address), ":9394", NULL,
        .help = "address and port of /metrics and /healthz"},
    {"legacy-metrics", NULL, FLAG_BOOL, AT(legacy_metrics), "false", NULL,
        .help = "also the metrics by the names that HAMi had before 2.8"},
    {"resync-interval", "HAMI_RESYNC_INTERVAL", FLAG_DURATION, AT(resync_ns), "5m", "1s and above",
        .help = "age from which directories of Pods that are gone are removed", .least = SECOND_NS},
    {"feedback-interval", NULL, FLAG_DURATION, AT(feedback_ns), "5s", "100ms and above",
        .help = "time between two rounds of the priority feedback", .least = 100 * MS_NS},
    {"nvidia-driver-root", "NVIDIA_DRIVER_ROOT", FLAG_PATH, AT(driver_root), "/", NULL,
        .help = "root of the NVIDIA driver on the host"},
    {"driver-root-ctr-path", "DRIVER_ROOT_CTR_PATH", FLAG_PATH, AT(driver_root_inside),
        "/driver-root", NULL, .help = "where that root is mounted for the monitor; tried first"},
    {"verbose", NULL, FLAG_BOOL, AT(verbose), "false", NULL, .help = "more log lines"},
    {"v", NULL, FLAG_QUIET, 0, 0, "", NULL, .help = "see --verbose"},
};

const struct flag_table monitor_flag_table = {
    "usage: vgpu-monitor [FLAG]...\n\n"
    "Shows what the containers of this node do with its GPUs at /metrics, tells them whose\n"
    "turn it is by their priorities, and removes what Pods left that are gone.\n\n",
    NULL, rows, sizeof(rows) / sizeof(rows[0])};

int monitor_flags_check(const struct monitor_flags *flags, struct error *error)
{
    if (!*flags->node_name)
        return error_set(
            error, EINVAL, "--node-name or NODE_NAME is missing: the name of the Node object");
    if (!*flags->hook_path)
        return error_set(error, EINVAL, "--hook-path is \"\": accepted is an absolute path");
    return 0;
}
