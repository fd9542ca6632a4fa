/* SPDX-License-Identifier: Apache-2.0 */
/* How well the node's cards are connected, as the scheduler's policy topology-aware weighs it.
 * Pure.
 */
#ifndef VGPU_NODE_TOPOLOGY_H
#define VGPU_NODE_TOPOLOGY_H

#include "cluster/device_score.h"
#include "node/inventory.h"
#include "node/scan.h"

/* HAMi's numbers: 10 through the processors' link, 20 through one processor, 30 host bridge, 40
 * several PCIe switches, 50 one, 60 the same board; 100 more for each NVLink. 0: not known. */
int32_t topology_score(const struct scan_link *link);

/* The scores of the whole cards that are offered. A pair whose two directions differ has 0, and is
 * told. Returns 0, or -ENOENT: the scan has no links, -ENOMEM. The caller finishes it. */
int topology_scores(const struct scan *scan, const struct inventory *inventory,
    void (*asymmetric)(void *context, const char *a, const char *b, int32_t a_to_b, int32_t b_to_a),
    void *context, struct device_scores *ret_scores) __attribute__((warn_unused_result));

#endif
