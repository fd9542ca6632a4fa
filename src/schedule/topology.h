/* SPDX-License-Identifier: Apache-2.0 */
/* The topology-aware policy: of all cards that fit, those that are connected best, or, for one card
 * alone, the one whose loss hurts the others least. Pure. */
#ifndef VGPU_SCHEDULE_TOPOLOGY_H
#define VGPU_SCHEDULE_TOPOLOGY_H

#include "schedule/usage.h"

/* Of `count` devices `wanted` are kept, in their order, in the first places: for one the lowest sum
 * of scores to the others, else the set with the highest sum of scores within. Of equal ones that
 * which stands first. Exact up to TOPOLOGY_SETS_MAX sets, beyond that one by one: first the best
 * pair, then always the card with the highest sum to those that are taken. */
#define TOPOLOGY_SETS_MAX 20000
void topology_choose(const struct usage_node *node, uint32_t *devices, size_t count, size_t wanted);

#endif
