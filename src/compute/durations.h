/* SPDX-License-Identifier: Apache-2.0 */
/* How long each of the program's kernels takes, learnt from the launches that were measured: the
 * estimate by which launches are admitted. One table per process, read by each launch under a limit
 * in a few nanoseconds, without locks. A kernel's key is made of its handle and the shape of its
 * launch. */
#ifndef VGPU_COMPUTE_DURATIONS_H
#define VGPU_COMPUTE_DURATIONS_H

#include "base/atomic.h"

#include <stdbool.h>
#include <stdint.h>

/* Kernels with an estimate, at most: more than a large model launches; 32 KiB. */
#define DURATIONS_ENTRIES 4096u
/* Bits of an entry below the key: the flag, the count and the mean. */
#define DURATION_BITS 41
#define DURATION_MEAN_BITS                                                                         \
    37 /* of nanoseconds: up to 137 s, more than any kernel that is worth an estimate */
#define DURATION_MAX_NS ((1ull << DURATION_MEAN_BITS) - 1)
/* Measurements that make an estimate: a first one may be far off, if the kernel is loaded meanwhile
 * or the thread does not run. */
#define DURATION_SETTLED 4u

/* Flag: measured while no other container worked on the device. */
#define DURATION_ALONE (1ull << 40)

/* Key's upper bits << DURATION_BITS | DURATION_ALONE | number of measurements, at most 7, <<
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

/* The mean, or 0 if the kernel was never measured, or another one took its place. */
static inline uint64_t duration_of(uint64_t key)
{
    return duration_entry(key) & DURATION_MAX_NS;
}

/* The mean if it is an estimate (DURATION_SETTLED measurements), else 0. */
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

/* Whether it was measured alone: no time slice of another container is in it. */
static inline bool duration_is_alone(uint64_t key)
{
    return duration_entry(key) & DURATION_ALONE;
}

/* Takes a measured duration into the kernel's mean; the second one: while no other container
 * worked. */
void duration_learn(uint64_t key, uint64_t measured_ns);
void duration_learn_alone(uint64_t key, uint64_t measured_ns);

/* The kernel was measured, and nothing better is known of it than before. */
void duration_confirm(uint64_t key);

/* The kernel takes no longer than that. */
void duration_shorten(uint64_t key, uint64_t most_ns);

/* The kernel took longer than its mean, perhaps because of others. If it does so several times in a
 * row, and nothing else is measured of it, the least of these becomes its mean. One thread at a
 * time. */
void duration_exceeded(uint64_t key, uint64_t took_ns);

/* The kernel was measured beside others in one time slice of this container, perhaps after a wait
 * for it: the least of a few such measurements counts as measured alone. One thread at a time. */
void duration_learn_extended(uint64_t key, uint64_t took_ns);

/* `longer`: a kernel that was measured alone took longer beside others than it can. If it does so
 * several times in a row, it no longer counts as measured alone. One thread at a time. */
void duration_distrust(uint64_t key, bool longer);

/* Forgets all: for a forked child. */
void durations_reset(void);

#endif
