/* SPDX-License-Identifier: Apache-2.0 */
/* The policy of GPU time: a container's budget on one device, in the words that its processes share
 * (struct vgpu_compute). Refilled at the limit's rate, charged by estimate when work is let go and
 * set right when it is measured; what is overdrawn is carried.
 *
 * Pure functions of those words, the time and the figures given: no call of a driver, no clock, no
 * lock; any number of threads and processes at once. Times are nanoseconds of CLOCK_MONOTONIC, GPU
 * time is nanoseconds in which the device was busy, `percent` is 1 to 99 (others: no limit). */
#ifndef VGPU_LIMIT_BUDGET_H
#define VGPU_LIMIT_BUDGET_H

#include "vgpu/region.h"

#include <stdbool.h>
#include <stdint.h>

/* What may be saved up while the container is idle: the limit's share of this time. A burst of so
 * long runs at full speed. */
#define BUDGET_BURST_NS 100000000ull

/* More than this is not owed: a kernel that a launch gate cannot stop does not close its container
 * for ever. */
#define BUDGET_DEBT_NS 5000000000ll

/* A closed gate opens again when so much GPU time is there: a wake costs 10 to 25 us of a core
 * (H200, a virtual machine), and the shorter the waits, the more of them. */
#define BUDGET_OPEN_NS 2000000

/* With so much of the container's GPU time left over beyond what it takes, or with three quarters
 * of the burst, a process may take more than its part. */
#define BUDGET_SURPLUS_NS 4000000

static inline bool budget_is_limited(unsigned percent)
{
    return percent > 0 && percent < 100;
}

/* Grants what the limit gives up to `now`; returns the balance. At most BUDGET_BURST_NS's share is
 * saved, also where the limit was lowered meanwhile. A clock that went back grants nothing. */
int64_t budget_refill(struct vgpu_compute *words, unsigned percent, uint64_t now_ns);

int64_t budget_balance(const struct vgpu_compute *words);

/* Takes `gpu_ns` from the balance; below 0 gives back. */
void budget_charge(struct vgpu_compute *words, int64_t gpu_ns);

/* A process's own part of its container's budget: who asks for more than an equal share waits until
 * the others have left something over. Private to the process; its lock guards it. */
struct budget_share {
    int64_t balance_ns;
    uint64_t refilled_ns;
};

/* Takes `gpu_ns` from the process's part. Of what is left over, once its part is used up, no more
 * is held against it than half a burst. */
void budget_share_charge(struct budget_share *share, unsigned percent, int64_t gpu_ns);

/* Work that was charged with `work_ns` took `busy_ns` from begin to end, `new_ns` of which nobody
 * else was busy in. While others are at work too it took that much itself at most, and an equal
 * part of it at least; between these its estimate is believed. */
void budget_share_settle(struct budget_share *share, unsigned active, uint64_t busy_ns,
    uint64_t new_ns, uint64_t work_ns);

/* Gives the process its part, `active` being the number of processes that ask for GPU time. */
void budget_share_refill(
    struct budget_share *share, unsigned percent, unsigned active, uint64_t now_ns);

/* Whether work of about `coming_ns` may go now, with this balance of the container. */
bool budget_admits(int64_t balance_ns, unsigned percent, const struct budget_share *share,
    unsigned active, uint64_t coming_ns);

/* How long until a container with this balance may go on: 0 where it may at once. */
uint64_t budget_wait_ns(int64_t balance_ns, unsigned percent);

/* Enters `busy_ns` of GPU time between two moments, and returns how much of it is new: two
 * processes that were busy at the same moment kept the device busy once. Exact to the length of a
 * span (VGPU_COMPUTE_SPAN_NS); what is older than all spans kept is new as a whole. */
uint64_t budget_occupy(
    struct vgpu_compute *words, uint64_t from_ns, uint64_t to_ns, uint64_t busy_ns);

#endif
