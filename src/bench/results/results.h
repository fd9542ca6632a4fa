/* SPDX-License-Identifier: Apache-2.0 */
/* What a run of the bench found, in memory and as results.json (docs/bench.md has its format). All
 * texts are UTF-8 without control characters, but for a library's path and its variables, which are
 * what they were given as; they belong to the structure that names them. One thread at a time.
 * Where memory runs out the program ends. */
#ifndef VGPU_BENCH_RESULTS_RESULTS_H
#define VGPU_BENCH_RESULTS_RESULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_RESULTS_VERSION 1
#define BENCH_RESULTS_FILE "results.json"
#define BENCH_SIMULATED " (simulated)" /* behind the GPU's name, but in memory */
#define BENCH_NATIVE "native"          /* the label of the subject without a library */

/* Why a figure is missing, where a run says it and what follows from its figures does too. */
#define BENCH_NO_LIMIT "native has no limit"
#define BENCH_COMPARED "native is what is compared with"
#define BENCH_NO_NATIVE "native was not measured"
#define BENCH_APART "native was measured in none of its rounds"
#define BENCH_NOT_SUBTRACTED "native, which is subtracted, was not measured"

#define BENCH_NOT_REFUSED "nothing refused it"
#define BENCH_PASSED "the limit was passed: nothing of it was left"

#define BENCH_PAGES_MIB 1 /* by which what is in no process's name varies natively, and less */
#define BENCH_PIECES 64   /* in which a program asks for all of its memory limit */

/* The groups in their order; NULL ends them. */
extern const char *const bench_groups[];

struct bench_setting {
    char *name, *value;
};

/* What is compared: a library with its environment, or none. */
struct bench_subject {
    char *label;   /* different for each */
    char *library; /* NULL: native */
    char *build;   /* of its file: FNV-1a, 64 bits, 16 hexadecimal digits; NULL: not known */
    struct bench_setting *environment;
    size_t setting_count;
};

/* What a figure is for one subject. */
struct bench_result {
    char *subject;    /* a label */
    char *missing;    /* why it could not be measured; NULL: it was, and the rest holds */
    double value;     /* the median of the samples */
    double low, high; /* their 10th and 90th percentile */
    unsigned long
        repetitions;     /* how often it was measured: of how many values the samples are some */
    double *samples;     /* in the order in which they were measured */
    size_t sample_count; /* at least 1, and at most the repetitions */
    /* Of which round each sample is, none less than the one before; NULL: the n-th of the n-th. */
    unsigned *rounds;
};

enum bench_better { BENCH_LOWER, BENCH_HIGHER, BENCH_TARGET };

struct bench_figure {
    char *id;         /* "cost.launch.async"; with `condition` different for each figure */
    char *group;      /* one of bench_groups */
    char *title;      /* a few words */
    char *definition; /* a sentence or two: what is measured, and how */
    char *unit;       /* "ns", "ms", "MiB", "points", "ratio", … */
    enum bench_better better;
    bool has_target;
    double target;   /* in the unit */
    char *condition; /* "case" in the file: "64 MiB", "limit 20"; "" where there is only one */
    /* Above 0: measured in turn, samples of the same round belong together, and this number of
     * rounds that follow each other are of one process. 0: not in turn. */
    unsigned turns;
    struct bench_result *results; /* one for each subject, in their order */
    size_t result_count;
};

/* Texts are "" where they are not known. */
struct bench_machine {
    char *gpu, *driver, *cuda, *cpu, *kernel;
    char *when; /* the last run's begin, ISO 8601 in UTC */
    unsigned cores;
};

struct bench_results {
    bool simulated, full; /* full: --full, else --quick */
    uint32_t seed;        /* of chance in the last run; 0: not known */
    struct bench_machine machine;
    struct bench_subject *subjects; /* native first */
    size_t subject_count;
    struct bench_figure *figures; /* those of a group follow each other */
    size_t figure_count;
};

/* Frees what is in it, and makes it empty: all zero. An empty one is a valid one to fill. */
void bench_results_finish(struct bench_results *results);

/* Reads the file into `results`, which is empty, and stays so on failure. Returns 0 or -errno,
 * -EINVAL where it is no results.json that we know; `reason` then has one line's worth: what is
 * wrong and what is accepted. What follows from its figures is added (derive.h). */
int bench_results_read(struct bench_results *results, const char *path, char *reason,
    size_t reason_size) __attribute__((warn_unused_result));

/* The same of text in memory. */
int bench_results_parse(struct bench_results *results, const char *text, size_t length,
    char *reason, size_t reason_size) __attribute__((warn_unused_result));

/* Writes the file whole or not at all, in the place of an earlier one. Returns 0 or -errno. */
int bench_results_write(const struct bench_results *results, const char *path)
    __attribute__((warn_unused_result));

/* NULL where there is none. `condition` NULL: the first of that id. */
const struct bench_figure *bench_results_find(
    const struct bench_results *results, const char *id, const char *condition);
const struct bench_subject *bench_results_subject(
    const struct bench_results *results, const char *label);
const struct bench_result *bench_figure_result(
    const struct bench_figure *figure, const char *subject);

/* Adds a subject without settings; the pointer is valid until the next is added. Its label is new.
 */
struct bench_subject *bench_results_add_subject(
    struct bench_results *results, const char *label, const char *library);
void bench_subject_set_label(struct bench_subject *subject, const char *label);
void bench_subject_set_build(struct bench_subject *subject, const char *build);
void bench_subject_set(struct bench_subject *subject, const char *name, const char *value);

/* Adds a figure without results, texts copied; or empties the one of that id and condition, and
 * gives it these texts. The pointer is valid until the next is added. */
struct bench_figure *bench_results_add_figure(
    struct bench_results *results, const struct bench_figure *texts);

/* Adds what was measured for a subject: `count` samples, 1 or more, all finite. In the place of an
 * earlier result. */
void bench_figure_measured(struct bench_figure *figure, const char *subject, const double *samples,
    size_t count, unsigned long repetitions);
void bench_figure_missing(struct bench_figure *figure, const char *subject, const char *reason);

/* Says of which round each sample of what was measured is: as many as there are samples. */
void bench_figure_set_rounds(
    struct bench_figure *figure, const char *subject, const unsigned *rounds);

/* Whether it is known which samples of the two belong together: the figure was measured in turn,
 * and where one result lacks rounds, so that only the rest can be compared, its file says which. */
bool bench_results_pair(const struct bench_figure *figure, const struct bench_result *one,
    const struct bench_result *other);

/* The round of a sample, and the sample of a round: NULL where there is none. */
unsigned bench_result_round(const struct bench_result *result, size_t sample);
const double *bench_result_in(const struct bench_result *result, unsigned round);

/* Why figures of `earlier` must not stand beside those of `results`, in words; NULL where they may:
 * both are of one machine, driver and mode, and subjects of the same label are the same. */
const char *bench_results_mismatch(
    const struct bench_results *results, const struct bench_results *earlier);

/* Takes over from `earlier` its subjects that `results` lacks, and the figures of groups of which
 * `results` has none. Then each figure has a result for each subject, in their order: where there
 * is none it is missing, because the group was measured without it. */
void bench_results_merge(struct bench_results *results, const struct bench_results *earlier);

/* Puts the figures into the groups' order; those of a group stay in theirs. */
void bench_results_order(struct bench_results *results);

/* The value below which that part (0 to 1) of the values lies, in between two of them where it lies
 * there (Hyndman and Fan 1996, definition 7, as R and NumPy have it): a spread is as far from the
 * least as from the most. `values` need no order and stay as they are; `count` is 1 or more. */
double bench_quantile(const double *values, size_t count, double part);

const char *bench_better_name(enum bench_better better);

#endif
