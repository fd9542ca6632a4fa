/* SPDX-License-Identifier: Apache-2.0 */
/* The epoch of the region's control words (vgpu_region.orders_epoch): a process that changes one of
 * them raises it and wakes its sleepers. Within a window (base/guard.h), except epoch_wait and
 * epoch_is.
 */
#ifndef VGPU_REGION_EPOCH_H
#define VGPU_REGION_EPOCH_H

#include "vgpu/region.h"

#include <stdbool.h>
#include <stdint.h>

/* How long to sleep where there is no word to sleep on. */
#define EPOCH_SLEEP_NS 20000000ull

/* Raises the epoch and wakes all its sleepers in all processes. Keeps errno. */
void epoch_raise(struct vgpu_region *shared);

/* Sleeps until the epoch is not `seen` or the time is over, or shorter. Where the word is
 * gone with its file, over EPOCH_SLEEP_NS at most. Keeps errno. */
void epoch_wait(uint32_t *epoch, uint32_t seen, uint64_t timeout_ns);

/* Whether the epoch is `seen`, by one system call and without touching it: false also where the
 * word is gone with its file, or cannot be asked for so. Keeps errno. */
bool epoch_is(uint32_t *epoch, uint32_t seen);

/* After another file was mapped in this one's place (epoch_raise before it woke what slept on the
 * old one's epoch): the epoch is another than any that was seen before. `fresh`: as control_take.
 */
void epoch_arrive(struct vgpu_region *shared, bool fresh);

#endif
