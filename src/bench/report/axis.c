/* SPDX-License-Identifier: Apache-2.0 */
/* Round ticks. */
#include "bench/report/axis.h"

#include <math.h>
#include <string.h>

/* Beyond these, differences overflow and powers of ten are 0; nothing that is measured lies there.
 */
#define VALUE_MOST 1e300
#define VALUE_LEAST 1e-300

void axis_span_add(struct axis_span *span, double value)
{
    value = fabs(value) < VALUE_LEAST ? 0 : fmax(-VALUE_MOST, fmin(VALUE_MOST, value));
    span->low = span->seen ? fmin(span->low, value) : value;
    span->high = span->seen ? fmax(span->high, value) : value;
    span->seen = true;
}

static void make_logarithmic(struct axis *axis, unsigned ticks_most)
{
    int first = (int)floor(log10(axis->low) + 1e-9), last = (int)ceil(log10(axis->high) - 1e-9);
    int step = (last - first + (int)ticks_most - 1) / (int)ticks_most;
    axis->logarithmic = true;
    for (int power = first; power <= last && axis->tick_count < AXIS_TICKS; power += step)
        axis->ticks[axis->tick_count++] = pow(10, power);
    axis->low = pow(10, first);
    axis->high = pow(10, last);
}

/* Of at most two decades: 1, 2 and 5 of each, and no further than the values go. */
static void make_factors(struct axis *axis)
{
    static const double factors[] = {1, 2, 5};
    int power = (int)floor(log10(axis->low));
    double before = 0;
    axis->logarithmic = true;
    for (unsigned i = 0; axis->tick_count < AXIS_TICKS && before < axis->high; i++) {
        double tick = factors[i % 3] * pow(10, power + (int)(i / 3));
        if (tick > axis->low && !axis->tick_count && before > 0)
            axis->ticks[axis->tick_count++] = before;
        if (axis->tick_count)
            axis->ticks[axis->tick_count++] = tick;
        before = tick;
    }
    axis->low = axis->ticks[0];
    axis->high = axis->ticks[axis->tick_count - 1];
}

static double round_step(double least)
{
    static const double steps[] = {1, 2, 2.5, 5, 10};
    double power = pow(10, floor(log10(least)));
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (steps[i] * power >= least * (1 - 1e-9))
            return steps[i] * power;
    }
    return 10 * power;
}

/* A tick that is there for a little only would leave much of the axis empty: the axis ends where
 * the values do. */
static void drop_ends(struct axis *axis, double low, double high, double little)
{
    axis->low = axis->ticks[0];
    axis->high = axis->ticks[axis->tick_count - 1];
    if (axis->tick_count > 2 && high - axis->ticks[axis->tick_count - 2] < little) {
        axis->tick_count--;
        axis->high = fmax(high, axis->ticks[axis->tick_count - 1]);
    }
    if (axis->tick_count > 2 && axis->ticks[1] - low < little) {
        axis->tick_count--;
        memmove(axis->ticks, axis->ticks + 1, axis->tick_count * sizeof(axis->ticks[0]));
        axis->low = fmin(low, axis->ticks[0]);
    }
}

static void make_linear(struct axis *axis, unsigned ticks_most)
{
    if (axis->high <= axis->low) { /* one value: it stands in the middle, or 0 at the begin */
        double around = axis->low != 0 ? fabs(axis->low) / 2 : 1;
        axis->low -= axis->low != 0 ? around : 0;
        axis->high += around;
    }
    double low = axis->low, high = axis->high;
    double step = round_step((high - low) / ticks_most);
    double first = floor(axis->low / step + 1e-9);
    for (unsigned i = 0; i < AXIS_TICKS; i++) {
        axis->ticks[axis->tick_count++] = (first + i) * step;
        if ((first + i) * step >= axis->high - step * 1e-9)
            break;
    }
    drop_ends(axis, low, high, step / 4);
}

struct axis axis_make(const struct axis_span *span, enum axis_kind kind, unsigned ticks_most)
{
    struct axis axis = {.low = span->seen ? span->low : 0, .high = span->seen ? span->high : 1};
    double factor = axis.low > 0 ? axis.high / axis.low : 1;
    if (factor > 100) {
        make_logarithmic(&axis, ticks_most);
        return axis;
    }
    if (kind == AXIS_RATIO && factor > 3) {
        make_factors(&axis);
        return axis;
    }
    if (kind == AXIS_ZERO) {
        axis.low = fmin(axis.low, 0);
        axis.high = fmax(axis.high, 0);
    }
    make_linear(&axis, ticks_most);
    return axis;
}

double axis_part(const struct axis *axis, double value)
{
    double part;
    if (axis->logarithmic)
        part = value > 0 ? log(value / axis->low) / log(axis->high / axis->low) : 0;
    else
        part = (value - axis->low) / (axis->high - axis->low);
    return fmax(0, fmin(1, part));
}

bool axis_beyond(const struct axis *axis, double value)
{
    return value > axis->high || value < axis->low;
}
