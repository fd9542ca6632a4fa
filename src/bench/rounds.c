/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/rounds.h"

#include "bench/results/need.h"

#include <stdlib.h>
#include <string.h>

#define TURNS_MOST 1000 /* in a round */

unsigned bench_moment(unsigned round, unsigned turn)
{
    return round * TURNS_MOST + turn;
}

const double *bench_sample_of(const struct bench_gathered *gathered, unsigned moment)
{
    for (size_t i = 0; i < gathered->count; i++) {
        if (gathered->moments[i] == moment)
            return &gathered->samples[i];
    }
    return NULL;
}

/* How many earlier turns of its round gave a subject a sample: others measured another figure. */
static unsigned place_in_round(
    const struct bench_measured *measured, size_t subjects, unsigned moment)
{
    unsigned count = 0;
    for (unsigned at = moment - moment % TURNS_MOST; at < moment; at++) {
        bool any = false;
        for (size_t s = 0; !any && s < subjects; s++)
            any = bench_sample_of(&measured->of[s], at) != NULL;
        count += any;
    }
    return count;
}

/* How many turns of a round are the figure's: a process's, or more where it has several. */
static unsigned turns_of_round(const struct bench_measured *measured, size_t subjects)
{
    unsigned turns = measured->texts.turns;
    for (size_t s = 0; s < subjects; s++) {
        for (size_t i = 0; i < measured->of[s].count; i++) {
            unsigned place = place_in_round(measured, subjects, measured->of[s].moments[i]);
            turns = place >= turns ? place + 1 : turns;
        }
    }
    return turns;
}

static bool same_moments(const struct bench_measured *measured, size_t subjects)
{
    const struct bench_gathered *first = NULL;
    for (size_t s = 0; s < subjects; s++) {
        const struct bench_gathered *gathered = &measured->of[s];
        if (!gathered->count)
            continue;
        if (first &&
            (gathered->count != first->count || memcmp(gathered->moments, first->moments,
                                                    first->count * sizeof(*first->moments)) != 0))
            return false;
        first = gathered;
    }
    return true;
}

void bench_rounds_set(
    const struct bench *bench, const struct bench_measured *measured, struct bench_figure *figure)
{
    const size_t subjects = bench->results.subject_count;
    if (!figure->turns || same_moments(measured, subjects))
        return;
    const unsigned turns = turns_of_round(measured, subjects);
    for (size_t s = 0; s < subjects; s++) {
        const struct bench_gathered *gathered = &measured->of[s];
        unsigned *rounds = bench_need(calloc(gathered->count + 1, sizeof(*rounds)));
        for (size_t i = 0; i < gathered->count; i++)
            rounds[i] = gathered->moments[i] / TURNS_MOST * turns +
                        place_in_round(measured, subjects, gathered->moments[i]);
        if (gathered->count)
            bench_figure_set_rounds(figure, bench->results.subjects[s].label, rounds);
        free(rounds);
    }
}
