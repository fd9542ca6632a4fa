/* SPDX-License-Identifier: Apache-2.0 */
/* The card's own figure: what NVML says, asked by a process without a library, is in use of the
 * whole card, and what of that it lists as a process's. Between begin and finish. */
#ifndef VGPU_BENCH_CARD_H
#define VGPU_BENCH_CARD_H

#include "bench/bench.h"

void bench_card_begin(struct bench *bench);
void bench_card_finish(void);

/* Why the figure is not known; NULL where nothing went wrong so far. */
const char *bench_card_missing(void);

/* The card's figure in MiB at this moment; negative where it is not known. */
double bench_card_now_mib(void);

/* The card's figure in MiB when it stands still, which is waited for, for half a second at most:
 * what ended a moment ago may still be on it. Negative where it is not known. ret_own, where it is
 * not NULL: what NVML lists for the processes together, negative where it lists not all of them. */
double bench_card_mib(const struct bench_process *processes, size_t count, double *ret_own);

#endif
