/* SPDX-License-Identifier: Apache-2.0 */
/* `vgpu-bench --definitions`: what each figure is, for documents; nothing is measured. */
#include "bench/bench.h"
#include "bench/results/derive.h"

#include <stdio.h>
#include <string.h>

static void (*const groups[])(struct bench *bench) = {
    bench_cost, bench_memory, bench_compute, bench_tenants, bench_work};

int bench_definitions(void)
{
    static const struct bench_options options = {.declare = true, .scale = 1};
    static struct bench bench = {.options = &options, .memory_mib = 1 << 20};
    bench.results.full = true;
    bench_results_add_subject(&bench.results, BENCH_NATIVE, NULL);
    bench_results_add_subject(&bench.results, "vgpu", "libvgpu.so");
    for (size_t i = 0; bench_groups[i]; i++)
        bench_run_group(&bench, bench_groups[i], groups[i], 0);
    bench_results_derive(&bench.results);
    for (size_t i = 0; i < bench.results.figure_count; i++) {
        const struct bench_figure *figure = &bench.results.figures[i];
        if (bench_results_find(&bench.results, figure->id, NULL) == figure)
            printf("%s\t%s\t%s\t%s\n", figure->id, figure->group, figure->unit, figure->definition);
    }
    bench_results_finish(&bench.results);
    return fflush(stdout) == 0 ? 0 : 1;
}
