/* SPDX-License-Identifier: Apache-2.0 */
/* Intervals of medians. */
#include "bench/report_noise.h"

#include "bench/need.h"

#include <math.h>
#include <stdlib.h>

static struct noise interval(const double *values, size_t count)
{
    double half = count < NOISE_LEAST ? 0.5 : 0.98 / sqrt((double)count);
    return (struct noise){
        bench_quantile(values, count, 0.5 - half), bench_quantile(values, count, 0.5 + half)};
}

struct noise noise_of(const double *samples, size_t count, unsigned turns)
{
    struct noise noise = interval(samples, count);
    if (turns < 2 || count % turns)
        return noise;
    size_t processes = count / turns;
    double *medians = bench_need(calloc(processes, sizeof(*medians)));
    for (size_t i = 0; i < processes; i++)
        medians[i] = bench_quantile(samples + i * turns, turns, 0.5);
    struct noise between = interval(medians, processes);
    free(medians);
    return (struct noise){fmin(noise.low, between.low), fmax(noise.high, between.high)};
}

double *noise_ratios(const struct bench_figure *figure, const struct bench_result *native,
    const struct bench_result *result)
{
    size_t count = result->sample_count;
    if (!figure->turns || native->sample_count != count)
        return NULL;
    double *ratios = bench_need(calloc(count, sizeof(*ratios)));
    for (size_t i = 0; i < count; i++) {
        ratios[i] = native->samples[i] > 0 ? result->samples[i] / native->samples[i] : NAN;
        if (!isfinite(ratios[i])) {
            free(ratios);
            return NULL;
        }
    }
    return ratios;
}
