/* SPDX-License-Identifier: Apache-2.0 */
/* The closures of the channel gate: in that time nothing of this container ran on the device,
 * whatever the timing events at both sides say. Times are nanoseconds of CLOCK_MONOTONIC. Any
 * thread; a leaf lock. */
#ifndef VGPU_COMPUTE_CLOSED_H
#define VGPU_COMPUTE_CLOSED_H

#include "base/atomic.h"
#include "base/lock.h"

#include <stdbool.h>
#include <stdint.h>

/* Closures kept, the latest: 35 s at 70 ms each. Work that runs longer is charged as it runs, so
 * that no older closure is asked for. */
#define CLOSED_KEPT 512u

struct closed_times {
    struct lock lock;
    uint64_t from_ns[CLOSED_KEPT], to_ns[CLOSED_KEPT]; /* a ring; to 0: still closed */
    unsigned count;                                    /* of all closures */
    bool running;                                      /* the last one is not over */
};

void closed_reset(struct closed_times *times);

/* The gate was closed at, or opened at. A closure within another does not count. */
void closed_begin(struct closed_times *times, uint64_t at_ns);
void closed_end(struct closed_times *times, uint64_t at_ns);

/* Whether the last closure is not over. One load. */
static inline bool closed_is_running(const struct closed_times *times)
{
    return load_relaxed(&times->running);
}

/* For how much of the time between the two the gate was closed. NULL: never. */
uint64_t closed_between(struct closed_times *times, uint64_t from_ns, uint64_t to_ns);

struct vgpu_compute;

/* As budget_occupy (compute/budget.h), with the busy time placed where the gate was open: only
 * there is it found to overlap with what other processes were busy with. */
uint64_t closed_occupy(struct vgpu_compute *words, struct closed_times *times, uint64_t from_ns,
    uint64_t to_ns, uint64_t busy_ns);

#endif
