/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory of the process's ranges, parked: nothing of it is mapped at a device address, and no
 * handle of it is held. It lies behind descriptors, in the same pages. The driver cannot restore a
 * process that it checkpoints with host memory mapped or held, and takes no notice of descriptors
 * (docs/benchmarks/h100-580.159.04-checkpoint.md).
 *
 * By the thread that has stopped the world (vmem/world.h) and begun a halt (pace/halt.h). */
#ifndef VGPU_VMEM_PARK_H
#define VGPU_VMEM_PARK_H

#include <stdbool.h>

/* Parks all of it. False, and what was parked is back, where the driver or the limit of open files
 * refuses, or some host memory is in no range that is found: one in the midst of a free. */
bool park_out(void) __attribute__((warn_unused_result));

/* Brings all of it back to its addresses. False where the driver refuses some: that stays parked,
 * and no call may use memory until a later call has brought it back. */
bool park_in(void) __attribute__((warn_unused_result));

/* The program has host memory of its own that the driver could not restore: from now on nothing is
 * parked. Any thread; `why` stays valid. */
void park_forbid(const char *why);

/* Something is parked: after a false, what did not come back. */
bool park_holds(void);

/* The start of a process or of a forked child. */
void park_reset(void);

#endif
