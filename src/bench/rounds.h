/* SPDX-License-Identifier: Apache-2.0 */
/* Which samples of several subjects belong together, where some of them lost turns. */
#ifndef VGPU_BENCH_ROUNDS_H
#define VGPU_BENCH_ROUNDS_H

#include "bench/bench.h"

/* A number for a turn of a round, by which samples of the same are found. */
unsigned bench_moment(unsigned round, unsigned turn);

/* The sample of that moment; NULL where there is none. */
const double *bench_sample_of(const struct bench_gathered *gathered, unsigned moment);

/* Says of which round each sample of the figure is, where it was measured in turn and the subjects'
 * samples are not of the same ones. `figure` has what was measured. */
void bench_rounds_set(
    const struct bench *bench, const struct bench_measured *measured, struct bench_figure *figure);

#endif
