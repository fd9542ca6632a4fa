/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the bench: what was asked for, with what, and how a group measures its figures: it
 * declares them, and gives the runner items, each measured for one subject after the other. */
#ifndef VGPU_BENCH_BENCH_H
#define VGPU_BENCH_BENCH_H

#include "bench/process.h"
#include "bench/results/results.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_SUBJECTS_MOST 8
#define BENCH_ARGUMENTS_MOST 40
#define BENCH_VARIANTS_MOST 64
#define BENCH_MIB (1024.0 * 1024.0)

struct bench_options {
    struct bench_results asked; /* its subjects, its mode */
    bool only[5];               /* by bench_groups */
    const char *sim;            /* NULL: the machine's GPU */
    const char *output;
    const char *python;
    bool report;   /* of what is there; nothing is measured */
    bool quick;    /* asked for, not merely so */
    bool declare;  /* figures alone: nothing is run */
    bool measure;  /* an option says what to measure, or how */
    double scale;  /* of all durations: 1, less in tests */
    uint32_t seed; /* of chance; 0: an unpredictable one */
};

/* What a definition's figure is measured under; the last one's condition is NULL. */
struct bench_definition {
    const char *id, *title, *definition, *unit;
    enum bench_better better;
    bool has_target;
    double target;
};

/* Of one subject, of one figure. */
struct bench_gathered {
    double *samples;
    unsigned *moments; /* in which round and turn each was measured (bench.round, bench.turn) */
    size_t count;
    unsigned long repetitions;
    char missing[256];
};

struct bench_measured {
    struct bench_figure texts; /* of the definition; its condition is a copy */
    struct bench_gathered of[BENCH_SUBJECTS_MOST];
};

struct bench {
    const struct bench_options *options;
    struct bench_results results; /* its subjects are numbered as everywhere: 0 is native */
    char failed[BENCH_SUBJECTS_MOST][256]; /* why nothing of the subject can be measured; "" */
    unsigned hung[BENCH_SUBJECTS_MOST]; /* how often a process of it was killed at its deadline */
    char unstarted[BENCH_SUBJECTS_MOST][128]; /* in the group, why a process could not be; "" */
    char scratch[PATH_MAX];                   /* a directory of this run's */
    char program[PATH_MAX], load[PATH_MAX], calibration[PATH_MAX], sim[PATH_MAX];
    double memory_mib; /* of the GPU */
    char bus[64];      /* its PCI bus id */
    /* CLOCK_MONOTONIC: of the run; the end of the group's time; when what still runs of it is cut
     * off, 0: not. */
    uint64_t began_ns, until_ns, cut_ns;
    unsigned places; /* directories made in `scratch` so far */
    /* Of the group that is measured. */
    const char *group;
    struct bench_measured *measured;
    size_t measured_count;
    unsigned round, turn;   /* of the item, and within it: samples of the same belong together */
    unsigned long gathered; /* samples in all, to see whether an item gives any */
    bool left_out;          /* an item for which no time was left */
};

/* What a process is limited to; 0: not. */
struct bench_limits {
    double memory_mib;
    unsigned cores;
    const char *place; /* the container: processes of one place share a region; not NULL */
    const char *board; /* a directory that containers beside each other share; NULL: none */
};

/* Names a fresh directory in the scratch one. */
void bench_place(struct bench *bench, char *place, size_t size);
void bench_remove_tree(const char *path);
/* Removes those that were named after the `first` first ones. */
void bench_remove_places(const struct bench *bench, unsigned first);

/* Whether the subject can be given these limits; if not, `missing` says why. */
bool bench_can_limit(const struct bench *bench, size_t subject, const struct bench_limits *limits,
    char *missing, size_t size);

/* The environment of a process of the subject's, ended by NULL; freed by the caller with
 * bench_environment_free. */
char **bench_environment(
    const struct bench *bench, size_t subject, const struct bench_limits *limits);
void bench_environment_free(char **environment);

/* Kills the process at the latest `seconds` from now, or when the group's time is cut off. */
void bench_allow(const struct bench *bench, struct bench_process *process, double seconds);

/* Starts arguments under the subject's environment, for at most `seconds` (bench_allow). Returns 0
 * or -errno. */
int bench_start(struct bench *bench, struct bench_process *process, size_t subject,
    const struct bench_limits *limits, char *const *arguments, double seconds)
    __attribute__((warn_unused_result));

/* The same for `vgpu-bench --worker NAME ARGUMENT...`; the arguments end with NULL. */
int bench_start_worker(struct bench *bench, struct bench_process *process, size_t subject,
    const struct bench_limits *limits, double seconds, const char *name, ...)
    __attribute__((warn_unused_result, sentinel));

/* Runs the worker to its end and hands each line "KEY VALUE REPETITIONS" to the figure `KEY` of the
 * condition, and of `also` where it is not NULL, each "KEY ! reason" as its reason for being
 * missing. Where the worker fails, all of the group's figures of the subject and these conditions
 * that have nothing are missing with the reason. */
void bench_gather_worker(struct bench *bench, size_t subject, const char *condition,
    const char *also, struct bench_process *process);

/* One of these lines, which ends in a newline or where the text does; others are passed over. */
void bench_gather_line(
    struct bench *bench, size_t subject, const char *condition, const char *line);

/* A process of the subject's has ended: where several did not in time, the subject is given up. */
void bench_note_end(struct bench *bench, size_t subject, const struct bench_process *process);

/* Declares a figure of the group, under a condition. */
void bench_declare(
    struct bench *bench, const struct bench_definition *definition, const char *condition);
/* The same with another target than the definition's. */
void bench_declare_target(struct bench *bench, const struct bench_definition *definition,
    const char *condition, double target);

/* Another target for what was declared, where it is known only once it was measured. */
void bench_set_target(struct bench *bench, const char *id, const char *condition, double target);
/* Its samples are of turns (bench_figure.turns). */
void bench_set_turns(struct bench *bench, const char *id, const char *condition, unsigned turns);
/* The median of the samples; false where there are none. */
bool bench_median(const struct bench *bench, size_t subject, const char *id, const char *condition,
    double *ret_median);

/* Adds for each library what it adds to a figure of native's: the difference, or the percentage, as
 * samples of the figure `added`. Each sample is compared with native's of the same round and turn;
 * where there is none it is left out. */
void bench_gather_added(struct bench *bench, const char *id, const char *condition,
    const char *added, const char *added_condition, bool percent);

/* Divides all samples of a figure, of all subjects. */
void bench_divide(struct bench *bench, const char *id, const char *condition, double divisor);
/* Takes away the samples of a figure, of all subjects: it is missing, for their own reasons or this
 * one. */
void bench_drop(struct bench *bench, const char *id, const char *condition, const char *reason);

/* Adds a sample of a declared figure. One that is not finite is none. */
void bench_sample(struct bench *bench, size_t subject, const char *id, const char *condition,
    double value, unsigned long repetitions);
void bench_missing(
    struct bench *bench, size_t subject, const char *id, const char *condition, const char *reason);
/* Of all figures of the condition (NULL: of all) that have no samples and no reason yet. */
void bench_missing_all(
    struct bench *bench, size_t subject, const char *condition, const char *reason);

/* What is measured again and again: once for each variant in a round, in an order by chance.
 * The runner leaves out what does not fit into the group's time any more. */
struct bench_item {
    const char *name;
    size_t variants;
    double seconds;       /* a guess of one variant's, until it was seen */
    unsigned rounds_most; /* 0: as many as fit, and 25 at most */
    void (*run)(struct bench *bench, const struct bench_item *item, size_t variant);
    const void *data;
};

void bench_run_items(struct bench *bench, const struct bench_item *items, size_t count);

/* The groups; each declares its figures and runs its items. */
void bench_cost(struct bench *bench);
void bench_memory(struct bench *bench);
void bench_compute(struct bench *bench);
void bench_tenants(struct bench *bench);
void bench_work(struct bench *bench);

/* Declares, measures and takes over into the results; `seconds` from now on are the group's. What
 * has neither a sample nor a reason says that no time was left for it, or what else happened. */
void bench_run_group(
    struct bench *bench, const char *group, void (*measure)(struct bench *), double seconds);

/* One line of progress on stderr. */
void bench_say(const struct bench *bench, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Writes each figure's id, group, unit and definition, with tabs between; returns the exit status.
 */
int bench_definitions(void);

/* What runs inside a measured process; returns its exit status. */
int bench_worker(int argc, char **argv);

#endif
