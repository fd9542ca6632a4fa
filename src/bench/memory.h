/* SPDX-License-Identifier: Apache-2.0 */
/* The two parts of the memory group: what is held, and what it takes. */
#ifndef VGPU_BENCH_MEMORY_H
#define VGPU_BENCH_MEMORY_H

#include "bench/bench.h"

#define BENCH_MEMORY_TIMES 2
#define BENCH_MEMORY_DEADLINE_S 30

/* A container with that memory limit, in a fresh place. False natively, which has none, and where
 * the subject cannot be given one: its figures say why then. */
bool bench_memory_begin(struct bench *bench, size_t subject, struct bench_limits *limits,
    char *place, size_t size, double memory_mib);

/* Whole MiB in bytes, as an argument of a worker. */
void bench_memory_bytes(char *text, size_t size, double mib);

/* Declares what is measured under twice the limit, and adds the items that measure it; returns
 * their number. */
size_t bench_memory_times(struct bench *bench, double limit_mib, struct bench_item *items);

#endif
