/* SPDX-License-Identifier: Apache-2.0 */
/* Containers beside each other on one GPU: what each gets, and what one does to another. */
#include "bench/tenants.h"

#include "base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define TENANTS_MOST 4
#define ALONE_MOST 3 /* rounds of the load alone */
#define GAP_WINDOW_MS 10
/* What a tenant had saved, another leaves it some percent of the card for: no sooner is it used up.
 */
#define MIX_AFTER_NS 1000000000u
/* Not scaled: a process takes as long to begin in a test. */
#define BEGINS_NS 800000000u /* until the neighbour of requests works */
#define LONGER_S 10          /* than the requests it would, were it not told to end */

static const struct bench_definition share_definition = {"tenants.share", "share of each tenant",
    "Containers work at once with kernels of 1 ms: each one's kernels while all work, from 1 s "
    "after the last began (what was saved up before is used up by then), by what the load does "
    "alone natively. Natively they have no limits, and the driver shares out.",
    "%", BENCH_TARGET, false, 0};
static const struct bench_definition sum_definition = {"tenants.sum", "all tenants together",
    "The sum of their shares, each by what the load does alone natively.", "ratio", BENCH_HIGHER,
    false, 0};
static const struct bench_definition latency_definitions[] = {
    {"tenants.latency.p50", "latency of requests, p50",
        "A tenant of limit 20 asks for a kernel of 100 µs each 10 ms and waits for it, from the "
        "launch to the end.",
        "ms", BENCH_LOWER, false, 0},
    {"tenants.latency.p99", "latency of requests, p99",
        "A tenant of limit 20 asks for a kernel of 100 µs each 10 ms and waits for it, from the "
        "launch to the end.",
        "ms", BENCH_LOWER, false, 0},
};
static const struct bench_definition greedy_definition = {"tenants.greedy",
    "work of the greedy neighbour",
    "What a neighbour of limit 70 with kernels of 1 ms does beside the requests, by what it does "
    "alone natively. Target: its limit.",
    "%", BENCH_TARGET, true, 70};
static const struct bench_definition survivor_definition = {"tenants.death.share",
    "share after a neighbour's death",
    "Of two tenants of limit 50 that work one is killed: the other's share from 0.3 s later on.",
    "%", BENCH_TARGET, true, 50};
static const struct bench_definition gap_definition = {"tenants.death.gap",
    "standstill at a neighbour's death",
    "Of two tenants of limit 50 that work one is killed: the longest time from then on in which no "
    "kernel of the other ended, in steps of 10 ms.",
    "ms", BENCH_LOWER, false, 0};
static const struct bench_definition storm_definition = {"tenants.storm.rate",
    "allocations of a storm",
    "Allocations that a neighbour makes (and frees) in a second beside the requests, of 1 to 64 "
    "MiB.",
    "1/s", BENCH_HIGHER, false, 0};

static const struct mix {
    const char *name;
    size_t count;
    unsigned limits[TENANTS_MOST];
    double sum_target; /* 0: none */
} mixes[] = {{"50/50", 2, {50, 50}, 0.96}, {"30/60", 2, {30, 60}, 0},
    {"25/25/25/25", 4, {25, 25, 25, 25}, 0}};
#define MIXES (sizeof(mixes) / sizeof(mixes[0]))

static const char *const ordinals[TENANTS_MOST] = {"first", "second", "third", "fourth"};

enum beside { ALONE, GREEDY, STORM, BESIDES };
static const char *const besides[BESIDES] = {
    "alone", "beside a greedy neighbour", "beside a storm of allocations"};

/* What the load does alone, natively, in each round, or why it is not known: shares are work until
 * all is measured, and are divided by the median of these then. */
static double alone_work[ALONE_MOST];
static size_t alone_count;
static char alone_missing[256];

struct bench_load bench_tenants_kernels(
    const struct bench *bench, double seconds, unsigned window_ms)
{
    return (struct bench_load){.shape = "full",
        .kernel_us = 1000,
        .window_ms = window_ms,
        .seconds = seconds * bench->options->scale + (bench->options->scale < 1 ? 0.5 : 0.2)};
}

bool bench_tenants_limit(struct bench *bench, size_t subject, unsigned cores, const char *board,
    char *place, size_t size, struct bench_limits *ret_limits, char *reason, size_t reason_size)
{
    *ret_limits = (struct bench_limits){.cores = subject ? cores : 0, .board = board};
    if (!bench_can_limit(bench, subject, ret_limits, reason, reason_size))
        return false;
    bench_place(bench, place, size);
    ret_limits->place = place;
    return true;
}

static void run_alone(struct bench *bench, const struct bench_item *item, size_t variant)
{
    struct bench_load load = bench_tenants_kernels(bench, 1.5, 50);
    load.warmup = 0.3;
    struct bench_limits limits = {0};
    struct bench_report report;
    char reason[256];
    (void)item;
    (void)variant;
    if (bench_load_run(bench, 0, &limits, &load, &report, reason, sizeof(reason))) {
        if (report.work > 0)
            alone_work[alone_count++] = report.work;
        bench->gathered++;
        bench_report_finish(&report);
    } else {
        snprintf(alone_missing, sizeof(alone_missing), "the load alone, natively: %.220s", reason);
    }
}

static void miss_mix(struct bench *bench, size_t subject, const struct mix *mix, const char *reason)
{
    char condition[64];
    for (size_t i = 0; i < mix->count; i++) {
        snprintf(condition, sizeof(condition), "%s, %s", mix->name, ordinals[i]);
        bench_missing_all(bench, subject, condition, reason);
    }
    bench_missing_all(bench, subject, mix->name, reason);
}

static void judge_mix(
    struct bench *bench, size_t subject, const struct mix *mix, const struct bench_report *reports)
{
    double works[TENANTS_MOST], sum = 0;
    uint64_t after_ns = (uint64_t)(MIX_AFTER_NS * bench->options->scale);
    if (!bench_windows_together(reports, mix->count, after_ns, works)) {
        miss_mix(bench, subject, mix, "its tenants did not work at the same time");
        return;
    }
    for (size_t i = 0; i < mix->count; i++) {
        char condition[64];
        snprintf(condition, sizeof(condition), "%s, %s", mix->name, ordinals[i]);
        bench_sample(bench, subject, share_definition.id, condition, works[i] * 100, 1);
        sum += works[i];
    }
    bench_sample(bench, subject, sum_definition.id, mix->name, sum, 1);
}

static void run_mix(struct bench *bench, const struct bench_item *item, size_t subject)
{
    const struct mix *mix = item->data;
    struct bench_process processes[TENANTS_MOST] = {{0}};
    struct bench_report reports[TENANTS_MOST] = {{0}};
    struct bench_load load = bench_tenants_kernels(bench, bench->results.full ? 6 : 2.7, 50);
    char board[PATH_MAX], places[TENANTS_MOST][PATH_MAX], reason[256] = "";
    struct bench_limits limits;
    bool good = true;
    if (bench->failed[subject][0])
        return;
    bench_place(bench, board, sizeof(board));
    for (size_t i = 0; good && i < mix->count; i++) {
        good = bench_tenants_limit(bench, subject, mix->limits[i], board, places[i],
                   sizeof(places[i]), &limits, reason, sizeof(reason)) &&
               bench_load_start(bench, &processes[i], subject, &limits, &load) == 0;
    }
    bench_process_wait(processes, mix->count);
    for (size_t i = 0; i < mix->count; i++) {
        bench_note_end(bench, subject, &processes[i]);
        good = good && bench_load_report(&processes[i], &reports[i], reason, sizeof(reason));
        bench_process_finish(&processes[i]);
    }
    if (good)
        judge_mix(bench, subject, mix, reports);
    else if (!bench_stopped())
        miss_mix(bench, subject, mix, reason[0] ? reason : "a tenant could not be started");
    for (size_t i = 0; i < mix->count; i++)
        bench_report_finish(&reports[i]);
}

static void gather_latency(
    struct bench *bench, size_t subject, enum beside beside, const struct bench_report *report)
{
    const double us[] = {report->p50_us, report->p99_us};
    for (size_t i = 0; i < 2; i++)
        bench_latency_sample(
            bench, subject, latency_definitions[i].id, besides[beside], report, us[i], "request");
}

/* Why a neighbour that ended did not do its part. */
static void neighbour_reason(const struct bench_process *process, char *reason, size_t size)
{
    char why[200];
    if (bench_process_failure(process, why, sizeof(why)))
        snprintf(reason, size, "its neighbour failed: %s", why);
    else
        snprintf(reason, size, "its neighbour did not work all the time");
}

/* Starts the neighbour of the requests, if any, which works until it is told to end. */
static bool start_neighbour(struct bench *bench, struct bench_process *process, size_t subject,
    enum beside beside, double seconds, const char *board, char *reason, size_t size)
{
    char place[PATH_MAX];
    struct bench_limits limits;
    struct bench_load greedy = bench_tenants_kernels(bench, 0, 50);
    if (beside == ALONE)
        return true;
    greedy.seconds = seconds + LONGER_S;
    if (!bench_tenants_limit(bench, subject, beside == GREEDY ? 70 : 50, board, place,
            sizeof(place), &limits, reason, size))
        return false;
    if (beside == GREEDY)
        return bench_load_start(bench, process, subject, &limits, &greedy) == 0;
    limits.memory_mib = subject ? bench->memory_mib / 8 : 0;
    return bench_can_limit(bench, subject, &limits, reason, size) &&
           bench_start_worker(
               bench, process, subject, &limits, seconds + 2 * LONGER_S, "storm", NULL) == 0;
}

/* Waits until it works; false where it ended instead. */
static bool neighbour_begins(
    struct bench_process *process, enum beside beside, char *reason, size_t size)
{
    size_t offset = 0;
    if (beside == STORM)
        (void)bench_process_word(process, &offset, "began");
    else
        bench_process_wait_until(process, 1, clock_now_ns() + BEGINS_NS);
    if (process->ended)
        neighbour_reason(process, reason, size);
    return !process->ended;
}

/* Ends it, and gathers what it did beside the requests. False where it did not work from the first
 * to the last of their windows. */
static bool gather_greedy(struct bench *bench, size_t subject, struct bench_process *process,
    const struct bench_report *requests)
{
    struct bench_report report;
    char reason[256];
    bench_process_kill(process, SIGTERM);
    bench_process_wait(process, 1);
    if (!bench_load_report(process, &report, reason, sizeof(reason)))
        return false;
    uint64_t requests_end_ns = bench_report_end_ns(requests),
             end_ns = report.begin_ns + (uint64_t)(report.seconds * 1e9);
    double work = bench_report_between(&report, requests->begin_ns, requests_end_ns);
    bool worked = report.begin_ns <= requests->begin_ns && end_ns >= requests_end_ns && work >= 0;
    if (worked)
        bench_sample(bench, subject, greedy_definition.id, besides[GREEDY], work * 100, 1);
    bench_report_finish(&report);
    return worked;
}

/* The same; it is known to have begun before the requests, and does not end by itself. */
static bool gather_storm(struct bench *bench, size_t subject, struct bench_process *process)
{
    char reason[256];
    bench_process_end_input(process);
    bench_process_wait(process, 1);
    if (bench_process_failure(process, reason, sizeof(reason)))
        return false;
    bench_gather_worker(bench, subject, besides[STORM], NULL, process);
    return true;
}

static bool gather_neighbour(struct bench *bench, size_t subject, enum beside beside,
    struct bench_process *process, const struct bench_report *requests, char *reason, size_t size)
{
    bool worked = beside == ALONE;
    if (beside == GREEDY)
        worked = gather_greedy(bench, subject, process, requests);
    else if (beside == STORM)
        worked = gather_storm(bench, subject, process);
    if (!worked)
        neighbour_reason(process, reason, size);
    return worked;
}

static void run_latency(struct bench *bench, const struct bench_item *item, size_t variant)
{
    size_t subject = variant / BESIDES;
    enum beside beside = (enum beside)(variant % BESIDES);
    struct bench_process processes[2] = {{0}};
    struct bench_report report = {0};
    struct bench_load requests = {.shape = "sync",
        .kernel_us = 100,
        .window_ms = 50,
        .seconds = (bench->results.full ? 5 : 1.5) * bench->options->scale + 0.1,
        .warmup = 0.1,
        .more = {"--period-ms", "10"}};
    char board[PATH_MAX], place[PATH_MAX], reason[256] = "";
    struct bench_limits limits;
    (void)item;
    if (bench->failed[subject][0])
        return;
    bench_place(bench, board, sizeof(board));
    bool good =
        start_neighbour(bench, &processes[1], subject, beside, requests.seconds + requests.warmup,
            board, reason, sizeof(reason)) &&
        bench_tenants_limit(
            bench, subject, 20, board, place, sizeof(place), &limits, reason, sizeof(reason)) &&
        (beside == ALONE || neighbour_begins(&processes[1], beside, reason, sizeof(reason))) &&
        bench_load_start(bench, &processes[0], subject, &limits, &requests) == 0;
    bench_process_wait(&processes[0], good ? 1 : 0);
    good = good && bench_load_report(&processes[0], &report, reason, sizeof(reason)) &&
           gather_neighbour(bench, subject, beside, &processes[1], &report, reason, sizeof(reason));
    if (good)
        gather_latency(bench, subject, beside, &report);
    else if (!bench_stopped())
        bench_missing_all(
            bench, subject, besides[beside], reason[0] ? reason : "a tenant could not be started");
    bench_report_finish(&report);
    for (size_t i = 0; i < 2; i++) {
        bench_note_end(bench, subject, &processes[i]);
        bench_process_finish(&processes[i]);
    }
}

static void judge_death(
    struct bench *bench, size_t subject, const struct bench_report *report, uint64_t killed_ns)
{
    double work = bench_report_between(report, killed_ns + BENCH_TENANTS_AFTER_NS, UINT64_MAX);
    if (killed_ns < report->begin_ns + BENCH_TENANTS_AFTER_NS) {
        bench_missing_all(bench, subject, "", "it had not begun when its neighbour was killed");
        return;
    }
    if (work >= 0) {
        bench_sample(bench, subject, survivor_definition.id, "", work * 100, 1);
        bench_sample(
            bench, subject, gap_definition.id, "", bench_windows_gap_ms(report, killed_ns), 1);
    } else {
        bench_missing_all(bench, subject, "", "it had ended before its neighbour was killed");
    }
}

/* Kills the second in the midst of their work and waits for the first; when that was, or 0 where
 * the second had ended before. */
static uint64_t kill_neighbour(
    struct bench_process *processes, double seconds, char *reason, size_t size)
{
    bench_process_wait_until(processes, 2, clock_now_ns() + (uint64_t)(seconds / 2 * 1e9));
    if (processes[1].ended) {
        neighbour_reason(&processes[1], reason, size);
        return 0;
    }
    uint64_t killed_ns = clock_now_ns();
    bench_process_kill(&processes[1], SIGKILL);
    bench_process_wait(processes, 2);
    return killed_ns;
}

static void run_death(struct bench *bench, const struct bench_item *item, size_t subject)
{
    struct bench_process processes[2] = {{0}};
    struct bench_report report;
    struct bench_load load = bench_tenants_kernels(bench, 2, GAP_WINDOW_MS);
    char board[PATH_MAX], places[2][PATH_MAX], reason[256] = "a tenant could not be started";
    struct bench_limits limits;
    bool good = true;
    (void)item;
    if (bench->failed[subject][0])
        return;
    load.seconds += 1.5;
    bench_place(bench, board, sizeof(board));
    for (size_t i = 0; good && i < 2; i++) {
        good = bench_tenants_limit(bench, subject, 50, board, places[i], sizeof(places[i]), &limits,
                   reason, sizeof(reason)) &&
               bench_load_start(bench, &processes[i], subject, &limits, &load) == 0;
    }
    uint64_t killed_ns = good ? kill_neighbour(processes, load.seconds, reason, sizeof(reason)) : 0;
    bench_note_end(bench, subject, &processes[0]);
    if (killed_ns && bench_load_report(&processes[0], &report, reason, sizeof(reason))) {
        judge_death(bench, subject, &report, killed_ns);
        bench_report_finish(&report);
    } else if (!bench_stopped()) {
        bench_missing_all(bench, subject, "", reason);
    }
    for (size_t i = 0; i < 2; i++)
        bench_process_finish(&processes[i]);
}

static void declare(struct bench *bench)
{
    char condition[64];
    for (size_t m = 0; m < MIXES; m++) {
        for (size_t i = 0; i < mixes[m].count; i++) {
            snprintf(condition, sizeof(condition), "%s, %s", mixes[m].name, ordinals[i]);
            bench_declare_target(bench, &share_definition, condition, mixes[m].limits[i]);
        }
        if (mixes[m].sum_target > 0)
            bench_declare_target(bench, &sum_definition, mixes[m].name, mixes[m].sum_target);
        else
            bench_declare(bench, &sum_definition, mixes[m].name);
    }
    for (size_t i = 0; i < BESIDES; i++) {
        bench_declare(bench, &latency_definitions[0], besides[i]);
        bench_declare(bench, &latency_definitions[1], besides[i]);
    }
    bench_declare(bench, &greedy_definition, besides[GREEDY]);
    bench_declare(bench, &storm_definition, besides[STORM]);
    bench_declare(bench, &survivor_definition, "");
    bench_declare(bench, &gap_definition, "");
    if (bench->results.full)
        bench_tenants_idle_declare(bench);
}

void bench_tenants_judge_share(
    struct bench *bench, const struct bench_definition *definition, const char *condition)
{
    if (alone_count)
        bench_divide(
            bench, definition->id, condition, bench_quantile(alone_work, alone_count, 0.5));
    else
        bench_drop(bench, definition->id, condition,
            alone_missing[0] ? alone_missing : "the load alone did nothing natively");
}

static void judge(struct bench *bench)
{
    char condition[64];
    for (size_t m = 0; m < MIXES; m++) {
        for (size_t i = 0; i < mixes[m].count; i++) {
            snprintf(condition, sizeof(condition), "%s, %s", mixes[m].name, ordinals[i]);
            bench_tenants_judge_share(bench, &share_definition, condition);
        }
        bench_tenants_judge_share(bench, &sum_definition, mixes[m].name);
    }
    bench_tenants_judge_share(bench, &greedy_definition, besides[GREEDY]);
    bench_tenants_judge_share(bench, &survivor_definition, "");
    if (bench->results.full)
        bench_tenants_idle_judge(bench);
}

void bench_tenants(struct bench *bench)
{
    const size_t subjects = bench->results.subject_count;
    const double more_s = bench->results.full ? 3 : 0;
    const struct bench_item items[] = {
        {"the load alone", 1, 2.5, ALONE_MOST, run_alone, NULL},
        {"two tenants, 50/50", subjects, 3.6 + more_s, 0, run_mix, &mixes[0]},
        {"two tenants, 30/60", subjects, 3.6 + more_s, 0, run_mix, &mixes[1]},
        {"four tenants", subjects, 4 + more_s, 0, run_mix, &mixes[2]},
        {"requests beside a neighbour", BESIDES * subjects, 3.6 + more_s, 0, run_latency, NULL},
        {"a neighbour that dies", subjects, 4.2, 6, run_death, NULL},
        {"a tenant that comes back", subjects, 5.3, 6, bench_tenants_idle_run, NULL}, /* --full */
    };
    const size_t count = sizeof(items) / sizeof(items[0]);
    alone_count = 0;
    alone_missing[0] = '\0';
    declare(bench);
    bench_run_items(bench, items, bench->results.full ? count : count - 1);
    judge(bench);
}
