/* SPDX-License-Identifier: Apache-2.0 */
/* What the bench is asked to do. */
#ifndef VGPU_BENCH_OPTIONS_H
#define VGPU_BENCH_OPTIONS_H

#include "bench/bench.h"

/* Fills in the options with what the arguments say. Returns whether to go on; where not,
 * *ret_status is the exit status, and help or the reason was printed. `asked` is to be finished in
 * either case. */
bool bench_options_parse(int argc, char **argv, struct bench_options *options, int *ret_status);

#endif
