/* SPDX-License-Identifier: Apache-2.0 */
/* The control words in the region. */
#include "region/region_control.h"

#include "base/atomic.h"
#include "region/slot.h"

struct region_control control_read(const struct region *region)
{
    const struct vgpu_region *shared = region->shared;
    const struct vgpu_hami *hami = &region->map->hami;
    uint32_t set = load_acquire(&shared->priority_set);
    bool known = set == VGPU_PRIORITY_ENVIRONMENT || set == VGPU_PRIORITY_LIVE;
    return (struct region_control){
        .epoch = load_acquire(&shared->orders_epoch),
        .paused = load_relaxed(&shared->paused) != 0,
        .held = load_relaxed(&hami->recent_kernel) < 0,
        .switched_off = load_relaxed(&hami->utilization_switch) == 0,
        .release = load_relaxed(&shared->release),
        .priority_set = known ? (enum vgpu_priority_set)set : VGPU_PRIORITY_UNSET,
        .priority = known ? load_relaxed(&shared->priority) : VGPU_PRIORITY_DEFAULT,
    };
}

void control_set_priority(struct region *region, uint32_t priority, enum vgpu_priority_set by)
{
    store_relaxed(&region->shared->priority, priority);
    store_relaxed(
        &region->map->hami.priority, (int32_t)(priority < INT32_MAX ? priority : INT32_MAX));
    store_release(&region->shared->priority_set, (uint32_t)by);
}

/* A pause outlives its file as a limit does. */
static void restore(struct region *region)
{
    const struct region_control *known = &region->known_control;
    control_set_priority(region, known->priority, known->priority_set);
    store_relaxed(&region->shared->paused, known->paused ? 1u : 0u);
    store_relaxed(&region->shared->release, known->release);
    if (known->held)
        store_relaxed(&region->map->hami.recent_kernel, -1);
    if (known->switched_off)
        store_relaxed(&region->map->hami.utilization_switch, 0);
}

static void take_environment(struct region *region)
{
    const struct region_control held = control_read(region);
    if (!region->config->has_priority || region->pinned)
        return;
    bool replaceable = held.priority_set == VGPU_PRIORITY_UNSET ||
                       (held.priority_set == VGPU_PRIORITY_ENVIRONMENT &&
                           held.priority != region->config->priority && !slot_any_live(region));
    if (replaceable)
        control_set_priority(region, region->config->priority, VGPU_PRIORITY_ENVIRONMENT);
}

void control_take(struct region *region, bool fresh)
{
    if (fresh && region->control_known)
        restore(region);
    else if (fresh)
        control_set_priority(region, VGPU_PRIORITY_DEFAULT, VGPU_PRIORITY_UNSET);
    if (!fresh || !region->control_known)
        take_environment(region);
    struct region_control seen = control_read(region);
    if (load_acquire(&region->lost))
        return;
    region->known_control = seen;
    region->control_known = true;
}
