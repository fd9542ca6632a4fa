/* SPDX-License-Identifier: Apache-2.0 */
/* An axis of a chart: which values it spans, where its ticks are, and at which part of its length a
 * value lies. Pure functions. */
#ifndef VGPU_BENCH_REPORT_AXIS_H
#define VGPU_BENCH_REPORT_AXIS_H

#include <stdbool.h>

#define AXIS_TICKS 16

struct axis {
    double low, high; /* its ends: those of the first and the last tick, or a little more */
    bool logarithmic;
    unsigned tick_count;
    double ticks[AXIS_TICKS];
};

/* What is to be on it. Begin with `seen` false. */
struct axis_span {
    bool seen;
    double low, high;
};

/* Widens the span to the value. */
void axis_span_add(struct axis_span *span, double value);

enum axis_kind {
    AXIS_ZERO,  /* a linear one has 0 on it */
    AXIS_RATIO, /* around 1; logarithmic from a factor of 3 on */
};

/* An axis with round ticks, `ticks_most` (2 to 8) of them or one more. Logarithmic where all values
 * are above 0 and span more than two decades. */
struct axis axis_make(const struct axis_span *span, enum axis_kind kind, unsigned ticks_most);

/* 0 to 1, also for values that lie beyond. */
double axis_part(const struct axis *axis, double value);

/* Whether the value lies beyond its end or, where that is not what a logarithmic axis can show,
 * before its begin. */
bool axis_beyond(const struct axis *axis, double value);

#endif
