/* SPDX-License-Identifier: Apache-2.0 */
/* A tenant that is idle and comes back beside a busy one: whether it has its part at once, and
 * whether the other keeps its own meanwhile and takes no more. */
#include "bench/tenants.h"

#include <stdio.h>

#define LIMIT 50 /* of each */
/* 100 ms of work each 500 ms: 200 ms at its limit, and idle for 300. */
#define BURST_MS "100"
#define PERIOD_MS "500"
#define BURST_TARGET_MS 200
#define BURST_TARGET_SHARE 20

static const char *const conditions[] = {"the one always at work", "the one that returns"};
static const double targets[] = {LIMIT, BURST_TARGET_SHARE};

static const struct bench_definition share_definition = {"tenants.idle.share",
    "share beside idleness",
    "Of two tenants of limit 50 one works all the time, the other 100 ms of each 500 ms, with "
    "kernels of 1 ms: each one's kernels while both are there, by what the load does alone "
    "natively. Target: the limit, and what the other asks for, 20.",
    "%", BENCH_TARGET, false, 0};
static const struct bench_definition burst_definition = {"tenants.idle.burst",
    "work of the one that returns",
    "Of two tenants of limit 50 one works all the time, the other 100 ms of each 500 ms: how long "
    "that takes, the median. Target: 200, by its limit; less is time that was saved up while it "
    "was idle, or the other's.",
    "ms", BENCH_TARGET, true, BURST_TARGET_MS};

void bench_tenants_idle_declare(struct bench *bench)
{
    for (size_t i = 0; i < 2; i++)
        bench_declare_target(bench, &share_definition, conditions[i], targets[i]);
    bench_declare(bench, &burst_definition, "");
}

void bench_tenants_idle_judge(struct bench *bench)
{
    for (size_t i = 0; i < 2; i++)
        bench_tenants_judge_share(bench, &share_definition, conditions[i]);
}

static void miss(struct bench *bench, size_t subject, const char *reason)
{
    for (size_t i = 0; i < 2; i++)
        bench_missing(bench, subject, share_definition.id, conditions[i], reason);
    bench_missing(bench, subject, burst_definition.id, "", reason);
}

static void gather(struct bench *bench, size_t subject, const struct bench_report *reports)
{
    double works[2];
    uint64_t after_ns = (uint64_t)(BENCH_TENANTS_AFTER_NS * bench->options->scale);
    if (!bench_windows_together(reports, 2, after_ns, works)) {
        miss(bench, subject, "its tenants did not work at the same time");
        return;
    }
    for (size_t i = 0; i < 2; i++)
        bench_sample(bench, subject, share_definition.id, conditions[i], works[i] * 100, 1);
    bench_latency_sample(
        bench, subject, burst_definition.id, "", &reports[1], reports[1].p50_us, "burst");
}

void bench_tenants_idle_run(struct bench *bench, const struct bench_item *item, size_t subject)
{
    struct bench_process processes[2] = {{0}};
    struct bench_report reports[2] = {{0}};
    struct bench_load loads[2] = {
        bench_tenants_kernels(bench, 4.5, 50), bench_tenants_kernels(bench, 4, 50)};
    char board[PATH_MAX], places[2][PATH_MAX], reason[256] = "a tenant could not be started";
    struct bench_limits limits;
    bool good = true;
    (void)item;
    if (bench->failed[subject][0])
        return;
    loads[1].shape = "burst";
    loads[1].more[0] = "--burst-ms";
    loads[1].more[1] = BURST_MS;
    loads[1].more[2] = "--period-ms";
    loads[1].more[3] = PERIOD_MS;
    bench_place(bench, board, sizeof(board));
    for (size_t i = 0; good && i < 2; i++) {
        good = bench_tenants_limit(bench, subject, LIMIT, board, places[i], sizeof(places[i]),
                   &limits, reason, sizeof(reason)) &&
               bench_load_start(bench, &processes[i], subject, &limits, &loads[i]) == 0;
    }
    bench_process_wait(processes, 2);
    for (size_t i = 0; i < 2; i++) {
        bench_note_end(bench, subject, &processes[i]);
        good = good && bench_load_report(&processes[i], &reports[i], reason, sizeof(reason));
        bench_process_finish(&processes[i]);
    }
    if (good)
        gather(bench, subject, reports);
    else if (!bench_stopped())
        miss(bench, subject, reason);
    for (size_t i = 0; i < 2; i++)
        bench_report_finish(&reports[i]);
}
