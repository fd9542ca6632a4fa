/* SPDX-License-Identifier: Apache-2.0 */
/* What table and report say of figures: which belong together, how a value stands to native's and
 * to its target, and numbers in words. Nothing here measures or stores. */
#ifndef VGPU_BENCH_REPORT_VIEW_H
#define VGPU_BENCH_REPORT_VIEW_H

#include "bench/results/results.h"

/* One figure under its conditions: the same id and the same texts. */
struct report_family {
    const struct bench_figure **figures; /* at least one */
    size_t count;
    bool diagonal; /* each has a target of its own, which it is to meet: drawn against it */
};

struct report_families {
    struct report_family *list;
    size_t count;
};

/* Those of a group, in the order of their first figures; the figures stay the results'. */
struct report_families report_families_make(const struct bench_results *results, const char *group);
void report_families_finish(struct report_families *families);

/* What the group answers: a question. */
const char *report_group_question(const char *group);

/* "Cost" for "cost". */
const char *report_group_name(const char *group);

/* Unclear: the target lies within the median's noise, on whichever side the median is; or a single
 * sample does not say how large that is. */
enum report_verdict { REPORT_NONE, REPORT_MET, REPORT_MISSED, REPORT_UNCLEAR };

/* How a result stands. */
struct report_stand {
    bool has_ratio;                      /* to native's value */
    bool may_be_none;                    /* the ratio may be 1, and what it differs by noise */
    bool has_off;                        /* the figure is to meet its target */
    double ratio, ratio_low, ratio_high; /* median, 10th and 90th percentile */
    double off;                          /* value - target */
    enum report_verdict verdict;
};

/* Of a result that is measured. Native itself has no ratio, and targets are not its own: the limit
 * that others keep is not set for it. A figure that is to meet its target has no verdict, because
 * it has no tolerance. Of what was measured in turn the ratio is the median of the rounds' ratios,
 * which may be 1 where that lies within its noise; else it is that of the medians, and may be where
 * the spreads overlap. What is in points has none. */
struct report_stand report_stand_of(
    const struct bench_figure *figure, const struct bench_result *result);

/* The result for the subject, or NULL where it has none or none that was measured. */
const struct bench_result *report_measured(const struct bench_figure *figure, const char *subject);

/* Four digits or more, thousands apart; 1.23e-7 and the like where that is too long. Returns the
 * text. */
#define REPORT_NUMBER 32
char *report_number(char text[REPORT_NUMBER], double value);

/* A distance: with its sign, and three digits behind the point where it is below 1. */
char *report_signed(char text[REPORT_NUMBER], double value);

/* A ratio: three digits behind the point, less where it is large or close to 0. */
char *report_ratio(char text[REPORT_NUMBER], double ratio);

/* Why the verdict on the result is not clear. */
const char *report_unclear_words(const struct bench_result *result);

/* "lower is better" and so on. */
const char *report_better_words(enum bench_better better);

/* Why a chart of the figures has nothing of the subject, in a few words: "no limit" where it has
 * none to keep, "is compared with", else "not measured". */
const char *report_missing_words(
    const struct bench_figure *const *figures, size_t count, const char *subject);

/* Why the result, which may be NULL, has no value. */
const char *report_missing_reason(const struct bench_result *result);

/* How many results of the figures of a group a subject has, how many are missing, and how many of
 * those with a verdict are what. */
struct report_counts {
    unsigned measured, missing, met, missed, unclear;
};
struct report_counts report_count(
    const struct bench_results *results, const char *group, const char *subject);

#endif
