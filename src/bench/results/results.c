/* SPDX-License-Identifier: Apache-2.0 */
/* The results in memory. */
#include "bench/results/results.h"

#include "base/text.h"
#include "bench/results/need.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const bench_groups[] = {"cost", "memory", "compute", "tenants", "work", NULL};

static void *grow(void *array, size_t count, size_t size)
{
    return bench_need(realloc(array, count * size));
}

/* A copy fit for a line and for JSON. */
static char *copy_text(const char *text)
{
    size_t length = text ? strlen(text) : 0;
    char *copy = grow(NULL, 4 * length + 1, 1);
    text_escape(copy, 4 * length + 1, text ? text : "", length);
    return copy;
}

/* What the loader and a library are given has to stay what it is. */
static char *copy_raw(const char *text)
{
    return bench_need(strdup(text));
}

static void replace_text(char **place, const char *text)
{
    char *copy = copy_text(text);
    free(*place);
    *place = copy;
}

static void finish_result(struct bench_result *result)
{
    free(result->subject);
    free(result->missing);
    free(result->samples);
    free(result->rounds);
    memset(result, 0, sizeof(*result));
}

static void finish_figure(struct bench_figure *figure)
{
    for (size_t i = 0; i < figure->result_count; i++)
        finish_result(&figure->results[i]);
    free(figure->results);
    free(figure->id);
    free(figure->group);
    free(figure->title);
    free(figure->definition);
    free(figure->unit);
    free(figure->condition);
    memset(figure, 0, sizeof(*figure));
}

static void finish_subject(struct bench_subject *subject)
{
    for (size_t i = 0; i < subject->setting_count; i++) {
        free(subject->environment[i].name);
        free(subject->environment[i].value);
    }
    free(subject->environment);
    free(subject->label);
    free(subject->library);
    free(subject->build);
}

void bench_results_finish(struct bench_results *results)
{
    for (size_t i = 0; i < results->subject_count; i++)
        finish_subject(&results->subjects[i]);
    for (size_t i = 0; i < results->figure_count; i++)
        finish_figure(&results->figures[i]);
    free(results->subjects);
    free(results->figures);
    free(results->machine.gpu);
    free(results->machine.driver);
    free(results->machine.cuda);
    free(results->machine.cpu);
    free(results->machine.kernel);
    free(results->machine.when);
    memset(results, 0, sizeof(*results));
}

const struct bench_figure *bench_results_find(
    const struct bench_results *results, const char *id, const char *condition)
{
    for (size_t i = 0; i < results->figure_count; i++) {
        const struct bench_figure *figure = &results->figures[i];
        if (!strcmp(figure->id, id) && (!condition || !strcmp(figure->condition, condition)))
            return figure;
    }
    return NULL;
}

const struct bench_subject *bench_results_subject(
    const struct bench_results *results, const char *label)
{
    for (size_t i = 0; i < results->subject_count; i++) {
        if (!strcmp(results->subjects[i].label, label))
            return &results->subjects[i];
    }
    return NULL;
}

const struct bench_result *bench_figure_result(
    const struct bench_figure *figure, const char *subject)
{
    for (size_t i = 0; i < figure->result_count; i++) {
        if (!strcmp(figure->results[i].subject, subject))
            return &figure->results[i];
    }
    return NULL;
}

struct bench_subject *bench_results_add_subject(
    struct bench_results *results, const char *label, const char *library)
{
    results->subjects =
        grow(results->subjects, results->subject_count + 1, sizeof(*results->subjects));
    struct bench_subject *subject = &results->subjects[results->subject_count++];
    *subject = (struct bench_subject){.label = copy_text(label)};
    if (library)
        subject->library = copy_raw(library);
    return subject;
}

void bench_subject_set_label(struct bench_subject *subject, const char *label)
{
    replace_text(&subject->label, label);
}

void bench_subject_set_build(struct bench_subject *subject, const char *build)
{
    replace_text(&subject->build, build);
}

void bench_subject_set(struct bench_subject *subject, const char *name, const char *value)
{
    subject->environment =
        grow(subject->environment, subject->setting_count + 1, sizeof(*subject->environment));
    subject->environment[subject->setting_count++] =
        (struct bench_setting){copy_raw(name), copy_raw(value)};
}

struct bench_figure *bench_results_add_figure(
    struct bench_results *results, const struct bench_figure *texts)
{
    const char *condition = texts->condition ? texts->condition : "";
    const struct bench_figure *known = bench_results_find(results, texts->id, condition);
    struct bench_figure *figure;
    if (known) {
        figure = &results->figures[known - results->figures];
        for (size_t i = 0; i < figure->result_count; i++)
            finish_result(&figure->results[i]);
        figure->result_count = 0;
    } else {
        results->figures =
            grow(results->figures, results->figure_count + 1, sizeof(*results->figures));
        figure = &results->figures[results->figure_count++];
        memset(figure, 0, sizeof(*figure));
    }
    replace_text(&figure->id, texts->id);
    replace_text(&figure->group, texts->group);
    replace_text(&figure->title, texts->title);
    replace_text(&figure->definition, texts->definition);
    replace_text(&figure->unit, texts->unit);
    replace_text(&figure->condition, condition);
    figure->better = texts->better;
    figure->has_target = texts->has_target;
    figure->target = texts->target;
    figure->turns = texts->turns;
    return figure;
}

/* The subject's result, emptied, or a new one. */
static struct bench_result *place_result(struct bench_figure *figure, const char *subject)
{
    const struct bench_result *known = bench_figure_result(figure, subject);
    struct bench_result *result;
    char *label = copy_text(subject);
    if (known) {
        result = &figure->results[known - figure->results];
        finish_result(result);
    } else {
        figure->results = grow(figure->results, figure->result_count + 1, sizeof(*figure->results));
        result = &figure->results[figure->result_count++];
        memset(result, 0, sizeof(*result));
    }
    result->subject = label;
    return result;
}

void bench_figure_measured(struct bench_figure *figure, const char *subject, const double *samples,
    size_t count, unsigned long repetitions)
{
    struct bench_result *result = place_result(figure, subject);
    result->samples = grow(NULL, count, sizeof(*samples));
    memcpy(result->samples, samples, count * sizeof(*samples));
    result->sample_count = count;
    result->repetitions = repetitions;
    result->value = bench_quantile(samples, count, 0.5);
    result->low = bench_quantile(samples, count, 0.1);
    result->high = bench_quantile(samples, count, 0.9);
}

void bench_figure_missing(struct bench_figure *figure, const char *subject, const char *reason)
{
    place_result(figure, subject)->missing = copy_text(reason);
}

void bench_figure_set_rounds(
    struct bench_figure *figure, const char *subject, const unsigned *rounds)
{
    const struct bench_result *known = bench_figure_result(figure, subject);
    struct bench_result *result = &figure->results[known - figure->results];
    result->rounds = grow(result->rounds, result->sample_count, sizeof(*rounds));
    memcpy(result->rounds, rounds, result->sample_count * sizeof(*rounds));
}

bool bench_results_pair(const struct bench_figure *figure, const struct bench_result *one,
    const struct bench_result *other)
{
    bool said = one->rounds && other->rounds;
    bool all = !one->rounds && !other->rounds && one->sample_count == other->sample_count;
    return figure->turns && (said || all);
}

unsigned bench_result_round(const struct bench_result *result, size_t sample)
{
    return result->rounds ? result->rounds[sample] : (unsigned)sample;
}

const double *bench_result_in(const struct bench_result *result, unsigned round)
{
    for (size_t i = 0; i < result->sample_count; i++) {
        if (bench_result_round(result, i) == round)
            return &result->samples[i];
    }
    return NULL;
}

static bool same_text(const char *one, const char *other)
{
    return !strcmp(one ? one : "", other ? other : "");
}

/* A file has them fit for JSON. */
static bool same_raw(const char *one, const char *other)
{
    char *first = copy_text(one), *second = copy_text(other);
    bool same = !strcmp(first, second);
    free(first);
    free(second);
    return same;
}

static bool same_subject(const struct bench_subject *one, const struct bench_subject *other)
{
    bool same =
        same_raw(one->library, other->library) && one->setting_count == other->setting_count;
    if (one->build && other->build)
        same &= !strcmp(one->build, other->build);
    for (size_t i = 0; same && i < one->setting_count; i++)
        same = same_raw(one->environment[i].name, other->environment[i].name) &&
               same_raw(one->environment[i].value, other->environment[i].value);
    return same;
}

const char *bench_results_mismatch(
    const struct bench_results *results, const struct bench_results *earlier)
{
    if (results->simulated != earlier->simulated)
        return earlier->simulated ? "it is of the simulator" : "it is of a GPU, not simulated";
    if (results->full != earlier->full)
        return earlier->full ? "it is of --full" : "it is of --quick";
    if (!same_text(results->machine.gpu, earlier->machine.gpu))
        return "it is of another GPU";
    if (!same_text(results->machine.driver, earlier->machine.driver))
        return "it is of another driver";
    if (!same_text(results->machine.cpu, earlier->machine.cpu))
        return "it is of another machine";
    for (size_t i = 0; i < results->subject_count; i++) {
        const struct bench_subject *other =
            bench_results_subject(earlier, results->subjects[i].label);
        if (other && !same_subject(&results->subjects[i], other))
            return "a label in it stands for another library, build of it, or environment";
    }
    return NULL;
}

static bool has_group(const struct bench_results *results, const char *group, size_t first)
{
    for (size_t i = 0; i < first; i++) {
        if (!strcmp(results->figures[i].group, group))
            return true;
    }
    return false;
}

static void copy_subject(struct bench_results *results, const struct bench_subject *from)
{
    struct bench_subject *subject = bench_results_add_subject(results, from->label, from->library);
    if (from->build)
        bench_subject_set_build(subject, from->build);
    for (size_t i = 0; i < from->setting_count; i++)
        bench_subject_set(subject, from->environment[i].name, from->environment[i].value);
}

static void copy_figure(struct bench_results *results, const struct bench_figure *from)
{
    struct bench_figure *figure = bench_results_add_figure(results, from);
    for (size_t i = 0; i < from->result_count; i++) {
        const struct bench_result *result = &from->results[i];
        if (result->missing)
            bench_figure_missing(figure, result->subject, result->missing);
        else
            bench_figure_measured(figure, result->subject, result->samples, result->sample_count,
                result->repetitions);
        if (result->rounds)
            bench_figure_set_rounds(figure, result->subject, result->rounds);
    }
}

/* One result for each subject, in their order. */
static void order_results(const struct bench_results *results, struct bench_figure *figure)
{
    struct bench_result *ordered =
        grow(NULL, results->subject_count ? results->subject_count : 1, sizeof(*ordered));
    for (size_t i = 0; i < results->subject_count; i++) {
        const char *label = results->subjects[i].label;
        if (!bench_figure_result(figure, label))
            bench_figure_missing(figure, label, "this group was measured without it");
        struct bench_result *found =
            &figure->results[bench_figure_result(figure, label) - figure->results];
        ordered[i] = *found;
        memset(found, 0, sizeof(*found));
        found->subject = copy_text("");
    }
    for (size_t i = 0; i < figure->result_count; i++)
        finish_result(&figure->results[i]);
    free(figure->results);
    figure->results = ordered;
    figure->result_count = results->subject_count;
}

void bench_results_order(struct bench_results *results)
{
    struct bench_figure *ordered = grow(NULL, results->figure_count + 1, sizeof(*ordered));
    size_t count = 0;
    for (size_t g = 0; bench_groups[g]; g++) {
        for (size_t i = 0; i < results->figure_count; i++) {
            if (!strcmp(results->figures[i].group, bench_groups[g]))
                ordered[count++] = results->figures[i];
        }
    }
    free(results->figures);
    results->figures = ordered;
}

void bench_results_merge(struct bench_results *results, const struct bench_results *earlier)
{
    size_t own = results->figure_count;
    for (size_t i = 0; i < earlier->subject_count; i++) {
        if (!bench_results_subject(results, earlier->subjects[i].label))
            copy_subject(results, &earlier->subjects[i]);
    }
    for (size_t i = 0; i < earlier->figure_count; i++) {
        if (!has_group(results, earlier->figures[i].group, own))
            copy_figure(results, &earlier->figures[i]);
    }
    for (size_t i = 0; i < results->figure_count; i++)
        order_results(results, &results->figures[i]);
    bench_results_order(results);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_quantile(const double *values, size_t count, double part)
{
    double *sorted = grow(NULL, count, sizeof(*sorted));
    memcpy(sorted, values, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), ascending);
    double place = part * (double)(count - 1);
    size_t below = (size_t)place, above = below + 1 < count ? below + 1 : below;
    double value = sorted[below] + (sorted[above] - sorted[below]) * (place - (double)below);
    free(sorted);
    return value;
}

const char *bench_better_name(enum bench_better better)
{
    static const char *const names[] = {"lower", "higher", "target"};
    return names[better];
}
