/* SPDX-License-Identifier: Apache-2.0 */
/* A container's budget of GPU time on one device, in the words that its processes share (struct
 * vgpu_compute). It is refilled at the limit's rate, charged by estimate when work is admitted, and
 * corrected when the work is measured. An overdraft is carried.
 *
 * Pure functions of these words, the time and the arguments: no driver call, no clock, no lock. Any
 * number of threads and processes may call them at once. Times are nanoseconds of CLOCK_MONOTONIC,
 * GPU time is nanoseconds in which the device was busy, `percent` is a limit of 1 to 99 (other
 * values: no limit). */
#ifndef VGPU_COMPUTE_BUDGET_H
#define VGPU_COMPUTE_BUDGET_H

#include "vgpu/region.h"

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds. An idle container saves up the limit's share of this, and may use it at full speed:
 * the burst is 0.1 s at any limit. */
#define BUDGET_BURST_NS 100000000ull
/* Nanoseconds. The burst of a high limit is used up within this at most: it is refilled nearly as
 * fast as it is used, and would otherwise lift the container above its limit for long (2 points
 * over 3 s at 95 %, H200). */
#define BUDGET_BURST_USED_NS 1000000000ull

/* Nanoseconds. The largest overdraft that is carried: a kernel that a launch gate cannot stop must
 * not close its container for good. */
#define BUDGET_DEBT_NS 5000000000ll

/* Nanoseconds of GPU time that must be available before a closed gate opens. A wake costs 10 to 25
 * us of a core (H200, virtual machine), and shorter waits need more wakes: with 2 ms that is about
 * 1 %. */
#define BUDGET_OPEN_NS 2000000

/* The same for a program with several streams. Their kernels fill each other's tails, except at the
 * ends of what is admitted at a time: of 2 ms that was 3 to 5 % of the work, so that 4 ms halve it
 * (H200; kernels of 10 us and 1 ms, four streams). */
#define BUDGET_OPEN_STREAMS_NS (2ll * BUDGET_OPEN_NS)

/* Nanoseconds. A process may take more than its part while this much of the container's GPU time is
 * left over, or three quarters of the burst: twice what opens the gate, so that the others can go
 * on. */
#define BUDGET_SURPLUS_NS (2ll * BUDGET_OPEN_NS)

/* Nanoseconds. A process waits when it is this far ahead of the others, until it is behind them. A
 * change between two processes costs the device 0.2 ms (H200): 7 % of this. It averages out within
 * a second. */
#define BUDGET_AHEAD_NS 3000000

/* Nanoseconds of GPU time that a stream's launches take by estimate between two closer looks, at
 * least. A look costs the launching thread about 5 us: 0.5 % of this. */
#define BUDGET_QUANTUM_NS 1000000u
/* The same while half of the burst is available; and at most, where the thread waits for its
 * launches and a look leaves the device idle for 20 us (H200): with launches of 100 us fewer than
 * one in a hundred is looked at, so that their 99th percentile is as without a limit. */
#define BUDGET_QUANTUM_PLENTY_NS (2ll * BUDGET_QUANTUM_NS)
#define BUDGET_QUANTUM_IDLE_NS (20ll * BUDGET_QUANTUM_NS)

/* Nanoseconds. There, launches of steady durations go on uninstrumented for this long while half of
 * the burst is available: one launch of 100 us in 500 is measured. */
#define BUDGET_UNINSTRUMENTED_NS (50 * BUDGET_QUANTUM_NS)

static inline bool budget_is_limited(unsigned percent)
{
    return percent > 0 && percent < 100;
}

/* The burst, in nanoseconds of GPU time. */
static inline int64_t budget_burst_ns(unsigned percent)
{
    uint64_t most = BUDGET_BURST_NS / 100 * percent;
    uint64_t used = BUDGET_BURST_USED_NS / 100 * (100 - percent);
    return (int64_t)(budget_is_limited(percent) && used < most ? used : most);
}

/* Grants what the limit gives up to `now_ns`; returns the balance. At most budget_burst_ns is
 * saved, also where the limit was lowered meanwhile. A clock that went back grants nothing. */
int64_t budget_refill(struct vgpu_compute *words, unsigned percent, uint64_t now_ns);

/* Drops what was saved. An overdraft stays. */
void budget_forfeit(struct vgpu_compute *words);

int64_t budget_balance(const struct vgpu_compute *words);

/* Takes `gpu_ns` from the balance; a negative value gives it back. */
void budget_charge(struct vgpu_compute *words, int64_t gpu_ns);

/* A process beside the others of its container. A positive balance means that it had less than an
 * equal part of what all of them took, a negative one that it had more: then it waits until the
 * others leave something over. Private to the process; its lock guards it. */
struct budget_share {
    int64_t balance_ns;
    uint64_t parts_ns; /* up to this vgpu_compute.parts_ns it has its part */
    uint64_t judged_parts_ns, judged_busy_ns;
    bool begun;
    bool believes; /* recent estimates add up to what was measured */
    bool waits;    /* it is ahead of the others, and waits until it is behind */
};

/* Takes `gpu_ns` from the process's part, and shares it out among all that ask. If the part is used
 * up, at most a burst of what is left over is held against the process. */
void budget_share_charge(
    struct budget_share *share, struct vgpu_compute *words, unsigned percent, int64_t gpu_ns);

/* Work that was charged with `work_ns` took `busy_ns` from begin to end. In `new_ns` of that no
 * other process was busy. */
struct budget_done {
    uint64_t busy_ns, new_ns, work_ns;
};

/* While other processes work too, the process took `new_ns` itself at most, and its estimate is
 * believed. If all recent estimates together are less than what the container was busy, some
 * estimates are too small: then it took an equal part of the time at least. */
void budget_share_settle(struct budget_share *share, struct vgpu_compute *words, unsigned active,
    const struct budget_done *done);

/* Gives the process its part of what all took since the last call; `active` is the number of
 * processes that ask for GPU time. What exceeds half a burst, and was available, goes to the
 * others. */
void budget_share_refill(
    struct budget_share *share, struct vgpu_compute *words, unsigned percent, unsigned active);

/* Whether work of about `coming_ns` is admitted at this balance of the container. */
bool budget_admits(int64_t balance_ns, unsigned percent, const struct budget_share *share,
    unsigned active, uint64_t coming_ns);

/* How much GPU time may go by estimate until the next closer look. `idle`: the stream was idle, and
 * no other stream of its context works. Then it is twice `former_ns`, the value before, up to half
 * of the process's part of what is saved. */
uint32_t budget_quantum_ns(
    int64_t balance_ns, unsigned percent, unsigned active, bool idle, uint32_t former_ns);

/* Nanoseconds until a container with this balance may go on; 0: at once. */
uint64_t budget_wait_ns(int64_t balance_ns, unsigned percent);

/* The GPU time that must be available before several streams of a program go on: never more than
 * can be saved. */
int64_t budget_open_streams_ns(unsigned percent);

/* Nanoseconds until the balance is `wanted_ns`; 0: it is, or more. */
uint64_t budget_fill_ns(int64_t balance_ns, int64_t wanted_ns, unsigned percent);

/* Enters `busy_ns` of GPU time between two moments, and returns how much of it is new: two
 * processes that were busy at the same moment kept the device busy once. Exact to one bucket of
 * VGPU_COMPUTE_SPAN_NS. What is older than all buckets kept is new as a whole. */
uint64_t budget_occupy(
    struct vgpu_compute *words, uint64_t from_ns, uint64_t to_ns, uint64_t busy_ns);

#endif
