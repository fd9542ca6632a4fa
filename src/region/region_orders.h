/* SPDX-License-Identifier: Apache-2.0 */
/* The region's words by which a container is told what to do at once: the epoch that wakes who
 * waits for another word, pauses, the priority, and the commands of HAMi's monitor.
 *
 * Within a window (base/guard.h), except orders_wait and orders_epoch_is. */
#ifndef VGPU_REGION_REGION_ORDERS_H
#define VGPU_REGION_REGION_ORDERS_H

#include "region/region.h"

/* How long to sleep where there is no word to sleep on. */
#define ORDERS_SLEEP_NS 20000000ull

/* Raises the epoch and wakes all its sleepers in all processes. Keeps errno. */
void orders_raise(struct vgpu_region *shared);

/* Sleeps until the epoch is not `seen` or the time is over, or shorter. Where the word is
 * gone with its file, over ORDERS_SLEEP_NS at most. Keeps errno. */
void orders_wait(uint32_t *epoch, uint32_t seen, uint64_t timeout_ns);

/* Whether the epoch is `seen`, by one system call and without touching it: false also where the
 * word is gone with its file, or cannot be asked for so. Keeps errno. */
bool orders_epoch_is(uint32_t *epoch, uint32_t seen);

/* After another file was mapped in this one's place (orders_raise before it woke who slept on the
 * old one's epoch): the epoch is another than any that was seen before. `fresh`: as orders_take. */
void orders_arrive(struct vgpu_region *shared, bool fresh);

/* What the words say, each made safe to use. */
struct region_orders orders_read(const struct region *region);

/* The process's attachment, under the initialiser's lock: gives the region the environment's
 * priority where it has none, or nobody lives in the container and none was set while programs ran.
 * `fresh`: the file was made just now; it has what the one before it had. */
void orders_take(struct region *region, bool fresh);

/* HAMi's monitor reads it beside ours. */
void orders_set_priority(struct region *region, uint32_t priority, enum vgpu_priority_set by);

#endif
