/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from the windows of loads: shares, errors, times of reaction. Pure functions. */
#ifndef VGPU_BENCH_WINDOWS_H
#define VGPU_BENCH_WINDOWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WINDOWS_FINE_MS 10 /* windows of a load whose time of reaction is asked for */

/* What a load reports. */
struct bench_report {
    double work;        /* kernels ended × their native duration, seconds per second */
    double utilization; /* NVML's of the whole card, of 1; negative where it says nothing */
    double seconds;
    double p50_us, p99_us;   /* latency; negative where none was measured */
    unsigned long latencies; /* of how many */
    uint64_t begin_ns;       /* of the first window, CLOCK_MONOTONIC */
    double window_s;
    double *windows; /* work per second in each */
    size_t window_count;
};

/* Work per second between two times: of the whole windows that begin and end between them; negative
 * where there is none. */
double bench_report_between(const struct bench_report *report, uint64_t from_ns, uint64_t to_ns);

/* When its last window ended. */
uint64_t bench_report_end_ns(const struct bench_report *report);

/* Milliseconds from a time, in steps of 5, until what the loads do together over the next 50 ms is
 * within a tenth of what is wanted (of 1), over these and the next 300 ms together as well, and
 * over each 50 of those within a quarter: a share that swings only passes there. Negative where
 * that is not so within 1.2 s, or before one of them ended. */
double bench_windows_reached_ms(
    const struct bench_report *reports, size_t count, uint64_t from_ns, double wanted);

/* The share that is due under a limit in percent, of 1, and the share that one second of work per
 * second is, of a load whose native work is `native`. `paced`: natively it uses a part of the GPU,
 * because it waits for the host: as much as NVML says, where that is known, which is more than its
 * work, because a kernel that begins on an idle GPU keeps it busy for longer than in a row of them;
 * of the others native work is all. */
void bench_windows_due(bool paced, unsigned limit, double native, double utilization,
    double *ret_due, double *ret_scale);

/* Mean distance from `due` and standard deviation, in points, of windows that are made of `factor`
 * of the load's; returns how many there are. */
size_t bench_windows_judge(const struct bench_report *report, size_t factor, double scale,
    double due, double *ret_error, double *ret_deviation);

/* The work per second of each of the loads from `after_ns` after the last began until the first
 * ended. False where they did not work at the same time. */
bool bench_windows_together(
    const struct bench_report *reports, size_t count, uint64_t after_ns, double *ret_works);

/* The longest time from then on in which none of its kernels ended, in milliseconds. */
double bench_windows_gap_ms(const struct bench_report *report, uint64_t from_ns);

#endif
