/* SPDX-License-Identifier: Apache-2.0 */
/* Freeze and give back: the process's movable memory goes to the host as a whole, and comes back.
 * By order of a tool (vgpu_region.release), or because the process did no GPU work for
 * VGPU_IDLE_RELEASE seconds. A thread of the library does it, which exists while the process has
 * movable memory. */
#ifndef VGPU_VMEM_FREEZE_H
#define VGPU_VMEM_FREEZE_H

#include "vmem/world.h"

#include <stdbool.h>

/* The process has movable memory: from now on orders are heard. Any thread; one load when done. */
void freeze_watch_slow(void);

extern bool freeze_is_watched; /* written by this module alone */

static inline void freeze_watch(void)
{
    if (!load_relaxed(&freeze_is_watched))
        freeze_watch_slow();
}

/* Its memory went out, or is on its way. */
bool freeze_holds(void);

/* The start of a process or of a forked child. */
void freeze_reset(void);

#endif
