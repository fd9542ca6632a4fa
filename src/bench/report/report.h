/* SPDX-License-Identifier: Apache-2.0 */
/* What a run found, for people: a table on a stream, and one HTML file with charts that needs no
 * network and no script. Both follow from the results alone: the same results give the same bytes.
 * docs/bench.md says how to read them. One thread at a time. */
#ifndef VGPU_BENCH_REPORT_REPORT_H
#define VGPU_BENCH_REPORT_REPORT_H

#include "bench/results/results.h"

#include <stdio.h>

#define BENCH_REPORT_FILE "report.html"

/* Writes the HTML file whole or not at all, in the place of an earlier one. Returns 0 or -errno. */
int bench_report_write(const struct bench_results *results, const char *path)
    __attribute__((warn_unused_result));

/* How a table is to look. */
struct bench_look {
    unsigned columns; /* no line is longer */
    bool coloured;    /* by escape sequences */
};

/* As fits standard output: a terminal's width, and colours where it is one, TERM is not "dumb" and
 * NO_COLOR is not set; else COLUMNS or 120, and plain text. */
struct bench_look bench_look_here(void);

void bench_table_print(
    const struct bench_results *results, FILE *out, const struct bench_look *look);

/* The table on standard output, and the report into the directory. Returns 0, or 1 after a line on
 * standard error. */
int bench_report_show(const struct bench_results *results, const char *directory)
    __attribute__((warn_unused_result));

/* The same of a directory's results.json. Returns 0, 1, or 2 where there is none, or none that can
 * be read; standard error has a line then. */
int bench_report_again(const char *directory) __attribute__((warn_unused_result));

#endif
