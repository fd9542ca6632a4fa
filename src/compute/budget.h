/* SPDX-License-Identifier: Apache-2.0 */
/* The policy of GPU time: a container's budget on one device, in the words that its processes share
 * (struct vgpu_compute). Refilled at the limit's rate, charged by estimate when work is admitted
 * and set right when it is measured; what is overdrawn is carried.
 *
 * Pure functions of those words, the time and the figures given: no call of a driver, no clock, no
 * lock; any number of threads and processes at once. Times are nanoseconds of CLOCK_MONOTONIC, GPU
 * time is nanoseconds in which the device was busy, `percent` is 1 to 99 (others: no limit). */
#ifndef VGPU_COMPUTE_BUDGET_H
#define VGPU_COMPUTE_BUDGET_H

#include "vgpu/region.h"

#include <stdbool.h>
#include <stdint.h>

/* What may be saved up while the container is idle: the limit's share of this time. A burst of so
 * long runs at full speed. */
#define BUDGET_BURST_NS 100000000ull
/* But no more than a second at full speed uses up: of a high limit it would be there for long, and
 * the container above its limit (2 points over 3 s at 95 %, H200). */
#define BUDGET_BURST_USED_NS 1000000000ull

/* More than this is not owed: a kernel that a launch gate cannot stop does not close its container
 * for ever. */
#define BUDGET_DEBT_NS 5000000000ll

/* A closed gate opens again when so much GPU time is there: a wake costs 10 to 25 us of a core
 * (H200, a virtual machine), and the shorter the waits, the more of them. */
#define BUDGET_OPEN_NS 2000000

/* Kernels of several streams fill each other's tails, but for those at the ends of what goes at a
 * time: of 2 ms that is 3 to 5 % of the work (H200; kernels of 10 us and 1 ms, four streams). */
#define BUDGET_OPEN_STREAMS_NS 4000000

/* With so much of the container's GPU time left over beyond what it takes, or with three quarters
 * of the burst, a process may take more than its part. */
#define BUDGET_SURPLUS_NS 4000000

/* A process may be so far ahead of the others before it waits until it is behind them: a change
 * between two of them costs the device 0.2 ms (H200), and less is uneven within a second. */
#define BUDGET_AHEAD_NS 3000000

/* GPU time that a stream's launches may take by estimate before one is looked at closely, at least.
 * A look costs the launching thread about 5 us. */
#define BUDGET_QUANTUM_NS 1000000u
/* While there is plenty; and where the thread waits for its launches, so that each look is 20 us in
 * which the device does nothing (H200): of launches of 100 us less than one in a hundred. */
#define BUDGET_QUANTUM_PLENTY_NS 2000000u
#define BUDGET_QUANTUM_IDLE_NS 20000000u

/* There, while there is plenty, launches of steady durations go on by estimate for so long: of
 * launches of 100 us so few are measured then that it is no matter of their 99th percentile. */
#define BUDGET_UNINSTRUMENTED_NS 50000000u

static inline bool budget_is_limited(unsigned percent)
{
    return percent > 0 && percent < 100;
}

/* What may be saved up, in GPU time. */
static inline int64_t budget_burst_ns(unsigned percent)
{
    uint64_t most = BUDGET_BURST_NS / 100 * percent;
    uint64_t used = BUDGET_BURST_USED_NS / 100 * (100 - percent);
    return (int64_t)(budget_is_limited(percent) && used < most ? used : most);
}

/* Grants what the limit gives up to `now`; returns the balance. At most budget_burst_ns is
 * saved, also where the limit was lowered meanwhile. A clock that went back grants nothing. */
int64_t budget_refill(struct vgpu_compute *words, unsigned percent, uint64_t now_ns);

/* What was saved is gone; what is owed is owed still. */
void budget_forfeit(struct vgpu_compute *words);

int64_t budget_balance(const struct vgpu_compute *words);

/* Takes `gpu_ns` from the balance; below 0 gives back. */
void budget_charge(struct vgpu_compute *words, int64_t gpu_ns);

/* A process beside the others of its container: above 0 it has had less than an equal part of what
 * they took together, below 0 more; then it waits until the others have left something over.
 * Private to the process; its lock guards it. */
struct budget_share {
    int64_t balance_ns;
    uint64_t parts_ns; /* vgpu_compute.parts_ns up to which it has its part */
    uint64_t judged_parts_ns, judged_busy_ns;
    bool begun;
    bool believes; /* estimates of late make up for what was measured */
    bool waits;    /* it is ahead of the others, and to wait until it is behind */
};

/* Takes `gpu_ns` from the process's part, and shares it out among all who ask. Of what is left
 * over, once its part is used up, no more is held against it than a burst. */
void budget_share_charge(
    struct budget_share *share, struct vgpu_compute *words, unsigned percent, int64_t gpu_ns);

/* Work that was charged with `work_ns` took `busy_ns` from begin to end, `new_ns` of which nobody
 * else was busy in. */
struct budget_done {
    uint64_t busy_ns, new_ns, work_ns;
};

/* While others are at work too it took that much itself at most, and its estimate is believed. But
 * where all estimates of late together do not make up for what the container was busy, somebody's
 * are too small: then it took an equal part of the time at least. */
void budget_share_settle(struct budget_share *share, struct vgpu_compute *words, unsigned active,
    const struct budget_done *done);

/* Gives the process its part of what all took since, `active` being the number of processes that
 * ask for GPU time. What is more than half a burst, and was to be had, the others get. */
void budget_share_refill(
    struct budget_share *share, struct vgpu_compute *words, unsigned percent, unsigned active);

/* Whether work of about `coming_ns` may go now, with this balance of the container. */
bool budget_admits(int64_t balance_ns, unsigned percent, const struct budget_share *share,
    unsigned active, uint64_t coming_ns);

/* How much goes by estimate until the next closer look, at most. `idle`: nothing was on the
 * stream's way, and no other stream of its context works. Then it is twice the `former_ns` until
 * the look before, up to half of the process's part of what is saved. */
uint32_t budget_quantum_ns(
    int64_t balance_ns, unsigned percent, unsigned active, bool idle, uint32_t former_ns);

/* How long until a container with this balance may go on: 0 where it may at once. */
uint64_t budget_wait_ns(int64_t balance_ns, unsigned percent);

/* What is to be there before several streams of a program go on: never more than can be saved. */
int64_t budget_open_streams_ns(unsigned percent);

/* How long until the balance is `wanted_ns`: 0 where it is that, or more. */
uint64_t budget_fill_ns(int64_t balance_ns, int64_t wanted_ns, unsigned percent);

/* Enters `busy_ns` of GPU time between two moments, and returns how much of it is new: two
 * processes that were busy at the same moment kept the device busy once. Exact to the length of a
 * span (VGPU_COMPUTE_SPAN_NS); what is older than all spans kept is new as a whole. */
uint64_t budget_occupy(
    struct vgpu_compute *words, uint64_t from_ns, uint64_t to_ns, uint64_t busy_ns);

#endif
