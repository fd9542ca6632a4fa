/* SPDX-License-Identifier: Apache-2.0 */
/* What a library costs a program that stays within its limits. */
#include "bench/chance.h"
#include "bench/turns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FREE "no limit"
#define HELD "limits not reached"
#define BUSY "limit 50"
#define STARTS 20
#define INITS 2
#define CALL_ROUNDS 6 /* of turns in the life of a process */
#define LIVE_ROUNDS 10
#define CALLS_MIB 64 /* what a process of the calls holds at most */
#define TOO_SMALL "the GPU's memory is too small"

static const struct bench_definition call_definitions[] = {
    {"cost.launch.async", "asynchronous launch",
        "The calling thread's time in one cuLaunchKernel of an empty kernel: the median batch of "
        "200 "
        "launches, which fit into the driver's queue, waited for in between.",
        "ns", BENCH_LOWER, false, 0},
    {"cost.launch.sync", "launch and wait",
        "One cuLaunchKernel of an empty kernel with the cuStreamSynchronize behind it, the median.",
        "µs", BENCH_LOWER, false, 0},
    {"cost.launch.graph", "launch of a graph",
        "The calling thread's time in one cuGraphLaunch of a graph of 20 empty kernels: the median "
        "batch "
        "of 10 launches.",
        "ns", BENCH_LOWER, false, 0},
    {"cost.alloc.1MiB", "allocation and free, 1 MiB",
        "One cuMemAlloc of 1 MiB with its cuMemFree, out of a block of 2 MiB that the driver holds "
        "for the program already, the median.",
        "µs", BENCH_LOWER, false, 0},
    {"cost.alloc.2MiB", "allocation and free, 2 MiB",
        "One cuMemAlloc of 2 MiB with its cuMemFree, for which the driver asks its kernel module "
        "each time, the median; little else is allocated.",
        "µs", BENCH_LOWER, false, 0},
    {"cost.alloc.64MiB", "allocation and free, 64 MiB",
        "One cuMemAlloc of 64 MiB with its cuMemFree, the median; little else is allocated.", "µs",
        BENCH_LOWER, false, 0},
    {"cost.alloc.async", "asynchronous allocation",
        "One cuMemAllocAsync of 1 MiB with its cuMemFreeAsync, from a pool that keeps what it has, "
        "the "
        "median.",
        "µs", BENCH_LOWER, false, 0},
    {"cost.query", "memory query", "One cuMemGetInfo, the median.", "µs", BENCH_LOWER, false, 0},
};
/* Once for a process. */
static const struct bench_definition once_definitions[] = {
    {"cost.init", "cuInit", "The first cuInit of a process.", "ms", BENCH_LOWER, false, 0},
    {"cost.context", "first context", "The first cuDevicePrimaryCtxRetain of a process.", "ms",
        BENCH_LOWER, false, 0},
    {"cost.cpu.idle", "background CPU, idle",
        "CPU time of all threads but the program's own, the driver's among them, while a program "
        "with a context sleeps, from 0.2 s after it fell asleep, in percent of a core.",
        "% of a core", BENCH_LOWER, false, 0},
};
static const struct bench_definition start_definition = {"cost.start", "process start",
    "From fork and exec to the end of a program that does nothing, the median of 20.", "ms",
    BENCH_LOWER, false, 0};
static const struct bench_definition busy_definition = {"cost.cpu.busy", "background CPU, busy",
    "CPU time of all threads but the program's own, the driver's among them, while its own thread "
    "has the GPU "
    "work all the time with kernels of 1 ms, in percent of a core.",
    "% of a core", BENCH_LOWER, false, 0};
static const struct bench_definition live_definitions[] = {
    {"cost.alloc.live.10000", "allocation and free, 10,000 live",
        "One cuMemAlloc of 2 MiB with its cuMemFree while 10,000 allocations of 256 KiB live, the "
        "median.",
        "µs", BENCH_LOWER, false, 0},
    {"cost.alloc.live.100000", "allocation and free, 100,000 live",
        "One cuMemAlloc of 2 MiB with its cuMemFree while 100,000 allocations of 256 KiB live, the "
        "median.",
        "µs", BENCH_LOWER, false, 0},
};

/* What is judged: the difference from native, of the same condition. */
static const struct added {
    struct bench_definition definition;
    const char *of;
    double targets[2]; /* without a limit, with limits that are not reached */
    bool percent;
    bool full; /* measured by --full alone */
} addeds[] = {
    {{"cost.launch.added", "added to a launch",
         "What an asynchronous launch takes more than natively, in the same turn.", "ns",
         BENCH_LOWER, true, 5},
        "cost.launch.async", {5, 60}, false, false},
    {{"cost.alloc.added", "added to allocation and free",
         "What cuMemAlloc and cuMemFree of 2 MiB take more than natively in the same turn, in "
         "percent of "
         "it.",
         "%", BENCH_LOWER, true, 1},
        "cost.alloc.2MiB", {1, 1}, true, false},
    {{"cost.alloc.live.added", "added to allocation and free, 10,000 live",
         "What cuMemAlloc and cuMemFree of 2 MiB take more than natively while 10,000 allocations "
         "live, in percent.",
         "%", BENCH_LOWER, true, 1},
        "cost.alloc.live.10000", {1, 1}, true, false},
    {{"cost.alloc.live.100000.added", "added to allocation and free, 100,000 live",
         "What cuMemAlloc and cuMemFree of 2 MiB take more than natively while 100,000 allocations "
         "live, in percent.",
         "%", BENCH_LOWER, true, 1},
        "cost.alloc.live.100000", {1, 1}, true, true},
    {{"cost.init.added", "added to cuInit",
         "What the first cuInit takes more than natively in the same round.", "ms", BENCH_LOWER,
         true, 2},
        "cost.init", {2, 2}, false, false},
};
static const struct bench_definition cpu_definition = {"cost.cpu.added",
    "added background CPU, busy",
    "What the background threads of a busy program take more than natively in the same round.",
    "% of a core", BENCH_LOWER, true, 0.5};

/* The first variant is native, which has no limit and stands for both; then two for each subject.
 */
struct variant {
    size_t subject;
    bool held;
    const char *condition;
};

static struct variant variant_of(size_t number)
{
    struct variant variant = {(number + 1) / 2, number > 0 && number % 2 == 0, FREE};
    if (variant.held)
        variant.condition = HELD;
    return variant;
}

/* False where there is nothing to measure: it is said why then. */
static bool limits_of(struct bench *bench, const struct variant *variant, char *place, size_t size,
    struct bench_limits *ret_limits)
{
    char reason[200];
    if (bench->failed[variant->subject][0])
        return false;
    *ret_limits = (struct bench_limits){.place = place};
    if (variant->held) {
        ret_limits->cores = 95;
        ret_limits->memory_mib = bench->memory_mib * 0.9;
    }
    if (variant->subject &&
        !bench_can_limit(bench, variant->subject, ret_limits, reason, sizeof(reason))) {
        bench_missing_all(bench, variant->subject, variant->condition, reason);
        return false;
    }
    bench_place(bench, place, size);
    return true;
}

/* Starts the workers of the variants from `first` on, `count` of them, beside each other, in an
 * order by chance: the first process gets the first of the GPU's memory. `id` is the figure that
 * they measure, NULL: many. */
static size_t start_turns(struct bench *bench, struct bench_turn *turns, size_t first, size_t count,
    const char *id, char *const *arguments)
{
    size_t order[BENCH_TURNS_MOST];
    bench_shuffle(order, count);
    for (size_t k = 0; k < count && !bench_stopped(); k++) {
        size_t i = order[k];
        struct variant variant = variant_of(first + i);
        struct bench_limits limits;
        char place[PATH_MAX];
        turns[i] = (struct bench_turn){.subject = variant.subject,
            .condition = variant.condition,
            .also = variant.subject ? NULL : HELD,
            .id = id,
            .seconds = 60};
        if (limits_of(bench, &variant, place, sizeof(place), &limits) &&
            bench_start_worker(bench, &turns[i].process, variant.subject, &limits, 60, arguments[0],
                arguments[1], arguments[2], arguments[3], NULL) != 0)
            bench_missing_all(bench, variant.subject, variant.condition, "it cannot be started");
    }
    return bench_turns_ready(bench, turns, count);
}

static size_t variants(const struct bench *bench)
{
    return 2 * bench->results.subject_count - 1;
}

static void run_calls(struct bench *bench, const struct bench_item *item, size_t number)
{
    struct bench_turn turns[BENCH_TURNS_MOST] = {{0}};
    const size_t together = bench_turns_beside(bench, variants(bench), CALLS_MIB);
    const bool test = bench->options->scale < 1;
    char *arguments[] = {(char *)"cost", (char *)(test ? "20" : "200"), NULL, NULL};
    (void)item;
    (void)number;
    for (size_t first = 0; first < variants(bench) && !bench_stopped(); first += together) {
        if (start_turns(bench, turns, first, together, NULL, arguments)) {
            for (int round = 0; round < (test ? 1 : CALL_ROUNDS); round++)
                bench_turns_round_pinned(bench, turns, together, "turn");
            bench_turns_together(bench, turns, together, test ? "idle 0.02 0.02" : "idle 0.2 0.5");
        }
        bench_turns_finish(bench, turns, together);
    }
}

static void run_init(struct bench *bench, const struct bench_item *item, size_t number)
{
    struct variant variant = variant_of(number);
    struct bench_limits limits;
    char place[PATH_MAX];
    (void)item;
    if (!limits_of(bench, &variant, place, sizeof(place), &limits))
        return;
    for (int i = 0; i < INITS && !bench_stopped(); i++) {
        struct bench_process process = {0};
        bench->turn = (unsigned)i;
        if (bench_start_worker(bench, &process, variant.subject, &limits, 30, "init", NULL) != 0)
            return;
        bench_gather_worker(
            bench, variant.subject, variant.condition, variant.subject ? NULL : HELD, &process);
        bench_process_finish(&process);
    }
}

/* Its id says how many allocations of 256 KiB are live. */
static double live_mib(const struct bench_definition *definition)
{
    return atof(strrchr(definition->id, '.') + 1) / 4;
}

static void run_live(struct bench *bench, const struct bench_item *item, size_t number)
{
    const struct bench_definition *definition = item->data;
    struct bench_turn turns[BENCH_TURNS_MOST] = {{0}};
    const char *live = strrchr(definition->id, '.') + 1;
    const size_t together = bench_turns_beside(bench, variants(bench), live_mib(definition));
    const bool test = bench->options->scale < 1;
    char *arguments[] = {
        (char *)"crowd", (char *)definition->id, (char *)live, (char *)(test ? "21" : "201")};
    (void)number;
    for (size_t i = 0; bench->memory_mib * 0.8 < live_mib(definition) && i < variants(bench); i++) {
        struct variant variant = variant_of(i);
        bench_missing(bench, variant.subject, definition->id, variant.condition, TOO_SMALL);
        if (!i)
            bench_missing(bench, 0, definition->id, HELD, TOO_SMALL);
        if (i + 1 == variants(bench))
            return;
    }
    for (size_t first = 0; first < variants(bench) && !bench_stopped(); first += together) {
        if (start_turns(bench, turns, first, together, definition->id, arguments)) {
            for (int round = 0; round < (test ? 1 : LIVE_ROUNDS); round++)
                bench_turns_round_pinned(bench, turns, together, "turn");
        }
        bench_turns_finish(bench, turns, together);
    }
}

/* Milliseconds; negative where it failed, which is said. */
static double start_once(
    struct bench *bench, const struct variant *variant, const struct bench_limits *limits)
{
    struct bench_process process = {0};
    char reason[256];
    int error = bench_start_worker(bench, &process, variant->subject, limits, 30, "start", NULL);
    if (error)
        return -1;
    bench_process_wait(&process, 1);
    bench_note_end(bench, variant->subject, &process);
    bool good = !bench_process_failure(&process, reason, sizeof(reason));
    double took = (double)(process.ended_ns - process.started_ns) / 1e6;
    if (!good && !bench_stopped()) {
        bench_missing(bench, variant->subject, start_definition.id, variant->condition, reason);
        if (!variant->subject)
            bench_missing(bench, 0, start_definition.id, HELD, reason);
    }
    bench_process_finish(&process);
    return good ? took : -1;
}

/* A start of each variant in turn; each gets the median of its own. */
static void run_start(struct bench *bench, const struct bench_item *item, size_t number)
{
    struct bench_limits limits[BENCH_TURNS_MOST];
    char places[BENCH_TURNS_MOST][PATH_MAX];
    bool good[BENCH_TURNS_MOST] = {false};
    double took[BENCH_TURNS_MOST][STARTS];
    (void)item;
    (void)number;
    for (size_t i = 0; i < variants(bench); i++) {
        struct variant variant = variant_of(i);
        good[i] = limits_of(bench, &variant, places[i], sizeof(places[i]), &limits[i]);
    }
    for (size_t start = 0; start < STARTS && !bench_stopped(); start++) {
        size_t order[BENCH_TURNS_MOST];
        bench_shuffle(order, variants(bench));
        for (size_t k = 0; k < variants(bench); k++) {
            size_t i = order[k];
            struct variant variant = variant_of(i);
            if (good[i])
                took[i][start] = start_once(bench, &variant, &limits[i]);
            good[i] = good[i] && took[i][start] >= 0;
        }
    }
    for (size_t i = 0; i < variants(bench) && !bench_stopped(); i++) {
        struct variant variant = variant_of(i);
        double median = good[i] ? bench_quantile(took[i], STARTS, 0.5) : 0;
        if (good[i])
            bench_sample(bench, variant.subject, "cost.start", variant.condition, median, STARTS);
        if (good[i] && !i)
            bench_sample(bench, 0, "cost.start", HELD, median, STARTS);
    }
}

static void run_busy(struct bench *bench, const struct bench_item *item, size_t subject)
{
    struct bench_limits limits = {.cores = 50};
    struct bench_process process = {0};
    char place[PATH_MAX], reason[256], seconds[16];
    (void)item;
    if (bench->failed[subject][0])
        return;
    if (subject && !bench_can_limit(bench, subject, &limits, reason, sizeof(reason))) {
        bench_missing(bench, subject, busy_definition.id, BUSY, reason);
        return;
    }
    bench_place(bench, place, sizeof(place));
    limits.place = place;
    snprintf(seconds, sizeof(seconds), "%.3f", 2 * bench->options->scale);
    if (bench_start_worker(
            bench, &process, subject, &limits, 30, "busy", bench->calibration, seconds, NULL) != 0)
        return;
    bench_gather_worker(bench, subject, BUSY, NULL, &process);
    bench_process_finish(&process);
}

/* The number of consecutive samples of one process; 0 where the processes do not all
 * live beside each other, and their turns are not of the same time. */
static unsigned turns_of(const struct bench *bench, double mib, unsigned rounds)
{
    bool beside = bench_turns_beside(bench, variants(bench), mib) == variants(bench);
    return !beside ? 0 : bench->options->scale < 1 ? 1 : rounds;
}

static void declare_both(
    struct bench *bench, const struct bench_definition *definition, unsigned turns)
{
    bench_declare(bench, definition, FREE);
    bench_declare(bench, definition, HELD);
    bench_set_turns(bench, definition->id, FREE, turns);
    bench_set_turns(bench, definition->id, HELD, turns);
}

static void declare_added(struct bench *bench)
{
    for (size_t i = 0; i < sizeof(addeds) / sizeof(addeds[0]); i++) {
        if (addeds[i].full && !bench->results.full)
            continue;
        bench_declare_target(bench, &addeds[i].definition, FREE, addeds[i].targets[0]);
        bench_declare_target(bench, &addeds[i].definition, HELD, addeds[i].targets[1]);
    }
    bench_declare(bench, &cpu_definition, BUSY);
}

static void declare_all(struct bench *bench)
{
    const unsigned calls = turns_of(bench, CALLS_MIB, CALL_ROUNDS);
    for (size_t i = 0; i < sizeof(call_definitions) / sizeof(call_definitions[0]); i++)
        declare_both(bench, &call_definitions[i], calls);
    for (size_t i = 0; i < sizeof(once_definitions) / sizeof(once_definitions[0]); i++)
        declare_both(bench, &once_definitions[i], 1);
    for (size_t i = 0; i < (bench->results.full ? 2 : 1); i++)
        declare_both(bench, &live_definitions[i],
            turns_of(bench, live_mib(&live_definitions[i]), LIVE_ROUNDS));
    declare_both(bench, &start_definition, 1);
    bench_declare(bench, &busy_definition, BUSY);
    bench_set_turns(bench, busy_definition.id, BUSY, 1);
    declare_added(bench);
}

static void gather_added(struct bench *bench)
{
    for (size_t i = 0; i < sizeof(addeds) / sizeof(addeds[0]); i++) {
        const char *id = addeds[i].definition.id;
        bench_gather_added(bench, addeds[i].of, FREE, id, FREE, addeds[i].percent);
        bench_gather_added(bench, addeds[i].of, HELD, id, HELD, addeds[i].percent);
    }
    bench_gather_added(bench, busy_definition.id, BUSY, cpu_definition.id, BUSY, false);
}

void bench_cost(struct bench *bench)
{
    const unsigned busy_most = bench->results.full ? 8 : 1;
    const struct bench_item items[] = {
        {"calls", 1, 3.2, 0, run_calls, NULL},
        {"first contexts", variants(bench), INITS * 0.45, 0, run_init, NULL},
        {"process starts", 1, 0.2, 10, run_start, NULL},
        {"background CPU", bench->results.subject_count, 2.6, busy_most, run_busy, NULL},
        {"10,000 live allocations", 1, 2.5, bench->results.full ? 8 : 2, run_live,
            &live_definitions[0]},
        {"100,000 live allocations", 1, 15, 2, run_live, &live_definitions[1]},
    };
    declare_all(bench);
    bench_run_items(bench, items, bench->results.full ? 6 : 5);
    gather_added(bench);
}
