/* SPDX-License-Identifier: Apache-2.0 */
/* Compute limits when something changes: the limit, the load, or after the GPU was idle. */
#include "bench/compute.h"

#include "base/clock.h"
#include "host/paths.h"

#include <stdio.h>
#include <string.h>

#define STEP_S 1.5  /* between changes of the limit */
#define BEGUN_S 0.3 /* seconds of work before a change */

static const struct bench_definition change_definition = {"compute.change.limit",
    "change of the limit",
    "The limit is changed from 80 to 20 and to 70, with --full twice, by `vgpu set` while kernels "
    "of 100 µs run: the time from the call of that until the share over the next 50 ms is within a "
    "tenth of the new limit, and stays there: over 0.35 s together too, and over each 50 ms of "
    "them within a quarter.",
    "ms", BENCH_LOWER, true, 50};
static const struct bench_definition load_definition = {"compute.change.load", "change of the load",
    "A second process of the container begins while one works under a limit of 50: the time until "
    "the share of both over the next 50 ms is within a tenth of the limit, and stays there "
    "likewise.",
    "ms", BENCH_LOWER, false, 0};
static const struct bench_definition burst_definition = {"compute.burst", "burst after idleness",
    "In a container of limit 20 a program worked for 0.3 s, and nothing for 1 s: the share of the "
    "next one, with kernels of 1 ms, from its begin on. Target: the limit; "
    "more is time that was saved up.",
    "%", BENCH_TARGET, true, 20};
static const unsigned changes[] = {20, 70, 20, 70}; /* to which the limit is changed */
#define CHANGES_MOST (sizeof(changes) / sizeof(changes[0]))
#define CHANGES_QUICK 2
static const char *const burst_conditions[] = {"first 100 ms", "first 1 s"};
static const struct bench_definition below_definition = {"compute.below", "bursts below the limit",
    "A program that works 10 ms of each 50 ms under a limit of 50, more than twice what it needs: "
    "how long a burst "
    "takes, the median.",
    "ms", BENCH_LOWER, false, 0};

unsigned bench_compute_window_ms(const struct bench *bench)
{
    double ms = 100 * bench->options->scale;
    return ms < 2 ? 2 : (unsigned)ms;
}

/* Runs `vgpu set`; false with its words where it refuses. */
static bool set_limit(struct bench *bench, const struct bench_limits *limits, unsigned cores,
    char *reason, size_t size)
{
    char vgpu[PATH_MAX], region[PATH_MAX + 16], percent[16], why[200];
    struct bench_process process = {0};
    char *arguments[] = {
        vgpu, (char *)"set", (char *)"--cores", percent, (char *)"--region", region, NULL};
    snprintf(percent, sizeof(percent), "%u", cores);
    snprintf(region, sizeof(region), "%s/region", limits->place);
    if (path_find("vgpu", vgpu, sizeof(vgpu)) != 0) {
        snprintf(reason, size, "vgpu, whose `vgpu set` changes limits, is not installed");
        return false;
    }
    if (bench_start(bench, &process, 0, limits, arguments, 10) != 0)
        return false;
    bench_process_wait(&process, 1);
    bool good = !bench_process_failure(&process, why, sizeof(why));
    if (!good)
        snprintf(reason, size, "`vgpu set` cannot change its limit: %s", why);
    bench_process_finish(&process);
    return good;
}

static struct bench_load fine_load(double seconds)
{
    return (struct bench_load){.shape = "full",
        .kernel_us = 100,
        .window_ms = WINDOWS_FINE_MS,
        .seconds = seconds,
        .warmup = 0};
}

static bool begin(struct bench *bench, size_t subject, const struct bench_definition *definition,
    struct bench_limits *limits, char *place, size_t size)
{
    char reason[200] = BENCH_NO_LIMIT;
    if (bench->failed[subject][0])
        return false;
    if (!subject || !bench_can_limit(bench, subject, limits, reason, sizeof(reason))) {
        bench_missing(bench, subject, definition->id, "", reason);
        return false;
    }
    bench_place(bench, place, size);
    limits->place = place;
    return true;
}

static size_t change_count(const struct bench *bench)
{
    return bench->results.full ? CHANGES_MOST : CHANGES_QUICK;
}

static uint64_t later(uint64_t ns, double seconds)
{
    return ns + (uint64_t)(seconds * 1e9);
}

/* From each change of the limit on. */
static void gather_limit(struct bench *bench, size_t subject, const struct bench_report *report,
    const uint64_t *changed_ns, char *reason, size_t size)
{
    for (size_t i = 0; i < change_count(bench); i++) {
        if (changed_ns[i] < later(report->begin_ns, BEGUN_S)) {
            snprintf(reason, size, "its load had not begun when the limit was changed");
            continue;
        }
        double ms = bench_windows_reached_ms(report, 1, changed_ns[i], changes[i] / 100.0);
        if (ms >= 0)
            bench_sample(bench, subject, change_definition.id, "", ms, 1);
        else
            snprintf(reason, size,
                "the new limit was not reached and kept within the time that was looked at");
    }
}

static void run_limit(struct bench *bench, const struct bench_item *item, size_t subject)
{
    struct bench_limits limits = {.cores = 80};
    struct bench_process process = {0};
    struct bench_report report;
    char place[PATH_MAX], reason[256] = "";
    uint64_t changed_ns[CHANGES_MOST];
    /* Not scaled: it has to be as long as what is waited for. */
    struct bench_load load = fine_load(STEP_S * (double)(change_count(bench) + 1) + 0.5);
    bool set = true;
    (void)item;
    if (!begin(bench, subject, &change_definition, &limits, place, sizeof(place)) ||
        bench_load_start(bench, &process, subject, &limits, &load) != 0)
        return;
    for (size_t i = 0; set && i < change_count(bench); i++) {
        bench_process_wait_until(&process, 1, later(process.started_ns, STEP_S * (double)(i + 1)));
        changed_ns[i] = clock_now_ns();
        set = set_limit(bench, &limits, changes[i], reason, sizeof(reason));
    }
    if (set)
        bench_process_wait(&process, 1);
    bench_note_end(bench, subject, &process);
    if (set && bench_load_report(&process, &report, reason, sizeof(reason))) {
        gather_limit(bench, subject, &report, changed_ns, reason, sizeof(reason));
        bench_report_finish(&report);
    }
    if (reason[0] && !bench_stopped())
        bench_missing(bench, subject, change_definition.id, "", reason);
    bench_process_finish(&process);
}

/* From the second one's begin on. */
static void gather_load(struct bench *bench, size_t subject, const struct bench_report *reports,
    char *reason, size_t size)
{
    if (reports[1].begin_ns < later(reports[0].begin_ns, BEGUN_S)) {
        snprintf(reason, size, "its first load had not begun when the second did");
        return;
    }
    double ms = bench_windows_reached_ms(reports, 2, reports[1].begin_ns, 0.5);
    if (ms >= 0)
        bench_sample(bench, subject, load_definition.id, "", ms, 1);
    else
        snprintf(reason, size,
            "both together did not come and stay near the limit within the time that was looked "
            "at");
}

static void run_load(struct bench *bench, const struct bench_item *item, size_t subject)
{
    struct bench_limits limits = {.cores = 50};
    struct bench_process processes[2] = {{0}};
    struct bench_report reports[2] = {{0}};
    char place[PATH_MAX], reason[256] = "";
    struct bench_load loads[2] = {fine_load(4), fine_load(2)};
    (void)item;
    if (!begin(bench, subject, &load_definition, &limits, place, sizeof(place)) ||
        bench_load_start(bench, &processes[0], subject, &limits, &loads[0]) != 0)
        return;
    bench_process_wait_until(processes, 1, later(processes[0].started_ns, STEP_S));
    if (bench_load_start(bench, &processes[1], subject, &limits, &loads[1]) == 0) {
        bench_process_wait(processes, 2);
        if (bench_load_report(&processes[0], &reports[0], reason, sizeof(reason)) &&
            bench_load_report(&processes[1], &reports[1], reason, sizeof(reason)))
            gather_load(bench, subject, reports, reason, sizeof(reason));
    }
    for (size_t i = 0; i < 2; i++) {
        bench_note_end(bench, subject, &processes[i]);
        bench_report_finish(&reports[i]);
        bench_process_finish(&processes[i]);
    }
    if (reason[0] && !bench_stopped())
        bench_missing(bench, subject, load_definition.id, "", reason);
}

static void run_burst(struct bench *bench, const struct bench_item *item, size_t subject)
{
    static const double seconds[] = {0.1, 1};
    struct bench_limits limits = {.cores = 20};
    struct bench_load load = {
        .shape = "full", .kernel_us = 1000, .window_ms = WINDOWS_FINE_MS, .seconds = 0.3};
    struct bench_process process = {0};
    struct bench_report report = {0};
    char place[PATH_MAX], reason[256] = BENCH_NO_LIMIT;
    (void)item;
    if (bench->failed[subject][0])
        return;
    bool good = subject && bench_can_limit(bench, subject, &limits, reason, sizeof(reason));
    if (good)
        bench_place(bench, place, sizeof(place));
    limits.place = place;
    for (int second = 0; good && second < 2 && !bench_stopped(); second++) {
        good = bench_load_start(bench, &process, subject, &limits, &load) == 0;
        bench_process_wait(&process, 1);
        bench_note_end(bench, subject, &process);
        bench_report_finish(&report);
        good = good && bench_load_report(&process, &report, reason, sizeof(reason));
        bench_process_finish(&process);
        load.seconds = 1.1;
        bench_sleep_until(later(clock_now_ns(), second ? 0 : 1));
    }
    for (size_t i = 0; i < 2 && !bench_stopped(); i++) {
        double share =
            bench_report_between(&report, report.begin_ns, later(report.begin_ns, seconds[i]));
        if (good && share >= 0)
            bench_sample(bench, subject, burst_definition.id, burst_conditions[i], share * 100, 1);
        else
            bench_missing(bench, subject, burst_definition.id, burst_conditions[i],
                good ? "its load ended without a whole window" : reason);
    }
    bench_report_finish(&report);
}

static void run_below(struct bench *bench, const struct bench_item *item, size_t subject)
{
    struct bench_limits limits = {.cores = 50};
    struct bench_load load = {.shape = "burst",
        .kernel_us = 1000,
        .window_ms = 100,
        .seconds = (bench->results.full ? 3 : 1.5) * bench->options->scale + 0.3,
        .more = {"--burst-ms", "10", "--period-ms", "50"}};
    struct bench_report report;
    char reason[256] = "";
    (void)item;
    if (bench->failed[subject][0])
        return;
    if (!bench_load_run(bench, subject, &limits, &load, &report, reason, sizeof(reason))) {
        bench_missing(bench, subject, below_definition.id, "", reason);
        return;
    }
    bench_latency_sample(bench, subject, below_definition.id, "", &report, report.p50_us, "burst");
    bench_report_finish(&report);
}

size_t bench_compute_changes(struct bench *bench, struct bench_item *items)
{
    const size_t subjects = bench->results.subject_count;
    const struct bench_item all[BENCH_CHANGES_MOST] = {
        {"change of the limit", subjects, bench->results.full ? 4.3 : 2.8, 6, run_limit, NULL},
        {"change of the load", subjects, 2.5, 6, run_load, NULL},
        {"burst after idleness", subjects, 1.8, 4, run_burst, NULL},
        {"bursts below the limit", subjects, bench->results.full ? 4 : 2.3, 4, run_below, NULL},
    };
    bench_declare(bench, &change_definition, "");
    bench_declare(bench, &load_definition, "");
    for (size_t i = 0; i < 2; i++)
        bench_declare(bench, &burst_definition, burst_conditions[i]);
    bench_declare(bench, &below_definition, "");
    memcpy(items, all, sizeof(all));
    return BENCH_CHANGES_MOST;
}
