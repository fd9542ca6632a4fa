/* SPDX-License-Identifier: Apache-2.0 */
/* When a container's channels are taken off the GPU, and for how long: only if something runs that
 * a launch gate cannot hold, one kernel (or graph) that goes on after its container has overdrawn
 * its budget. From then on the container runs in windows until that kernel is over.
 *
 * Containers in windows beside each other keep to time-division slots: one period that all share,
 * by CLOCK_MONOTONIC, is divided among them by their limits, and each works in its own slot alone.
 * So all time that passes there is its own, which could not be told of two endless kernels in time
 * slices, and none is lost to time slices.
 *
 * Pure functions of the balance, the limit and what runs. Times are nanoseconds. */
#ifndef VGPU_COMPUTE_WINDOW_H
#define VGPU_COMPUTE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds by which a kernel may overdraw its container's budget before it is stopped. */
#define WINDOW_OVERDRAWN_NS 10000000

/* Nanoseconds. Closing and opening cost up to 0.4 ms of the device and 0.93 ms of a core (H200,
 * driver 580.159.04; a persistent kernel: 0.62 and 0.31 ms). A window lasts at least 14 ms, so that
 * this is less than 3 % of the device; a period at least 80 ms, so that it is less than 2 % of the
 * core with the governor's looks (2.6 % at 50 ms). */
#define WINDOW_OPEN_MIN_NS 14000000
#define WINDOW_PERIOD_MIN_NS 80000000

/* Nanoseconds from which a kernel counts as long: shorter ones are held by the launch gate. */
#define WINDOW_LONG_NS 10000000

/* Nanoseconds. No closure is longer, because limits change meanwhile. */
#define WINDOW_CLOSED_MAX_NS 1000000000

/* Nanoseconds of a period of slots: a shorter one loses more to switches. A low limit lengthens it
 * up to 0.1 s, in which a container can save up what it needs for its slot (budget_burst_ns). */
#define WINDOW_SLOTS_MIN_NS WINDOW_PERIOD_MIN_NS
#define WINDOW_SLOTS_LONG_NS 100000000
/* Nanoseconds of a period for each container: each closes and opens once in it and keeps the GPU's
 * lock meanwhile (0.93 ms), all together for less than a tenth of the time. */
#define WINDOW_SLOTS_EACH_NS 10000000

/* From when to when in each period; period 0: there is no slot. */
struct window_slot {
    uint64_t period_ns, from_ns, to_ns;
};

/* The other containers that keep to slots. */
struct window_others {
    unsigned count;
    unsigned percent;        /* sum of their limits, */
    unsigned before_percent; /* and of those before this container in order */
    unsigned least_percent;  /* least of their limits */
};

/* The slot of a container with that limit. All compute the same period. None if there are no
 * others, or the limits do not fit: no container has less room than its limit gives it, whatever
 * the others say. */
struct window_slot window_slot(unsigned percent, const struct window_others *others);

struct window_view {
    int64_t balance_ns; /* of the container on the device, charged for what has run up to now */
    unsigned percent;   /* its limit: 1 to 99 */
    bool runs_on;       /* something has run for WINDOW_LONG_NS or more, and still does */
    bool in_windows;    /* it was stopped before */
    struct window_slot slot;
    uint64_t now_ns; /* used with a slot */
};

/* Nanoseconds for which the container is stopped from now on; 0: it is not. */
uint64_t window_close_ns(const struct window_view *view);

/* Nanoseconds that an open container may go on before the next look; UINT64_MAX: nothing runs that
 * needs one. */
uint64_t window_open_ns(const struct window_view *view);

#endif
