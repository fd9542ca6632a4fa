/* SPDX-License-Identifier: Apache-2.0 */
/* When the channel gate was closed: in that time nothing of ours ran on the device, whatever timing
 * events at both sides of it say. Times are nanoseconds of CLOCK_MONOTONIC. Any thread; a leaf
 * lock. */
#ifndef VGPU_COMPUTE_CLOSED_H
#define VGPU_COMPUTE_CLOSED_H

#include "base/atomic.h"
#include "base/lock.h"

#include <stdbool.h>
#include <stdint.h>

/* The latest closures kept: at 70 ms each, of 35 s. What runs longer is charged as it goes. */
#define CLOSED_KEPT 512u

struct closed_times {
    struct lock lock;
    uint64_t from_ns[CLOSED_KEPT], to_ns[CLOSED_KEPT]; /* a ring; to 0: closed still */
    unsigned count;                                    /* of all closures so far */
    bool running;                                      /* the last one goes on still */
};

void closed_reset(struct closed_times *times);

/* The gate was closed at, or opened again at. A closure within another is none. */
void closed_begin(struct closed_times *times, uint64_t at_ns);
void closed_end(struct closed_times *times, uint64_t at_ns);

/* Whether the last closure goes on still. One load. */
static inline bool closed_is_running(const struct closed_times *times)
{
    return load_relaxed(&times->running);
}

/* For how much of the time between the two the gate was closed. NULL: never. */
uint64_t closed_between(struct closed_times *times, uint64_t from_ns, uint64_t to_ns);

struct vgpu_compute;

/* budget_occupy (compute/budget.h), with the busy time where the gate was open: what others were
 * busy with at the same moments is found to be the same only if it lies there as well. */
uint64_t closed_occupy(struct vgpu_compute *words, struct closed_times *times, uint64_t from_ns,
    uint64_t to_ns, uint64_t busy_ns);

#endif
