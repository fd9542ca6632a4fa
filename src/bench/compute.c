/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a compute limit holds: the share of the GPU's time that loads of several shapes get, over
 * windows of three lengths. */
#include "bench/compute.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CASES_MOST 32
#define FACTORS 3

static const struct bench_definition native_definition = {"compute.native", "work natively",
    "Kernels that ended in a second × their native duration, without a limit and a library: 1 is a "
    "GPU that is used all the time. What "
    "the shares below are compared with; its spread is the noise.",
    "s/s", BENCH_HIGHER, false, 0};
static const struct bench_definition share_definition = {"compute.share", "share of the GPU",
    "Kernels that ended in the run × their native duration, as part of what the load does "
    "natively; where it waits for the host, times what NVML says it uses natively. Target: the "
    "limit, or what the load uses natively where that is less.",
    "%", BENCH_TARGET, false, 0};
static const struct bench_definition throughput_definition = {"compute.throughput",
    "throughput against entitlement",
    "The share, as far as it is due, by the share that is due: 1 is all that the limit allows; "
    "what is above that adds nothing.",
    "ratio", BENCH_HIGHER, true, 0.97};
static const struct bench_definition error_definitions[FACTORS] = {
    {"compute.error.100ms", "error over 100 ms",
        "The mean distance of the share in windows of 100 ms from the share that is due.", "points",
        BENCH_LOWER, false, 0},
    {"compute.error.1s", "error over 1 s",
        "The mean distance of the share in windows of 1 s from the share that is due.", "points",
        BENCH_LOWER, false, 0},
    {"compute.error.5s", "error over 5 s",
        "The distance of the share in a window of 5 s from the share that is due. Target: 1, where "
        "the load waits for the host (kernel and host work in turn) 2.",
        "points", BENCH_LOWER, true, 1},
};
/* A run has one window of 5 s: how runs differ is in the spread of the share. */
static const struct bench_definition deviation_definitions[FACTORS - 1] = {
    {"compute.deviation.100ms", "deviation over 100 ms",
        "The standard deviation of the share in the windows of 100 ms of a run.", "points",
        BENCH_LOWER, false, 0},
    {"compute.deviation.1s", "deviation over 1 s",
        "The standard deviation of the share in the windows of 1 s of a run.", "points",
        BENCH_LOWER, false, 0},
};
/* The number of the load's windows in one. */
static const size_t factors[FACTORS] = {1, 10, 50};

/* paced: natively it uses a part of the GPU, because it waits for the host. */
struct shape {
    const char *name;
    struct bench_load load;
    bool paced, quick;
    unsigned limits[3], quick_limits[3]; /* ended by 0 */
};

#define ALL_LIMITS                                                                                 \
    {                                                                                              \
        20, 50, 80                                                                                 \
    }
static const struct shape shapes[] = {
    {"1 ms kernels", {.shape = "full", .kernel_us = 1000}, false, true, ALL_LIMITS, {20}},
    {"10 µs kernels", {.shape = "full", .kernel_us = 10}, false, false, ALL_LIMITS, {0}},
    {"100 µs kernels", {.shape = "full", .kernel_us = 100}, false, false, {50}, {0}},
    {"kernel and host work in turn", {.shape = "hostbound", .kernel_us = 20}, true, true,
        ALL_LIMITS, {50}},
    {"graphs of 20 × 100 µs", {.shape = "graph", .kernel_us = 100}, false, true, ALL_LIMITS, {50}},
    {"1 ms kernels of one block", {.shape = "one-block", .kernel_us = 1000}, false, false, {50},
        {0}},
    {"1 ms kernels, each waited for", {.shape = "sync", .kernel_us = 1000}, true, false, {20, 50},
        {0}},
    {"5 ms kernels", {.shape = "full", .kernel_us = 5000}, false, false, {50}, {0}},
    {"1 ms kernels on 4 streams", {.shape = "streams", .kernel_us = 1000}, false, false, {50, 80},
        {0}},
    {"one persistent kernel", {.shape = "persistent", .kernel_us = 1000}, false, false, ALL_LIMITS,
        {0}},
    {"1 ms kernels on the thread's own stream", {.shape = "per-thread-stream", .kernel_us = 1000},
        false, false, {50}, {0}},
    {"1 ms kernels beside copies", {.shape = "copies", .kernel_us = 1000}, false, false, {50}, {0}},
    {"1 ms cooperative kernels", {.shape = "cooperative", .kernel_us = 1000}, false, false, {50},
        {0}},
    /* Natively 40 % of the GPU. */
    {"bursts of 20 ms each 50 ms",
        {.shape = "burst", .kernel_us = 1000, .more = {"--burst-ms", "20", "--period-ms", "50"}},
        true, false, {20}, {0}},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* Runs are judged when all are done: by the native one of the same round, or the one nearest to it.
 */
#define ROUNDS_MOST 32
static struct run {
    size_t place, subject;
    unsigned limit, round;
    struct bench_report report;
} * runs;
static size_t run_count;
static struct native {
    double work, utilization;
} natives[SHAPES][ROUNDS_MOST];
static unsigned native_count[SHAPES];

static struct native native_of(size_t place, unsigned round)
{
    unsigned count = native_count[place];
    return count ? natives[place][round < count ? round : count - 1] : (struct native){0, -1};
}

/* By the native run of the round. */
static void due_of(size_t place, unsigned round, unsigned limit, double *ret_due, double *ret_scale)
{
    struct native native = native_of(place, round);
    bench_windows_due(
        shapes[place].paced, limit, native.work, native.utilization, ret_due, ret_scale);
}

static void keep(size_t place, size_t subject, unsigned limit, const struct bench_report *report)
{
    struct run *grown = realloc(runs, (run_count + 1) * sizeof(*runs));
    unsigned round = 0;
    if (!grown)
        return;
    runs = grown;
    for (size_t i = 0; i < run_count; i++)
        round += runs[i].place == place && runs[i].subject == subject && runs[i].limit == limit;
    runs[run_count++] = (struct run){place, subject, limit, round, *report};
    if (!subject && round < ROUNDS_MOST) {
        natives[place][round] = (struct native){report->work, report->utilization};
        native_count[place] = round + 1;
    }
}

static const unsigned *limits_of(const struct bench *bench, const struct shape *shape)
{
    return bench->results.full ? shape->limits : shape->quick_limits;
}

static size_t limit_count(const struct bench *bench, const struct shape *shape)
{
    size_t count = 0;
    while (count < 3 && limits_of(bench, shape)[count])
        count++;
    return count;
}

static void condition_of(const struct shape *shape, unsigned limit, char *text, size_t size)
{
    snprintf(text, size, "%s, limit %u", shape->name, limit);
}

static void gather_windows(struct bench *bench, size_t subject, const char *condition,
    const struct bench_report *report, double scale, double due)
{
    for (size_t i = 0; i < FACTORS; i++) {
        double error, deviation;
        size_t count = bench_windows_judge(report, factors[i], scale, due, &error, &deviation);
        if (!subject)
            bench_missing(bench, 0, error_definitions[i].id, condition, BENCH_NO_LIMIT);
        else if (count)
            bench_sample(bench, subject, error_definitions[i].id, condition, error, count);
        else
            bench_missing(bench, subject, error_definitions[i].id, condition,
                "its load ended without a whole window");
        if (i + 1 < FACTORS && count > 1)
            bench_sample(bench, subject, deviation_definitions[i].id, condition, deviation, count);
        else if (i + 1 < FACTORS)
            bench_missing(bench, subject, deviation_definitions[i].id, condition,
                "its load ended without two whole windows");
    }
}

static void gather(struct bench *bench, const struct run *run, unsigned limit)
{
    const struct bench_report *report = &run->report;
    size_t place = run->place, subject = run->subject;
    char condition[96];
    double due, scale;
    condition_of(&shapes[place], limit, condition, sizeof(condition));
    due_of(place, run->round, limit, &due, &scale);
    gather_windows(bench, subject, condition, report, scale, due);
    if (!subject) {
        bench_missing(bench, 0, share_definition.id, condition, BENCH_NO_LIMIT);
        bench_missing(bench, 0, throughput_definition.id, condition, BENCH_NO_LIMIT);
        return;
    }
    double share = report->work * scale;
    bench_sample(bench, subject, share_definition.id, condition, share * 100, 1);
    bench_sample(bench, subject, throughput_definition.id, condition, fmin(share, due) / due, 1);
}

static struct bench_load load_of(const struct bench *bench, const struct shape *shape)
{
    struct bench_load load = shape->load;
    load.window_ms = bench_compute_window_ms(bench);
    load.seconds = 5.06 * bench->options->scale; /* 50 windows and what the ends lose */
    load.warmup = 0.5 * bench->options->scale;
    return load;
}

/* Native first: what it did is what the others are compared with. */
static void run_shape(struct bench *bench, const struct bench_item *item, size_t number)
{
    const struct shape *shape = item->data;
    size_t place = (size_t)(shape - shapes), limits = limit_count(bench, shape);
    bool limited_one = number && limits;
    size_t subject = limited_one ? 1 + (number - 1) / limits : 0;
    unsigned limit = limited_one ? limits_of(bench, shape)[(number - 1) % limits] : 0;
    struct bench_load load = load_of(bench, shape);
    struct bench_limits limited = {.cores = limit};
    struct bench_report report;
    char condition[96], reason[256];
    if (bench->failed[subject][0])
        return;
    if (!bench_load_run(bench, subject, &limited, &load, &report, reason, sizeof(reason))) {
        for (size_t i = 0; i < limits && !bench_stopped(); i++) {
            condition_of(shape, limits_of(bench, shape)[i], condition, sizeof(condition));
            if (!number || limits_of(bench, shape)[i] == limit)
                bench_missing_all(bench, subject, condition, reason);
        }
        return;
    }
    if (!number)
        bench_sample(bench, 0, native_definition.id, shape->name, report.work, 1);
    bench->gathered++;
    keep(place, subject, limit, &report);
}

/* A native run stands beside each limit. */
static void gather_all(struct bench *bench)
{
    for (size_t i = 0; i < run_count; i++) {
        const struct shape *shape = &shapes[runs[i].place];
        for (size_t k = 0; k < limit_count(bench, shape); k++) {
            unsigned limit = limits_of(bench, shape)[k];
            if (!runs[i].subject || limit == runs[i].limit)
                gather(bench, &runs[i], limit);
        }
        bench_report_finish(&runs[i].report);
    }
    free(runs);
    runs = NULL;
    run_count = 0;
}

static void declare(struct bench *bench, const struct shape *shape)
{
    bench_declare(bench, &native_definition, shape->name);
    for (size_t s = 1; s < bench->results.subject_count; s++)
        bench_missing(bench, s, native_definition.id, shape->name, "of native alone");
    for (size_t i = 0; i < limit_count(bench, shape); i++) {
        unsigned limit = limits_of(bench, shape)[i];
        char condition[96];
        condition_of(shape, limit, condition, sizeof(condition));
        bench_declare_target(bench, &share_definition, condition, limit);
        bench_declare(bench, &throughput_definition, condition);
        for (size_t k = 0; k < FACTORS; k++)
            bench_declare(bench, &error_definitions[k], condition);
        if (!strcmp(shape->load.shape, "hostbound")) /* promised within 2 points */
            bench_set_target(bench, error_definitions[FACTORS - 1].id, condition, 2);
        for (size_t k = 0; k + 1 < FACTORS; k++)
            bench_declare(bench, &deviation_definitions[k], condition);
        if (bench->options->sim && !strcmp(shape->load.shape, "persistent")) {
            bench_missing(
                bench, 0, native_definition.id, shape->name, "the simulator executes nothing");
            for (size_t s = 0; s < bench->results.subject_count; s++)
                bench_missing_all(bench, s, condition,
                    "the simulator executes nothing, so that a persistent kernel's work is not "
                    "seen");
        }
    }
}

/* Over the native runs. */
static double mean_due(size_t place, unsigned limit)
{
    unsigned count = native_count[place] ? native_count[place] : 1;
    double due, scale, sum = 0;
    for (unsigned round = 0; round < count; round++) {
        due_of(place, round, limit, &due, &scale);
        sum += due;
    }
    return sum / count;
}

/* What needs less than its limit natively is due no more than that. */
static void correct_targets(struct bench *bench)
{
    for (size_t i = 0; i < SHAPES; i++) {
        for (size_t k = 0; k < limit_count(bench, &shapes[i]); k++) {
            unsigned limit = limits_of(bench, &shapes[i])[k];
            char condition[96];
            condition_of(&shapes[i], limit, condition, sizeof(condition));
            bench_set_target(bench, share_definition.id, condition, mean_due(i, limit) * 100);
        }
    }
}

void bench_compute(struct bench *bench)
{
    struct bench_item items[SHAPES + BENCH_CHANGES_MOST];
    size_t count = 0, libraries = bench->results.subject_count - 1;
    memset(native_count, 0, sizeof(native_count));
    for (size_t i = 0; i < SHAPES; i++) {
        if (!bench->results.full && !shapes[i].quick)
            continue;
        declare(bench, &shapes[i]);
        if (bench->options->sim && !strcmp(shapes[i].load.shape, "persistent"))
            continue;
        items[count++] = (struct bench_item){shapes[i].name,
            1 + libraries * limit_count(bench, &shapes[i]), 6.1, 0, run_shape, &shapes[i]};
    }
    count += bench_compute_changes(bench, items + count);
    bench_run_items(bench, items, count);
    gather_all(bench);
    correct_targets(bench);
}
