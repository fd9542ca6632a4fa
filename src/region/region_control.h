/* SPDX-License-Identifier: Apache-2.0 */
/* The region's control words, by which a container is told what to do at once: pauses, the
 * priority, and the commands of HAMi's monitor. Within a window (base/guard.h). */
#ifndef VGPU_REGION_REGION_CONTROL_H
#define VGPU_REGION_REGION_CONTROL_H

#include "region/mapping.h"

/* What the words say, each made safe to use. */
struct region_control control_read(const struct region *region);

/* The process's attachment, under the initialiser's lock: gives the region the environment's
 * priority where it has none, or nobody lives in the container and none was set while programs ran.
 * `fresh`: the file was made just now; it has what the one before it had. */
void control_take(struct region *region, bool fresh);

/* HAMi's monitor reads it beside ours. */
void control_set_priority(struct region *region, uint32_t priority, enum vgpu_priority_set by);

#endif
