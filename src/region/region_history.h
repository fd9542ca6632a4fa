/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a device's time the container had of late (struct vgpu_history): marks of
 * vgpu_compute.busy_ns about a second apart, of which a reader makes shares.
 *
 * Within a window (base/guard.h). No lock: what processes write at the same moment, or a killed one
 * leaves, costs a mark. */
#ifndef VGPU_REGION_REGION_HISTORY_H
#define VGPU_REGION_REGION_HISTORY_H

#include "vgpu/region.h"

#include <stdbool.h>

/* After something was added to busy_ns of the file's `device`, which was `former_ns` before: makes
 * a mark where the newest is VGPU_HISTORY_MARK_NS old. `now_ns`: CLOCK_MONOTONIC. */
void region_history_note(
    struct vgpu_region *region, unsigned device, uint64_t former_ns, uint64_t now_ns);

/* How long the container kept the device with this history busy in the `span_ns` before `now_ns`
 * (CLOCK_MONOTONIC, now or a moment ago), up to a minute, to within what it does in a second;
 * `busy_ns` is what its busy_ns is then. The history may be a copy, of a process that reads the
 * file by pread. *ret_span_ns: the time that this is known of, never 0: less than the span where
 * the container first worked within it (it was idle before), or the span is longer than a minute.
 * *ret_busy_ns is at most that, whatever the file says. False where nothing is known, because the
 * container never worked on the device or only now began. */
bool region_history_share(const struct vgpu_history *history, uint64_t busy_ns, uint64_t now_ns,
    uint64_t span_ns, uint64_t *ret_busy_ns, uint64_t *ret_span_ns);

#endif
