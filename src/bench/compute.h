/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the group on compute limits. */
#ifndef VGPU_BENCH_COMPUTE_H
#define VGPU_BENCH_COMPUTE_H

#include "bench/load_run.h"

#define BENCH_CHANGES_MOST 4

/* The windows of which the others are made: 100 ms, in tests less. */
unsigned bench_compute_window_ms(const struct bench *bench);

/* Declares the figures of loads and limits that change, and fills in their items,
 * BENCH_CHANGES_MOST at most; returns how many. */
size_t bench_compute_changes(struct bench *bench, struct bench_item *items);

#endif
