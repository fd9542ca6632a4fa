/* SPDX-License-Identifier: Apache-2.0 */
/* How far a median may lie from that of what its samples are drawn from. Pure functions. */
#ifndef VGPU_BENCH_REPORT_NOISE_H
#define VGPU_BENCH_REPORT_NOISE_H

#include "bench/results/results.h"

#define NOISE_LEAST 5 /* samples; fewer say no more than from where to where they lie */

struct noise {
    double low, high;
};

/* What each sample is of native's in the same round; of `count` rounds. */
struct noise_ratios {
    double *values;
    unsigned *rounds;
    size_t count;
};

/* Where the median lies with a confidence of 95 %, by the binomial distribution, as a normal one,
 * of how many samples lie below it; of fewer than NOISE_LEAST from the least to the most. Some
 * processes are slow for all of their lives: where this number of consecutive rounds is of
 * one process (`turns` above 1), the interval is wide enough for that of the processes' medians,
 * too. `rounds`: of the samples, in their order; NULL: the n-th is of the n-th. `count` is 1 or
 * more. */
struct noise noise_of(const double *samples, const unsigned *rounds, size_t count, unsigned turns);

/* Of the rounds that both have; none where they were not measured in turn, have no round in common,
 * or native had no time in one. To be finished. */
struct noise_ratios noise_ratios(const struct bench_figure *figure,
    const struct bench_result *native, const struct bench_result *result);
void noise_ratios_finish(struct noise_ratios *ratios);

#endif
