/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu-load as the load of a measurement, and what it reports. */
#ifndef VGPU_BENCH_LOAD_RUN_H
#define VGPU_BENCH_LOAD_RUN_H

#include "bench/bench.h"
#include "bench/windows.h"

struct bench_load {
    const char *shape;
    unsigned kernel_us, window_ms;
    double seconds, warmup;
    const char *more[7]; /* further options, ended by NULL */
};

/* Returns 0 or -errno; it is killed 20 s after it should have ended. */
int bench_load_start(struct bench *bench, struct bench_process *process, size_t subject,
    const struct bench_limits *limits, const struct bench_load *load)
    __attribute__((warn_unused_result));

/* Of a load that ended. False where it failed: `reason` says why. The report is to be finished
 * where true. */
bool bench_load_report(const struct bench_process *process, struct bench_report *ret_report,
    char *reason, size_t size);
void bench_report_finish(struct bench_report *report);

/* Runs one load in a container of its own. */
bool bench_load_run(struct bench *bench, size_t subject, struct bench_limits *limits,
    const struct bench_load *load, struct bench_report *ret_report, char *reason, size_t size);

/* Adds a sample of that latency, whose repetitions are what the load measured. Where it measured
 * none the figure is missing: no `what` ended. */
void bench_latency_sample(struct bench *bench, size_t subject, const char *id,
    const char *condition, const struct bench_report *report, double us, const char *what);

/* Measures the native duration of the load's kernels into bench->calibration, once. */
bool bench_calibrate(struct bench *bench, char *reason, size_t size);

#endif
