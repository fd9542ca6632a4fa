/* SPDX-License-Identifier: Apache-2.0 */
/* How far a median may lie from that of what its samples are drawn from. Pure functions. */
#ifndef VGPU_BENCH_REPORT_NOISE_H
#define VGPU_BENCH_REPORT_NOISE_H

#include "bench/results.h"

#define NOISE_LEAST 5 /* samples; fewer say no more than from where to where they lie */

struct noise {
    double low, high;
};

/* Where the median lies with a confidence of 95 %, by the binomial distribution, as a normal one,
 * of how many samples lie below it; of fewer than NOISE_LEAST from the least to the most. Some
 * processes are slow for all of their lives: where so many samples that follow each other are of
 * one process (`turns` above 1), the interval is wide enough for that of the processes' medians,
 * too. `count` is 1 or more. */
struct noise noise_of(const double *samples, size_t count, unsigned turns);

/* What each sample is of native's in the same round of turns: result->sample_count ratios, to be
 * freed. NULL where they were not measured in turn, or native had no time in one. */
double *noise_ratios(const struct bench_figure *figure, const struct bench_result *native,
    const struct bench_result *result);

#endif
