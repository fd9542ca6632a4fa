/* SPDX-License-Identifier: Apache-2.0 */
/* HAMi's part of the region's file (vgpu/hami.h), kept as its monitors expect it: each device of
 * the region and each slot at its own place there, as far as there is one.
 *
 * Within a window (base/guard.h). Nothing that stands there is trusted: it decides no index and no
 * length. A process writes its own slot alone; a process that reaps a slot wipes it there, too. */
#ifndef VGPU_REGION_PROJECTION_H
#define VGPU_REGION_PROJECTION_H

#include "region/mapping.h"

/* Under the initialiser's lock, all down to projection_settle. */

/* A process attaches: what says that the file is HAMi's, and how many slots are in use. */
void projection_begin(struct vgpu_region_map *map);

/* The region has no devices any more. */
void projection_forget_devices(struct vgpu_region_map *map);

/* Shows the entry of devices[], whose limits were set just now; an order that the monitor gave
 * before is past. */
void projection_show_device(struct vgpu_region_map *map, unsigned entry);

/* Takes what the monitor set there as the entry's limits, in force for the whole container as if
 * `vgpu set` had set them, or else shows what the entry says. 0 is no limit that was set: it stands
 * where somebody emptied the file. */
void projection_settle(struct vgpu_region_map *map, unsigned entry);

/* Whether the entry says what is shown of it: else projection_settle has something to do. Four
 * comparisons. */
bool projection_is_settled(const struct vgpu_region_map *map, unsigned entry);

/* The calling process claims the slot, and counts as running with nothing. */
void projection_claim(struct vgpu_region_map *map, unsigned slot, int pid);

/* Nobody is there any more. Writes only where somebody was. */
void projection_wipe(struct vgpu_region_map *map, unsigned slot);

/* slot_high was raised. */
void projection_cover(struct vgpu_region_map *map);

/* What the region's own process uses of the entry's device, from its slot. Where somebody wiped or
 * overwrote its place there, all of its devices. About 5 ns. */
void projection_usage(struct region *region, unsigned entry);

/* The region's own process runs, or its container is paused. */
void projection_status(struct region *region, bool paused);

/* The part of the last second in which it kept the device busy. */
void projection_work(struct region *region, unsigned entry, unsigned percent);

/* Something was launched; `now_s`: since the epoch. Writes each `interval_s` at most. */
void projection_kernel(struct vgpu_region_map *map, uint64_t now_s, uint64_t interval_s);

#endif
