/* SPDX-License-Identifier: Apache-2.0 */
/* The bench's figures while a group is measured: why there is none, in which order, and how often a
 * process counts. */
#include "bench/bench.h"
#include "bench/chance.h"

#include "check.h"

#include <stdlib.h>
#include <sys/resource.h>

static const struct bench_definition definition = {
    "cost.call", "call", "what a call costs", "ns", BENCH_LOWER, false, 0};
static const struct bench_definition added_definition = {
    "cost.call.added", "added", "what it adds", "ns", BENCH_LOWER, true, 5};
static const struct bench_options options = {.scale = 1};
static size_t seen[64], seen_count;
static double needs_s;

static void see(struct bench *bench, const struct bench_item *item, size_t variant)
{
    (void)item;
    seen[seen_count++] = variant;
    bench->gathered++;
}

static void give_none(struct bench *bench, const struct bench_item *item, size_t variant)
{
    (void)bench;
    (void)item;
    (void)variant;
}

static void start_one(struct bench *bench, const struct bench_item *item, size_t subject)
{
    struct rlimit usual, none = {0, 0};
    struct bench_process process;
    struct bench_limits limits = {.place = "/nowhere"};
    char *arguments[] = {(char *)"/bin/true", NULL};
    (void)item;
    getrlimit(RLIMIT_NOFILE, &usual);
    none.rlim_max = usual.rlim_max;
    setrlimit(RLIMIT_NOFILE, &none);
    CHECK_EQ(bench_start(bench, &process, subject, &limits, arguments, 1), -EMFILE);
    setrlimit(RLIMIT_NOFILE, &usual);
}

static void begin(struct bench *bench)
{
    memset(bench, 0, sizeof(*bench));
    bench->options = &options;
    bench->group = "cost";
    bench_results_add_subject(&bench->results, "native", NULL);
    bench_results_add_subject(&bench->results, "ours", "/lib/libvgpu.so");
}

static void measure_with(struct bench *bench,
    void (*run)(struct bench *bench, const struct bench_item *item, size_t variant))
{
    const struct bench_item item = {"calls", 2, needs_s, 1, run, NULL};
    bench_declare(bench, &definition, "");
    bench_run_items(bench, &item, 1);
}

static void measure_none(struct bench *bench)
{
    measure_with(bench, give_none);
}

static void measure_unstarted(struct bench *bench)
{
    measure_with(bench, start_one);
}

static const char *reason_of(struct bench *bench, void (*measure)(struct bench *), double seconds)
{
    needs_s = seconds;
    bench_run_group(bench, "cost", measure, 10);
    const struct bench_figure *figure = bench_results_find(&bench->results, "cost.call", NULL);
    return bench_figure_result(figure, "ours")->missing;
}

TEST("a figure without a value says that no time was left only where none was")
{
    struct bench bench;
    begin(&bench);
    CHECK_STR(reason_of(&bench, measure_none, 60), BENCH_TIME_USED_UP);
    CHECK_STR(reason_of(&bench, measure_none, 0.1), "what measures it ran, and gave no value");
    CHECK_STR(reason_of(&bench, measure_unstarted, 0.1),
        "a process could not be started: Too many open files");
    CHECK_STR(reason_of(&bench, measure_none, 60), BENCH_TIME_USED_UP); /* another group's */
    bench_results_finish(&bench.results);
}

TEST("in each round the variants are in an order by chance, each once")
{
    struct bench bench;
    unsigned first[4] = {0};
    begin(&bench);
    bench.until_ns = UINT64_MAX;
    const struct bench_item item = {"calls", 4, 0.001, 16, see, NULL};
    seen_count = 0;
    bench_run_items(&bench, &item, 1);
    REQUIRE(CHECK_EQ(seen_count, 64));
    for (size_t round = 0; round < 16; round++) {
        unsigned all = 0;
        for (size_t i = 0; i < 4; i++)
            all |= 1u << seen[round * 4 + i];
        CHECK_EQ(all, 15);
        first[seen[round * 4]]++;
    }
    CHECK(first[0] && first[1] && first[2] && first[3]);
    bench_results_finish(&bench.results);
}

TEST("chance is the same for the same seed, and another for each seed that is drawn")
{
    size_t order[3][40];
    const uint32_t seeds[] = {7, 8, 7};
    for (size_t i = 0; i < 3; i++) {
        bench_chance_begin(seeds[i]);
        bench_shuffle(order[i], 40);
    }
    CHECK(memcmp(order[0], order[2], sizeof(order[0])) == 0);
    CHECK(memcmp(order[0], order[1], sizeof(order[0])) != 0);
    uint32_t first = bench_chance_seed(), second = bench_chance_seed(), third = bench_chance_seed();
    CHECK(first && second && third && (first != second || second != third));
}

TEST("a worker that stands for two conditions hangs once, and gives both its figures")
{
    struct bench bench;
    begin(&bench);
    struct bench_process process = {
        .ended = true, .hung = true, .text = (char *)"cost.call 5 7\n", .length = 14};
    bench.group = "cost";
    bench_declare(&bench, &definition, "one");
    bench_declare(&bench, &definition, "other");
    bench_gather_worker(&bench, 0, "one", "other", &process);
    CHECK_EQ(bench.hung[0], 1);
    double one = 0, other = 0;
    CHECK(bench_median(&bench, 0, "cost.call", "one", &one) && one == 5);
    CHECK(bench_median(&bench, 0, "cost.call", "other", &other) && other == 5);
    bench_results_finish(&bench.results);
}

TEST("what a library adds is compared within the round, and is of as many turns")
{
    struct bench bench;
    const double native[] = {100, 200, 100, 200}, ours[] = {103, 202, 104, 205};
    begin(&bench);
    bench.group = "cost";
    bench_declare(&bench, &definition, "");
    bench_declare(&bench, &added_definition, "");
    bench_set_turns(&bench, "cost.call", "", 2);
    for (size_t i = 0; i < 4; i++) {
        bench.turn = (unsigned)i;
        bench_sample(&bench, 0, "cost.call", "", native[i], 1);
        bench_sample(&bench, 1, "cost.call", "", ours[i], 1);
    }
    bench_gather_added(&bench, "cost.call", "", "cost.call.added", "", false);
    double median = 0;
    CHECK(bench_median(&bench, 1, "cost.call.added", "", &median) && median == 3.5);
    CHECK_EQ(bench.measured[1].texts.turns, 2);
    bench_results_finish(&bench.results);
}

/* Two rounds of three turns, of which native and the library lack one each. */
static void measure_apart(struct bench *bench)
{
    static const double native[] = {100, 0, 300, 1000, 2000, 3000},
                        ours[] = {101, 202, 0, 1004, 2005, 3006};
    bench_declare(bench, &definition, "");
    bench_declare(bench, &added_definition, "");
    bench_set_turns(bench, "cost.call", "", 3);
    for (unsigned i = 0; i < 6; i++) {
        bench->round = i / 3;
        bench->turn = i % 3 * 2; /* another figure has those between */
        if (native[i] > 0)
            bench_sample(bench, 0, "cost.call", "", native[i], 1);
        if (ours[i] > 0)
            bench_sample(bench, 1, "cost.call", "", ours[i], 1);
    }
    bench_gather_added(bench, "cost.call", "", "cost.call.added", "", false);
}

static void check_rounds(const struct bench_result *result, const unsigned *rounds, size_t count)
{
    REQUIRE(CHECK_EQ(result->sample_count, count));
    for (size_t i = 0; i < count; i++)
        CHECK_EQ(bench_result_round(result, i), rounds[i]);
}

TEST("where subjects lose different turns, each sample is compared with that of its own")
{
    static const unsigned native[] = {0, 2, 3, 4, 5}, ours[] = {0, 1, 3, 4, 5},
                          both[] = {0, 1, 2, 3};
    static const double more[] = {1, 4, 5, 6};
    struct bench bench;
    begin(&bench);
    bench_run_group(&bench, "cost", measure_apart, 10);
    const struct bench_figure *call = bench_results_find(&bench.results, "cost.call", NULL);
    const struct bench_figure *added = bench_results_find(&bench.results, "cost.call.added", NULL);
    check_rounds(bench_figure_result(call, "native"), native, 5);
    check_rounds(bench_figure_result(call, "ours"), ours, 5);
    check_rounds(bench_figure_result(added, "ours"), both, 4);
    for (size_t i = 0; i < 4; i++)
        CHECK(bench_figure_result(added, "ours")->samples[i] == more[i]);
    bench_results_finish(&bench.results);
}

/* The values of the variable in an environment, each followed by a semicolon. */
static void values_of(char **environment, const char *name, char *text, size_t size)
{
    size_t length = strlen(name);
    text[0] = '\0';
    for (char **entry = environment; *entry; entry++) {
        size_t used = strlen(text);
        if (!strncmp(*entry, name, length) && (*entry)[length] == '=')
            snprintf(text + used, size - used, "%s;", *entry + length + 1);
    }
}

TEST("a variable that is asked for is set once, in the place of what is set for each library")
{
    struct bench bench;
    struct bench_limits limits = {.place = "/place", .cores = 50};
    char text[512], reason[128];
    begin(&bench);
    bench_subject_set(&bench.results.subjects[1], "CUDA_REDIRECT", "/other.so");
    bench_subject_set(&bench.results.subjects[1], "CUDA_DEVICE_MEMORY_LIMIT", "2g");
    bench_subject_set(&bench.results.subjects[1], "MINE", "{board}");
    char **environment = bench_environment(&bench, 1, &limits);
    values_of(environment, "CUDA_REDIRECT", text, sizeof(text));
    CHECK_STR(text, "/other.so;");
    values_of(environment, "CUDA_DEVICE_MEMORY_LIMIT", text, sizeof(text));
    CHECK_STR(text, "2g;");
    values_of(environment, "CUDA_DEVICE_SM_LIMIT", text, sizeof(text));
    CHECK_STR(text, "50;");
    values_of(environment, "MINE", text, sizeof(text));
    CHECK_STR(text, "/place;");
    CHECK(bench_can_limit(&bench, 1, &limits, reason, sizeof(reason)));
    limits.memory_mib = 1024;
    CHECK(!bench_can_limit(&bench, 1, &limits, reason, sizeof(reason)));
    bench_environment_free(environment);
    bench_results_finish(&bench.results);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
