/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the bench cannot do without. */
#ifndef VGPU_BENCH_RESULTS_NEED_H
#define VGPU_BENCH_RESULTS_NEED_H

/* The memory; where it is NULL the program ends after one line. */
void *bench_need(void *memory);

#endif
