/* SPDX-License-Identifier: Apache-2.0 */
/* The families of vgpu-monitor's /metrics: HAMi's names and labels (v2.10, and with
 * --legacy-metrics those of before), and our own, which have HAMi's labels too. */
#ifndef VGPU_NODE_MONITOR_MONITOR_METRICS_H
#define VGPU_NODE_MONITOR_MONITOR_METRICS_H

#include "node/monitor/card_samples.h"
#include "node/monitor/container_figures.h"
#include "net/exposition.h"

struct monitor_metrics {
    const char *node_name, *version;
    bool legacy;
    const struct card_sample *cards;
    size_t card_count;
    const struct node_figures *figures;
    const struct pod_names *names;
    /* Of the monitor itself. */
    size_t container_count; /* directories */
    uint64_t ticks, removed;
    bool pods_known;
};

void monitor_metrics_write(struct exposition *exposition, const struct monitor_metrics *metrics);

#endif
