/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/results/derive.h"

#include "bench/results/need.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SUM_MOST 90 /* percent: the sum of limits up to which each tenant's share is promised */

struct rule {
    const char *from;
    struct bench_figure texts;                         /* the case is that of what it is from */
    bool (*applies)(const struct bench_figure *from);  /* NULL: always */
    double (*target)(const struct bench_figure *from); /* NULL: as the texts say */
    const char *native;                                /* why native has none */
    /* Fills one for each sample of the result, NAN for what is left out, or returns why it cannot.
     */
    const char *(*derive)(const struct bench_results *results, const struct bench_figure *from,
        const struct bench_result *result, double *samples);
};

static const struct bench_result *native_of(const struct bench_figure *figure)
{
    const struct bench_result *native = figure ? bench_figure_result(figure, BENCH_NATIVE) : NULL;
    return native && !native->missing ? native : NULL;
}

/* ---- tenants.error ---- */

/* The case is "30/60, first". */
static bool sum_is_promised(const struct bench_figure *share)
{
    unsigned long sum = 0;
    const char *at = share->condition;
    for (char *rest; *at && *at != ','; at = *rest == '/' ? rest + 1 : rest) {
        sum += strtoul(at, &rest, 10);
        if (rest == at)
            return false;
    }
    return sum > 0 && sum <= SUM_MOST;
}

static const char *derive_error(const struct bench_results *results,
    const struct bench_figure *share, const struct bench_result *result, double *samples)
{
    (void)results;
    for (size_t i = 0; i < result->sample_count; i++)
        samples[i] = fabs(result->samples[i] - share->target);
    return NULL;
}

/* ---- cost.cpu.idle.added ---- */

static const char *derive_added(const struct bench_results *results,
    const struct bench_figure *idle, const struct bench_result *result, double *samples)
{
    const struct bench_result *native = native_of(idle);
    (void)results;
    if (!native)
        return BENCH_NO_NATIVE;
    bool paired = bench_results_pair(idle, native, result);
    for (size_t i = 0; i < result->sample_count; i++) {
        const double *alone = bench_result_in(native, bench_result_round(result, i));
        samples[i] = result->samples[i] - (!paired ? native->value : alone ? *alone : NAN);
    }
    return NULL;
}

/* ---- memory.unused ---- */

static double piece_of_limit(const struct bench_figure *card)
{
    return card->target / BENCH_PIECES;
}

/* What is in no process's name natively, of that kind or else of cuMemAlloc. */
static const char *derive_unused(const struct bench_results *results,
    const struct bench_figure *card, const struct bench_result *result, double *samples)
{
    const char *id = "memory.driver";
    const struct bench_result *native = native_of(bench_results_find(results, id, card->condition));
    if (!native)
        native = native_of(bench_results_find(results, id, "cuMemAlloc"));
    if (!native)
        return BENCH_NOT_SUBTRACTED;
    for (size_t i = 0; i < result->sample_count; i++) {
        samples[i] = card->target - (result->samples[i] - fmax(0, native->value));
        if (samples[i] < -BENCH_PAGES_MIB)
            return BENCH_PASSED;
    }
    return NULL;
}

static const struct rule rules[] = {
    {"tenants.share",
        {.id = (char *)"tenants.error",
            .title = (char *)"distance of each tenant's share from its limit",
            .definition = (char *)"How far the share of each tenant was from its limit, where the "
                                  "limits of all add up to 90 or less.",
            .unit = (char *)"points",
            .better = BENCH_LOWER,
            .has_target = true,
            .target = 1},
        sum_is_promised, NULL, BENCH_NO_LIMIT, derive_error},
    {"cost.cpu.idle",
        {.id = (char *)"cost.cpu.idle.added",
            .title = (char *)"added background CPU, idle",
            .definition = (char *)"What the background threads of an idle program take more than "
                                  "natively in the same round.",
            .unit = (char *)"% of a core",
            .better = BENCH_LOWER,
            .has_target = true,
            .target = 0},
        NULL, NULL, BENCH_COMPARED, derive_added},
    {"memory.card",
        {.id = (char *)"memory.unused",
            .title = (char *)"left of the limit at the refusal",
            .definition =
                (char *)"How much of the limit was not on the card when the program was refused: "
                        "the limit less the card's figure, of which what is in no process's name "
                        "natively is none. Target: 1/64 of it, the "
                        "first piece that the program asks for; a pool of the driver's grows by "
                        "less. Missing where the limit was passed.",
            .unit = (char *)"MiB",
            .better = BENCH_LOWER,
            .has_target = true},
        NULL, piece_of_limit, BENCH_NO_LIMIT, derive_unused},
};

/* Adds those that are numbers, each of its sample's round. */
static void add_derived(struct bench_figure *to, const struct bench_result *result, double *samples)
{
    size_t count = 0;
    unsigned *rounds = bench_need(calloc(result->sample_count + 1, sizeof(*rounds)));
    for (size_t i = 0; i < result->sample_count; i++) {
        if (!isfinite(samples[i]))
            continue;
        rounds[count] = bench_result_round(result, i);
        samples[count++] = samples[i];
    }
    if (count) {
        unsigned long each = result->repetitions / result->sample_count;
        unsigned long less = each * (result->sample_count - count);
        bench_figure_measured(to, result->subject, samples, count, result->repetitions - less);
        if (result->rounds)
            bench_figure_set_rounds(to, result->subject, rounds);
    } else {
        bench_figure_missing(to, result->subject, BENCH_APART);
    }
    free(rounds);
}

static void derive_result(const struct bench_results *results, const struct rule *rule,
    const struct bench_figure *from, const struct bench_result *result, struct bench_figure *to)
{
    const char *missing = strcmp(result->subject, BENCH_NATIVE) ? result->missing : rule->native;
    double *samples = bench_need(calloc(result->sample_count + 1, sizeof(*samples)));
    if (!missing)
        missing = rule->derive(results, from, result, samples);
    if (missing)
        bench_figure_missing(to, result->subject, missing);
    else
        add_derived(to, result, samples);
    free(samples);
}

/* Adding a figure moves the others. */
static void derive_figure(struct bench_results *results, const struct rule *rule, size_t place)
{
    const struct bench_figure *from = &results->figures[place];
    struct bench_figure texts = rule->texts;
    if (bench_results_find(results, texts.id, from->condition) ||
        (rule->applies && !rule->applies(from)))
        return;
    texts.group = from->group;
    texts.condition = from->condition;
    texts.turns = from->turns;
    if (rule->target)
        texts.target = rule->target(from);
    struct bench_figure *to = bench_results_add_figure(results, &texts);
    from = &results->figures[place];
    for (size_t i = 0; i < from->result_count; i++)
        derive_result(results, rule, from, &from->results[i], to);
}

/* Files of earlier versions have less than nothing left of a limit that was passed. */
static void drop_passed(struct bench_figure *unused)
{
    for (size_t i = 0; i < unused->result_count; i++) {
        struct bench_result *result = &unused->results[i];
        bool passed = false;
        for (size_t k = 0; k < result->sample_count; k++)
            passed |= result->samples[k] < -BENCH_PAGES_MIB;
        if (passed) {
            char *subject = bench_need(strdup(result->subject));
            bench_figure_missing(unused, subject, BENCH_PASSED);
            free(subject);
        }
    }
}

void bench_results_derive(struct bench_results *results)
{
    const size_t count = results->figure_count;
    for (size_t i = 0; i < count; i++) {
        for (size_t r = 0; r < sizeof(rules) / sizeof(rules[0]); r++) {
            if (!strcmp(results->figures[i].id, rules[r].from))
                derive_figure(results, &rules[r], i);
        }
        if (!strcmp(results->figures[i].id, "memory.unused"))
            drop_passed(&results->figures[i]);
    }
    bench_results_order(results);
}
