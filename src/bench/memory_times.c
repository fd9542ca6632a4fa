/* SPDX-License-Identifier: Apache-2.0 */
/* What it takes to be refused memory, and until that of a killed process is there again. */
#include "bench/memory.h"

#include "base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define PEERS 4

static const struct bench_definition time_definition = {"memory.refusal", "time of a refusal",
    "One cuMemAlloc that is refused, the median of 501. Natively of more than the card has; under "
    "a limit of twice "
    "the limit, and beside processes that hold half of it of nine tenths.",
    "µs", BENCH_LOWER, true, 1};
static const struct bench_definition kill_definition = {"memory.kill", "memory back after a kill",
    "From the SIGKILL of a process that held six tenths of the limit until another of the "
    "container was given as "
    "much, trying each 0.2 ms.",
    "ms", BENCH_LOWER, false, 0};

static char peers_condition[64];
static double limit_mib; /* of the other figures; here it is twice that */

static void time_refusal(struct bench *bench, size_t subject, const struct bench_limits *limits,
    const char *condition, double mib)
{
    struct bench_process process = {0};
    char bytes[32];
    bench_memory_bytes(bytes, sizeof(bytes), mib);
    if (bench_start_worker(bench, &process, subject, limits, BENCH_MEMORY_DEADLINE_S,
            "refusal-time", time_definition.id, bytes, NULL) != 0)
        return;
    bench_gather_worker(bench, subject, condition, NULL, &process);
    bench_process_finish(&process);
}

static void run_time(struct bench *bench, const struct bench_item *item, size_t subject)
{
    struct bench_process holders[PEERS] = {{0}};
    struct bench_limits limits = {0};
    char place[PATH_MAX], bytes[32];
    size_t offset, held = 0;
    (void)item;
    if (!subject && !bench->failed[0][0]) {
        bench_place(bench, place, sizeof(place));
        limits.place = place;
        time_refusal(bench, 0, &limits, "own memory", bench->memory_mib + 1024);
        return;
    }
    if (!bench_memory_begin(bench, subject, &limits, place, sizeof(place), limit_mib * 2))
        return;
    time_refusal(bench, subject, &limits, "own memory", limit_mib * 4);
    bench_memory_bytes(bytes, sizeof(bytes), limit_mib / PEERS);
    while (held < PEERS && !bench_stopped()) {
        offset = 0;
        if (bench_start_worker(bench, &holders[held], subject, &limits, 2 * BENCH_MEMORY_DEADLINE_S,
                "hold", bytes, NULL) != 0 ||
            bench_process_word(&holders[held], &offset, "held") < 0)
            break;
        held++;
    }
    if (held == PEERS)
        time_refusal(bench, subject, &limits, peers_condition, limit_mib * 1.8);
    else
        bench_missing(bench, subject, time_definition.id, peers_condition,
            "its processes could not hold half of the limit");
    for (size_t i = 0; i < PEERS; i++)
        bench_process_finish(&holders[i]);
}

static void run_kill(struct bench *bench, const struct bench_item *item, size_t subject)
{
    struct bench_process holder = {0}, other = {0};
    struct bench_limits limits;
    char place[PATH_MAX], bytes[32], reason[256] = "";
    size_t offset = 0, other_offset = 0;
    (void)item;
    /* Two contexts and six tenths fit; twice six tenths do not. */
    if (!bench_memory_begin(bench, subject, &limits, place, sizeof(place), limit_mib * 2))
        return;
    bench_memory_bytes(bytes, sizeof(bytes), limit_mib * 1.2);
    if (bench_start_worker(
            bench, &holder, subject, &limits, BENCH_MEMORY_DEADLINE_S, "hold", bytes, NULL) == 0 &&
        bench_process_word(&holder, &offset, "held") >= 0 &&
        bench_start_worker(
            bench, &other, subject, &limits, BENCH_MEMORY_DEADLINE_S, "retry", bytes, NULL) == 0 &&
        bench_process_word(&other, &other_offset, "ready") >= 0) {
        uint64_t killed_ns = clock_now_ns();
        bench_process_kill(&holder, SIGKILL);
        bench_process_wait(&holder, 1); /* a zombie may still count as a process that holds it */
        double back_ns = bench_process_word(&other, &other_offset, "back");
        if (back_ns >= 0)
            bench_sample(
                bench, subject, kill_definition.id, "", (back_ns - (double)killed_ns) / 1e6, 1);
    }
    bench_process_wait(&other, 1);
    if (!bench_process_failure(other.pid ? &other : &holder, reason, sizeof(reason)))
        reason[0] = '\0';
    if (reason[0] && !bench_stopped())
        bench_missing(bench, subject, kill_definition.id, "", reason);
    bench_process_finish(&other);
    bench_process_finish(&holder);
}

size_t bench_memory_times(struct bench *bench, double limit, struct bench_item *items)
{
    const size_t subjects = bench->results.subject_count;
    const struct bench_item all[BENCH_MEMORY_TIMES] = {
        {"time of a refusal", subjects, 2, 5, run_time, NULL},
        {"memory after a kill", subjects, 0.7, 10, /* natively none */ run_kill, NULL},
    };
    limit_mib = limit;
    snprintf(peers_condition, sizeof(peers_condition), "beside %d processes", PEERS);
    bench_declare(bench, &time_definition, "own memory");
    bench_declare_target(bench, &time_definition, peers_condition, 1 + 0.3 * PEERS);
    bench_declare(bench, &kill_definition, "");
    bench_missing(bench, 0, time_definition.id, peers_condition, BENCH_NO_LIMIT);
    bench_missing(bench, 0, kill_definition.id, "", BENCH_NO_LIMIT);
    memcpy(items, all, sizeof(all));
    return BENCH_MEMORY_TIMES;
}
