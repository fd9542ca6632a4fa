/* SPDX-License-Identifier: Apache-2.0 */
/* Figures side by side, and numbers in words. */
#include "bench/report/view.h"

#include "bench/results/need.h"
#include "bench/report/noise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which belong together ---- */

static bool same_family(const struct bench_figure *one, const struct bench_figure *other)
{
    return !strcmp(one->id, other->id) && !strcmp(one->title, other->title) &&
           !strcmp(one->definition, other->definition) && !strcmp(one->unit, other->unit) &&
           one->better == other->better;
}

static struct report_family *family_of(
    struct report_families *families, const struct bench_figure *figure)
{
    for (size_t i = 0; i < families->count; i++) {
        if (same_family(families->list[i].figures[0], figure))
            return &families->list[i];
    }
    families->list =
        bench_need(realloc(families->list, (families->count + 1) * sizeof(*families->list)));
    struct report_family *family = &families->list[families->count++];
    *family = (struct report_family){.diagonal = true};
    return family;
}

/* One target is a line across all rows; only several make a diagonal. */
static bool one_target(const struct report_family *family)
{
    for (size_t i = 1; i < family->count; i++) {
        if (family->figures[i]->target != family->figures[0]->target)
            return false;
    }
    return true;
}

struct report_families report_families_make(const struct bench_results *results, const char *group)
{
    struct report_families families = {0};
    for (size_t i = 0; i < results->figure_count; i++) {
        const struct bench_figure *figure = &results->figures[i];
        if (strcmp(figure->group, group) != 0)
            continue;
        struct report_family *family = family_of(&families, figure);
        family->figures =
            bench_need(realloc(family->figures, (family->count + 1) * sizeof(void *)));
        family->figures[family->count++] = figure;
        family->diagonal &=
            figure->better == BENCH_TARGET && figure->has_target && figure->target >= 0;
    }
    for (size_t i = 0; i < families.count; i++)
        families.list[i].diagonal &= !one_target(&families.list[i]);
    return families;
}

void report_families_finish(struct report_families *families)
{
    for (size_t i = 0; i < families->count; i++)
        free(families->list[i].figures);
    free(families->list);
    *families = (struct report_families){0};
}

static const struct {
    const char *group, *name, *question;
} groups[] = {
    {"cost", "Cost",
        "What does a library add to each call, to a process’s start, and in the background?"},
    {"memory", "Memory isolation",
        "Does a memory limit hold for every kind of allocation, and what happens at it?"},
    {"compute", "Compute isolation",
        "Does a program get the share of GPU time that its limit says, no more and no less?"},
    {"tenants", "Tenants",
        "Do neighbours on one GPU each get their part, and how much do they disturb each other?"},
    {"work", "Real work", "What is left of the speed of real programs?"},
};

const char *report_group_question(const char *group)
{
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        if (!strcmp(groups[i].group, group))
            return groups[i].question;
    }
    return "";
}

const char *report_group_name(const char *group)
{
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        if (!strcmp(groups[i].group, group))
            return groups[i].name;
    }
    return group;
}

/* ---- how a value stands ---- */

const struct bench_result *report_measured(const struct bench_figure *figure, const char *subject)
{
    const struct bench_result *result = bench_figure_result(figure, subject);
    return result && !result->missing ? result : NULL;
}

static enum report_verdict judge(
    const struct bench_figure *figure, const struct bench_result *result)
{
    if (!figure->has_target || figure->better == BENCH_TARGET)
        return REPORT_NONE;
    if (result->sample_count < 2)
        return REPORT_UNCLEAR;
    bool lower = figure->better == BENCH_LOWER;
    struct noise noise =
        noise_of(result->samples, result->rounds, result->sample_count, figure->turns);
    if (lower ? noise.high <= figure->target : noise.low >= figure->target)
        return REPORT_MET;
    if (lower ? noise.low > figure->target : noise.high < figure->target)
        return REPORT_MISSED;
    return REPORT_UNCLEAR;
}

static bool overlap(const struct bench_result *one, const struct bench_result *other)
{
    return one->sample_count > 1 && other->sample_count > 1 && one->low <= other->high &&
           other->low <= one->high;
}

/* Of what was measured in turn the ratios are of the same round: machines and cores differ by more
 * than libraries do. Else the medians are divided. */
static void stand_beside(struct report_stand *stand, const struct bench_figure *figure,
    const struct bench_result *native, const struct bench_result *result)
{
    struct noise_ratios ratios = noise_ratios(figure, native, result);
    const double *values = ratios.values;
    const size_t count = ratios.count;
    stand->ratio = count ? bench_quantile(values, count, 0.5) : result->value / native->value;
    stand->ratio_low = count ? bench_quantile(values, count, 0.1) : result->low / native->value;
    stand->ratio_high = count ? bench_quantile(values, count, 0.9) : result->high / native->value;
    stand->has_ratio = isfinite(stand->ratio);
    stand->may_be_none = overlap(native, result);
    if (count >= NOISE_LEAST) {
        struct noise noise = noise_of(values, ratios.rounds, count, figure->turns);
        stand->may_be_none = noise.low <= 1 && noise.high >= 1;
    }
    noise_ratios_finish(&ratios);
}

/* Distances and deviations, in points, are small or large, and no multiples of each other. */
static bool has_multiples(const struct bench_figure *figure)
{
    return figure->better != BENCH_TARGET && strcmp(figure->unit, "points") != 0;
}

struct report_stand report_stand_of(
    const struct bench_figure *figure, const struct bench_result *result)
{
    struct report_stand stand = {0};
    if (!strcmp(result->subject, BENCH_NATIVE))
        return stand;
    stand.verdict = judge(figure, result);
    stand.has_off = figure->better == BENCH_TARGET && figure->has_target;
    stand.off = result->value - figure->target;
    const struct bench_result *native = report_measured(figure, BENCH_NATIVE);
    if (native && has_multiples(figure) && native->value > 0 && result->value >= 0)
        stand_beside(&stand, figure, native, result);
    return stand;
}

const char *report_missing_reason(const struct bench_result *result)
{
    return result && result->missing && *result->missing ? result->missing : "no result";
}

const char *report_missing_words(
    const struct bench_figure *const *figures, size_t count, const char *subject)
{
    static const struct {
        const char *reason, *words;
    } known[] = {{BENCH_NO_LIMIT, "no limit"}, {BENCH_COMPARED, "is compared with"}};
    for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
        size_t found = 0;
        for (size_t i = 0; i < count; i++) {
            const struct bench_result *result = bench_figure_result(figures[i], subject);
            found += !strcmp(report_missing_reason(result), known[k].reason);
        }
        if (count && found == count)
            return known[k].words;
    }
    return "not measured";
}

struct report_counts report_count(
    const struct bench_results *results, const char *group, const char *subject)
{
    struct report_counts counts = {0};
    for (size_t i = 0; i < results->figure_count; i++) {
        const struct bench_figure *figure = &results->figures[i];
        if (strcmp(figure->group, group) != 0)
            continue;
        const struct bench_result *result = report_measured(figure, subject);
        enum report_verdict verdict =
            result ? report_stand_of(figure, result).verdict : REPORT_NONE;
        counts.measured += result != NULL;
        counts.missing += !result;
        counts.met += verdict == REPORT_MET;
        counts.missed += verdict == REPORT_MISSED;
        counts.unclear += verdict == REPORT_UNCLEAR;
    }
    return counts;
}

const char *report_unclear_words(const struct bench_result *result)
{
    return result->sample_count < 2 ? "not clear: a single sample"
                                    : "not clear: the target is within the median's noise";
}

const char *report_better_words(enum bench_better better)
{
    static const char *const words[] = {
        [BENCH_LOWER] = "lower is better",
        [BENCH_HIGHER] = "higher is better",
        [BENCH_TARGET] = "is to meet its target",
    };
    return words[better];
}

/* ---- numbers ---- */

/* Commas between the thousands of what snprintf made without any. */
static void part_thousands(char text[REPORT_NUMBER])
{
    char plain[REPORT_NUMBER];
    snprintf(plain, sizeof(plain), "%s", text);
    size_t digits = strspn(plain, "0123456789"), used = 0;
    for (size_t i = 0; plain[i] && used + 2 < REPORT_NUMBER; i++) {
        if (i && i < digits && (digits - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = plain[i];
    }
    text[used] = '\0';
}

/* 1.2e-07 as 1.2e-7, 1.2e+12 as 1.2e12. */
static void shorten_exponent(char *text)
{
    char *exponent = strchr(text, 'e');
    if (!exponent)
        return;
    long power = strtol(exponent + 1, NULL, 10);
    snprintf(exponent + 1, 8, "%ld", power);
}

char *report_number(char text[REPORT_NUMBER], double value)
{
    double size = fabs(value);
    char *at = text;
    if (value < 0)
        *at++ = '-';
    char digits[REPORT_NUMBER];
    if (size != 0 && (size >= 1e9 || size < 1e-3)) {
        snprintf(digits, sizeof(digits), "%.3g", size);
        shorten_exponent(digits);
    } else if (size == floor(size) || size >= 1000) {
        snprintf(digits, sizeof(digits), "%.0f", size);
    } else {
        int before = (int)floor(log10(size)) + (size < 1);
        snprintf(digits, sizeof(digits), "%.*f", 3 - before, size);
    }
    if (!strchr(digits, 'e'))
        part_thousands(digits);
    snprintf(at, REPORT_NUMBER - 1, "%.*s", REPORT_NUMBER - 2, digits);
    return text;
}

char *report_signed(char text[REPORT_NUMBER], double value)
{
    char number[REPORT_NUMBER];
    if (fabs(value) < 1 && value != 0)
        snprintf(number, sizeof(number), "%.3f", value);
    else
        report_number(number, value);
    snprintf(text, REPORT_NUMBER, "%s%.30s", value > 0 ? "+" : "", number);
    return text;
}

char *report_ratio(char text[REPORT_NUMBER], double ratio)
{
    if (ratio >= 1000)
        return report_number(text, ratio);
    if (ratio < 0.01 && ratio > 0)
        snprintf(text, REPORT_NUMBER, "%.1g", ratio);
    else
        snprintf(text, REPORT_NUMBER, "%.*f", ratio < 10 ? 3 : ratio < 100 ? 2 : 1, ratio);
    shorten_exponent(text);
    return text;
}
