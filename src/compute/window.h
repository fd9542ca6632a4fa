/* SPDX-License-Identifier: Apache-2.0 */
/* When a container's channels are taken off the GPU, and for how long: only where something runs
 * that a launch gate cannot hold, one kernel (or graph) that goes on while its container has long
 * had its time. From then on the container runs in windows until that kernel is over.
 *
 * Containers that do so beside each other keep to time-division slots: one period that all share,
 * by CLOCK_MONOTONIC, is divided among them by their limits, and each works in its own
 * time-division slot alone. So all that passes there is its own, which nobody could tell of two
 * kernels that never end and take time slices, and nothing is lost to time slices.
 *
 * Pure functions of the balance, the limit and what runs. Times are nanoseconds. */
#ifndef VGPU_COMPUTE_WINDOW_H
#define VGPU_COMPUTE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* A kernel may overdraw its container's budget by so much before it is stopped. */
#define WINDOW_OVERDRAWN_NS 10000000

/* Closing and opening cost up to 0.4 ms of the device, and 0.93 ms of a core (H200, driver
 * 580.159.04, a persistent kernel: 0.62 and 0.31 ms): one window lasts at least so long, so that it
 * is less than 3 % of the device, and one period, so that it is less than 2 % of the core, with the
 * governor's looks (2.6 % at 50 ms). */
#define WINDOW_OPEN_MIN_NS 14000000
#define WINDOW_PERIOD_MIN_NS 80000000

/* What runs for less is the launch gate's. */
#define WINDOW_LONG_NS 10000000

/* No closure is longer: limits change meanwhile. */
#define WINDOW_CLOSED_MAX_NS 1000000000

/* A period of slots: less loses more to switches. For the sake of a low limit it grows so far, in
 * which a container can save up what it needs for its slot (budget_burst_ns). */
#define WINDOW_SLOTS_MIN_NS WINDOW_PERIOD_MIN_NS
#define WINDOW_SLOTS_LONG_NS 100000000
/* Each of them closes and opens once in it, and keeps the GPU's lock meanwhile: all together for
 * less than a tenth of the time, however many they are. */
#define WINDOW_SLOTS_EACH_NS 10000000

/* From when to when in each period; period 0: no slot is kept to. */
struct window_slot {
    uint64_t period_ns, from_ns, to_ns;
};

/* The others that keep to slots. */
struct window_others {
    unsigned count;
    unsigned percent;        /* their limits' sum, */
    unsigned before_percent; /* and that of those before us in order */
    unsigned least_percent;  /* of their limits */
};

/* Of a container of that limit. All come to the same period. None where there are no others, or
 * their limits and ours do not fit: nobody has less room than his limit gives him, whatever others
 * say. */
struct window_slot window_slot(unsigned percent, const struct window_others *others);

struct window_view {
    int64_t balance_ns; /* of the container on the device: charged for what has run up to now */
    unsigned percent;   /* its limit: 1 to 99 */
    bool runs_on;       /* something has run for WINDOW_LONG_NS or more, and does still */
    bool in_windows;    /* it was stopped already */
    struct window_slot slot;
    uint64_t now_ns; /* where there is a slot */
};

/* How long the container is to be stopped from now on; 0: it is not. */
uint64_t window_close_ns(const struct window_view *view);

/* How long an open container may go on before one must look again; UINT64_MAX: nothing runs that
 * one had to look after. */
uint64_t window_open_ns(const struct window_view *view);

#endif
