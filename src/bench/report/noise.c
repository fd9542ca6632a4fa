/* SPDX-License-Identifier: Apache-2.0 */
/* Intervals of medians. */
#include "bench/report/noise.h"

#include "bench/results/need.h"

#include <math.h>
#include <stdlib.h>

static struct noise interval(const double *values, size_t count)
{
    double half = count < NOISE_LEAST ? 0.5 : 0.98 / sqrt((double)count);
    return (struct noise){
        bench_quantile(values, count, 0.5 - half), bench_quantile(values, count, 0.5 + half)};
}

/* Where the samples of the process end that begin there. */
static size_t process_end(const unsigned *rounds, size_t count, unsigned turns, size_t begin)
{
    size_t end = begin + 1;
    while (rounds ? end < count && rounds[end] / turns == rounds[begin] / turns : end % turns)
        end++;
    return end;
}

struct noise noise_of(const double *samples, const unsigned *rounds, size_t count, unsigned turns)
{
    struct noise noise = interval(samples, count);
    if (turns < 2 || (!rounds && count % turns))
        return noise;
    size_t processes = 0;
    double *medians = bench_need(calloc(count, sizeof(*medians)));
    for (size_t i = 0, end; i < count; i = end) {
        end = process_end(rounds, count, turns, i);
        medians[processes++] = bench_quantile(samples + i, end - i, 0.5);
    }
    struct noise between = interval(medians, processes);
    free(medians);
    return (struct noise){fmin(noise.low, between.low), fmax(noise.high, between.high)};
}

struct noise_ratios noise_ratios(const struct bench_figure *figure,
    const struct bench_result *native, const struct bench_result *result)
{
    struct noise_ratios ratios = {0};
    size_t count = result->sample_count;
    if (!bench_results_pair(figure, native, result))
        return ratios;
    ratios.values = bench_need(calloc(count, sizeof(*ratios.values)));
    ratios.rounds = bench_need(calloc(count, sizeof(*ratios.rounds)));
    for (size_t i = 0; i < count; i++) {
        unsigned round = bench_result_round(result, i);
        const double *alone = bench_result_in(native, round);
        double ratio = !alone ? 0 : *alone > 0 ? result->samples[i] / *alone : NAN;
        if (!isfinite(ratio)) {
            noise_ratios_finish(&ratios);
            return ratios;
        }
        if (!alone)
            continue;
        ratios.rounds[ratios.count] = round;
        ratios.values[ratios.count++] = ratio;
    }
    return ratios;
}

void noise_ratios_finish(struct noise_ratios *ratios)
{
    free(ratios->values);
    free(ratios->rounds);
    *ratios = (struct noise_ratios){0};
}
