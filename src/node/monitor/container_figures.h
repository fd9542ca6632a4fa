/* SPDX-License-Identifier: Apache-2.0 */
/* What the monitor shows of the containers, read from their regions at once, for one answer. */
#ifndef VGPU_NODE_MONITOR_CONTAINER_FIGURES_H
#define VGPU_NODE_MONITOR_CONTAINER_FIGURES_H

#include "node/monitor/containers.h"
#include "node/monitor/pod_names.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of one device of a container; NAN: the region does not tell. Bytes, seconds, percent. */
enum figure {
    FIGURE_USED,
    FIGURE_LIMIT, /* 0: none */
    FIGURE_UTILIZATION,
    FIGURE_IDLE_S, /* since the last launch */
    FIGURE_CONTEXT,
    FIGURE_MODULE,
    FIGURE_DATA, /* buffers and managed memory */
    /* Of our regions only. */
    FIGURE_BUFFER,
    FIGURE_MANAGED,
    FIGURE_SPILLED, /* in host memory */
    FIGURE_OTHER,   /* in no kind, or given up and still held by others */
    FIGURE_CORE_LIMIT,
    FIGURE_CORE_SOFT_LIMIT,
    FIGURE_GPU_TIME_S, /* counters since the region was made */
    FIGURE_WAITED_S,
    FIGURE_REFUSALS,
    FIGURES,
};

struct device_figures {
    char *labels, *legacy_labels; /* texts of exposition_labels */
    double values[FIGURES];
    bool gates[3]; /* by enum collected_gate: some process is held so */
};

struct container_figures {
    char *labels; /* namespace, pod, container */
    bool is_ours; /* what follows is known */
    bool paused, held, lifted;
    bool ledgers[3]; /* 1 resource manager, 2 API: some process counts by it */
    unsigned process_count;
    struct device_figures *devices;
    size_t device_count;
};

struct node_figures {
    struct container_figures *list;
    size_t count;
};

/* Of all containers whose Pod and name are known, and which HAMi's label or our grant says to have
 * devices here. A region that cannot be read is left out, with a line. `now_s`: seconds since the
 * epoch. Returns 0 or -ENOMEM. */
int container_figures_read(struct containers *containers, const struct pod_names *names,
    uint64_t now_s, struct node_figures *ret_figures) __attribute__((warn_unused_result));
void container_figures_free(struct node_figures *figures);

#endif
