/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/feedback.h"

#include <string.h>

static bool share_device(const struct feedback_region *a, const struct feedback_region *b)
{
    for (size_t i = 0; i < a->device_count; i++)
        for (size_t k = 0; k < b->device_count; k++)
            if (a->uuids[i] && b->uuids[k] && *a->uuids[i] && !strcmp(a->uuids[i], b->uuids[k]))
                return true;
    return false;
}

static void count_down(struct feedback_region *region)
{
    if (region->recent_kernel > 0)
        region->recent_kernel--;
    region->active = region->recent_kernel > 0 && region->priority >= 0;
}

static void decide(
    const struct feedback_region *regions, size_t count, struct feedback_region *region)
{
    bool higher = false, equal = false;
    for (size_t i = 0; i < count; i++) {
        const struct feedback_region *other = &regions[i];
        if (!other->active || other == region || !share_device(region, other))
            continue;
        higher |= other->priority < region->priority;
        equal |= other->priority == region->priority;
    }
    if (higher && region->recent_kernel >= 0)
        region->recent_kernel = -1;
    else if (!higher && region->recent_kernel < 0)
        region->recent_kernel = 0;
    region->utilization_switch = higher || equal;
}

void feedback_tick(struct feedback_region *regions, size_t count)
{
    for (size_t i = 0; i < count; i++)
        count_down(&regions[i]);
    for (size_t i = 0; i < count; i++)
        decide(regions, count, &regions[i]);
}
