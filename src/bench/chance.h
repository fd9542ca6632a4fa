/* SPDX-License-Identifier: Apache-2.0 */
/* Chance: the same for the same seed. One thread only. */
#ifndef VGPU_BENCH_CHANCE_H
#define VGPU_BENCH_CHANCE_H

#include <stddef.h>
#include <stdint.h>

/* An unpredictable seed: 1 or more. */
uint32_t bench_chance_seed(void);

/* Begins anew with that seed. */
void bench_chance_begin(uint32_t seed);

uint64_t bench_chance(void);

/* Fills the order with 0 to count - 1 by chance. */
void bench_shuffle(size_t *order, size_t count);

#endif
