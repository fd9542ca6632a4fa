/* SPDX-License-Identifier: Apache-2.0 */
/* The median of samples, for the programs in this folder. */
#ifndef VGPU_BENCH_MEDIAN_H
#define VGPU_BENCH_MEDIAN_H

#include <stdlib.h>

static inline int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts them. */
static inline double median(double *values, unsigned count)
{
    qsort(values, count, sizeof(*values), ascending);
    return values[count / 2];
}

#endif
