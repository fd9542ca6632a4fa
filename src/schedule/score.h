/* SPDX-License-Identifier: Apache-2.0 */
/* How full a device and a node are. Pure. */
#ifndef VGPU_SCHEDULE_SCORE_H
#define VGPU_SCHEDULE_SCORE_H

#include "schedule/usage.h"

/* HAMi's weight of a score. */
#define SCORE_WEIGHT 10

/* 10 x (weighted sum of the shares of slots, cores and memory in use); 0 where the device has none
 * of one of them. */
static inline double score_amounts(const struct usage_amounts *used,
    const struct usage_amounts *total, const struct policy_weights *weights)
{
    if (!total->memory || !total->cores || !total->slots)
        return 0;
    return SCORE_WEIGHT * (weights->slot * ((double)used->slots / (double)total->slots) +
                              weights->core * ((double)used->cores / (double)total->cores) +
                              weights->memory * ((double)used->memory / (double)total->memory));
}

/* Of all its devices together, without weights. */
static inline double score_node(const struct usage_node *node)
{
    return score_amounts(&node->used, &node->total, &policy_weights_default);
}

#endif
