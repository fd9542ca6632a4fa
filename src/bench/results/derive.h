/* SPDX-License-Identifier: Apache-2.0 */
/* Figures that follow from others, sample by sample: they are made of a run's results as of those
 * of a file, so that files of versions which lacked them are judged like new ones. */
#ifndef VGPU_BENCH_RESULTS_DERIVE_H
#define VGPU_BENCH_RESULTS_DERIVE_H

#include "bench/results/results.h"

/* Adds those that are not there and of which the figures are that they follow from. What is left of
 * a limit that was passed is missing, also where a file has it. */
void bench_results_derive(struct bench_results *results);

#endif
