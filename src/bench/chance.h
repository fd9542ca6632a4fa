/* SPDX-License-Identifier: Apache-2.0 */
/* Chance, the same in each run. One thread only. */
#ifndef VGPU_BENCH_CHANCE_H
#define VGPU_BENCH_CHANCE_H

#include <stddef.h>
#include <stdint.h>

uint64_t bench_chance(void);

/* Fills the order with 0 to count - 1 by chance. */
void bench_shuffle(size_t *order, size_t count);

#endif
