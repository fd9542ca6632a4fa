/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the right memory on the card (residency/residency.h): what was spilled comes back when the
 * share, or without one the card, has room, and what is used changes places with what is not. By a
 * thread of its own, which a process has once something of it was spilled, or has a share. It moves
 * with the world stopped (vmem/world.h), for 50 ms at a time where no launch waits for it. Tenants
 * whose memory does not fit together take turns by it (vmem/turn.h). */
#ifndef VGPU_VMEM_PLACEMENT_H
#define VGPU_VMEM_PLACEMENT_H

#include "vmem/vmem.h"

/* Memory was allocated. Any thread, without a lock; one load where there is nothing to do. */
void placement_watch_slow(void);

static inline void placement_watch(void)
{
    if (load_relaxed(&vmem_is_placed))
        placement_watch_slow();
}

/* The start of a process or of a forked child. */
void placement_reset(void);

#endif
