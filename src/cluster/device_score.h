/* SPDX-License-Identifier: Apache-2.0 */
/* How well pairs of a node's devices are connected, in hami.io/node-nvidia-score:
 *   [{"uuid":"GPU-a","score":{"GPU-b":120}},...]
 * A score is 10 to 60 by the way through PCIe, with 100 added for each NVLink. Pure. */
#ifndef VGPU_CLUSTER_DEVICE_SCORE_H
#define VGPU_CLUSTER_DEVICE_SCORE_H

#include "cluster/device_id.h"
#include "net/error.h"

#include <stddef.h>
#include <stdint.h>

#define DEVICE_SCORE_TEXT_MAX 262144
#define DEVICE_SCORE_DEVICES_MAX 1024

struct device_scores {
    size_t count;
    char (*uuids)[DEVICE_UUID_BYTES];
    int32_t *scores; /* count * count; row: from, column: to; 0 where none was given */
};

/* Room for `count` devices, all zero. Returns 0, -E2BIG or -ENOMEM. The caller finishes it. */
int device_scores_create(size_t count, struct device_scores *ret_scores)
    __attribute__((warn_unused_result));

/* Peers that have no entry of their own are devices too. Returns 0, -EINVAL, -E2BIG, -ENOMEM. */
int device_scores_decode(const char *text, struct device_scores *ret_scores, struct error *error)
    __attribute__((warn_unused_result));

/* Each device with the scores that are not 0. The caller frees it. NULL without memory or where a
 * UUID is not UTF-8. */
char *device_scores_encode(const struct device_scores *scores);

/* The score from `a` to `b`; 0 where one of them is unknown. */
int32_t device_scores_pair(const struct device_scores *scores, const char *a, const char *b);

void device_scores_finish(struct device_scores *scores);

#endif
