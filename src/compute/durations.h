/* SPDX-License-Identifier: Apache-2.0 */
/* How long each of the program's kernels takes, learnt from those that were measured: the estimate
 * by which launches are admitted. A table of the process, read by each launch under a limit in a
 * few nanoseconds; writers and readers need no lock. A kernel's key is made of its handle and the
 * shape of its launch. */
#ifndef VGPU_COMPUTE_DURATIONS_H
#define VGPU_COMPUTE_DURATIONS_H

#include "base/atomic.h"

#include <stdbool.h>
#include <stdint.h>

#define DURATIONS_ENTRIES 4096u
#define DURATION_BITS 41
#define DURATION_MEAN_BITS 37 /* up to two minutes */
#define DURATION_MAX_NS ((1ull << DURATION_MEAN_BITS) - 1)
/* A first measurement may be far off: of a kernel that is loaded then, or with the thread kept from
 * running. So many make an estimate. */
#define DURATION_SETTLED 4u

/* Measured while nobody else was at work on the device. */
#define DURATION_ALONE (1ull << 40)

/* Key's upper bits << DURATION_BITS | DURATION_ALONE | how often measured, up to 7 <<
 * DURATION_MEAN_BITS | mean in nanoseconds; 0: unknown. */
extern uint64_t durations_table[DURATIONS_ENTRIES];

static inline uint64_t duration_key(uint64_t handle, uint64_t shape)
{
    uint64_t key = (handle ^ shape * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;
    return key ^ key >> 29;
}

/* The key's word, or 0. */
static inline uint64_t duration_entry(uint64_t key)
{
    for (unsigned probe = 0; probe < 2; probe++) {
        uint64_t entry = load_relaxed(&durations_table[(key ^ probe) % DURATIONS_ENTRIES]);
        if ((entry ^ key) >> DURATION_BITS == 0)
            return entry;
    }
    return 0;
}

/* The mean, or 0 where the kernel was never measured, or another took its place. */
static inline uint64_t duration_of(uint64_t key)
{
    return duration_entry(key) & DURATION_MAX_NS;
}

/* The mean where it is one of several measurements, else 0. */
static inline uint64_t duration_settled(uint64_t key)
{
    uint64_t entry = duration_entry(key);
    return (entry >> DURATION_MEAN_BITS & 7) >= DURATION_SETTLED ? entry & DURATION_MAX_NS : 0;
}

/* Whether the last few measurements agreed with the mean. */
static inline bool duration_is_steady(uint64_t key)
{
    return (duration_entry(key) >> DURATION_MEAN_BITS & 7) == 7;
}

/* Whether it was measured alone, and no time slice of another container's is in it. */
static inline bool duration_is_alone(uint64_t key)
{
    return duration_entry(key) & DURATION_ALONE;
}

/* Takes a measured duration into the kernel's mean; the other one while nobody else was at work. */
void duration_learn(uint64_t key, uint64_t measured_ns);
void duration_learn_alone(uint64_t key, uint64_t measured_ns);

/* The kernel was measured, and nothing better is known of it than before. */
void duration_confirm(uint64_t key);

/* The kernel is known to take no longer than that. */
void duration_shorten(uint64_t key, uint64_t most_ns);

/* The kernel took longer than is known, which may be others' doing. Where it does so several times
 * in a row, and nothing else is measured of it, it takes what it took at least. One thread at a
 * time. */
void duration_exceeded(uint64_t key, uint64_t took_ns);

/* The kernel was measured beside others, in one time slice of ours unless it had to wait for that:
 * what is least of a few such is taken as if it had been alone. One thread at a time. */
void duration_learn_extended(uint64_t key, uint64_t took_ns);

/* Whether a kernel that was measured alone takes longer beside others than it could. Where that is
 * so several times in a row, it counts as one that was not. One thread at a time. */
void duration_distrust(uint64_t key, bool longer);

/* Forgets all: for a forked child. */
void durations_reset(void);

#endif
