/* SPDX-License-Identifier: Apache-2.0 */
/* What the tenants' items share. */
#ifndef VGPU_BENCH_TENANTS_H
#define VGPU_BENCH_TENANTS_H

#include "bench/load_run.h"

/* From a begin or a death until the tenants at work are judged. */
#define BENCH_TENANTS_AFTER_NS 300000000u

/* Duration of a load with kernels of 1 ms; less in tests. */
struct bench_load bench_tenants_kernels(
    const struct bench *bench, double seconds, unsigned window_ms);

/* The limits of a tenant, which are none natively; each in a container of its own. False where it
 * cannot be given them: `reason` says why. */
bool bench_tenants_limit(struct bench *bench, size_t subject, unsigned cores, const char *board,
    char *place, size_t size, struct bench_limits *ret_limits, char *reason, size_t reason_size);

/* What was measured as work becomes a share of what the load does alone, natively. */
void bench_tenants_judge_share(
    struct bench *bench, const struct bench_definition *definition, const char *condition);

/* Of a tenant that is idle and comes back, again and again, beside one that works all the time. */
void bench_tenants_idle_declare(struct bench *bench);
void bench_tenants_idle_run(struct bench *bench, const struct bench_item *item, size_t subject);
void bench_tenants_idle_judge(struct bench *bench);

#endif
