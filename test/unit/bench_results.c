/* SPDX-License-Identifier: Apache-2.0 */
/* The bench's results: what is written is read, what is damaged is refused in one line, and what
 * another run measured is taken over. */
#include "bench/results/results.h"

#include "check.h"

#include <math.h>
#include <stdlib.h>

#define FILE_ROOM 20000

static const struct bench_figure launch = {.id = "cost.launch.async",
    .group = "cost",
    .title = "launch",
    .definition = "what a \"launch\" costs",
    .unit = "ns",
    .better = BENCH_LOWER,
    .condition = "no limit",
    .turns = 3};
static const struct bench_figure share = {.id = "compute.share",
    .group = "compute",
    .title = "share",
    .definition = "the share",
    .unit = "ratio",
    .better = BENCH_TARGET,
    .has_target = true,
    .target = 0.2,
    .condition = "limit 20"};

static void fill(struct bench_results *results)
{
    const double samples[] = {3000.5, 2000.25, 333333333};
    const unsigned rounds[] = {0, 2, 5};
    results->full = true;
    results->seed = UINT32_MAX;
    results->machine.gpu = strdup("GPU of \xc3\xa4 kind");
    results->machine.cores = 16;
    bench_results_add_subject(results, "native", NULL);
    bench_subject_set(bench_results_add_subject(results, "ours", "/lib/libvgpu.so"), "NAME", "a=b");
    bench_subject_set_build(&results->subjects[1], "0123456789abcdef");
    struct bench_figure *figure = bench_results_add_figure(results, &launch);
    bench_figure_measured(figure, "native", samples, 3, 1000);
    bench_figure_set_rounds(figure, "native", rounds);
    bench_figure_missing(figure, "ours", "it ended by signal 11");
    figure = bench_results_add_figure(results, &share);
    bench_figure_measured(figure, "native", samples, 2, 2);
    bench_figure_measured(figure, "ours", samples + 1, 1, 1);
}

static size_t written(char *text, const struct bench_results *results)
{
    char path[] = "/tmp/bench-results-XXXXXX";
    close(mkstemp(path));
    REQUIRE(bench_results_write(results, path) == 0);
    FILE *file = fopen(path, "r");
    size_t length = fread(text, 1, FILE_ROOM, file);
    fclose(file);
    unlink(path);
    return length;
}

static bool is_empty(const struct bench_results *results)
{
    static const struct bench_results empty;
    return !memcmp(results, &empty, sizeof(empty));
}

/* One line, and nothing left behind. */
static void check_refused(const char *text, size_t length)
{
    struct bench_results results = {0};
    char reason[200];
    memset(reason, '#', sizeof(reason));
    if (!CHECK_EQ(bench_results_parse(&results, text, length, reason, sizeof(reason)), -EINVAL))
        printf("# %.300s\n", text);
    REQUIRE(memchr(reason, 0, sizeof(reason)));
    CHECK(reason[0] && !strpbrk(reason, "\n\r\t\033"));
    CHECK(is_empty(&results));
}

/* With `from` of the text replaced, once. */
static void check_refused_with(const char *text, const char *from, const char *to)
{
    char changed[FILE_ROOM + 200];
    const char *at = strstr(text, from);
    if (!CHECK(at)) {
        printf("# %s\n", from);
        return;
    }
    snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    check_refused(changed, strlen(changed));
}

TEST("what was written is read as it was")
{
    struct bench_results results = {0}, again = {0};
    static char text[FILE_ROOM], second[FILE_ROOM];
    char reason[200] = "";
    fill(&results);
    size_t length = written(text, &results);
    REQUIRE(CHECK_EQ(bench_results_parse(&again, text, length, reason, sizeof(reason)), 0));
    CHECK(again.full && !again.simulated);
    CHECK_STR(again.machine.gpu, "GPU of \xc3\xa4 kind");
    CHECK_STR(again.machine.driver, "");
    CHECK_EQ(again.machine.cores, 16);
    CHECK_EQ(again.seed, UINT32_MAX);
    CHECK_EQ(again.subject_count, 2);
    CHECK(!again.subjects[0].library);
    CHECK_STR(again.subjects[1].environment[0].value, "a=b");
    CHECK_STR(again.subjects[1].build, "0123456789abcdef");
    const struct bench_figure *figure = bench_results_find(&again, "cost.launch.async", "no limit");
    REQUIRE(figure);
    CHECK_EQ(bench_result_round(bench_figure_result(figure, "native"), 2), 5);
    CHECK(!bench_result_in(bench_figure_result(figure, "native"), 1));
    CHECK_STR(bench_figure_result(figure, "ours")->missing, "it ended by signal 11");
    const struct bench_result *native = bench_figure_result(figure, "native");
    CHECK_EQ(figure->turns, 3);
    CHECK_EQ(native->repetitions, 1000);
    CHECK_EQ(native->sample_count, 3);
    CHECK(native->value == 3000.5 && fabs(native->low - 2200.3) < 1e-3);
    CHECK(fabs(native->high - (3000.5 + 0.8 * (333333333 - 3000.5))) < 1);
    CHECK(bench_results_find(&again, "compute.share", NULL)->target == 0.2);
    CHECK_EQ(bench_results_find(&again, "compute.share", NULL)->turns, 0);
    CHECK_EQ(written(second, &again), length);
    CHECK(!memcmp(text, second, length));
    bench_results_finish(&again);
    bench_results_finish(&results);
    CHECK(is_empty(&again));
}

TEST("a file that is cut off anywhere is refused in one line")
{
    struct bench_results results = {0};
    static char text[FILE_ROOM];
    fill(&results);
    size_t length = written(text, &results);
    for (size_t cut = 0; cut + 2 < length; cut++)
        check_refused(text, cut);
}

TEST("a file in which something is of the wrong kind is refused in one line")
{
    static const char *const changes[][2] = {{"\"version\": 1", "\"version\": 2"},
        {"\"version\": 1", "\"version\": \"1\""}, {"\"version\"", "\"Version\""},
        {"\"simulated\": false", "\"simulated\": 0"}, {"\"full\"", "\"half\""},
        {"\"machine\"", "\"engine\""}, {"\"cores\": 16", "\"cores\": -1"},
        {"\"cores\": 16", "\"cores\": 1.5"}, {"\"cores\"", "\"gpu\""},
        {"\"subjects\"", "\"objects\""}, {"\"label\": \"ours\"", "\"label\": \"native\""},
        {"\"label\": \"ours\"", "\"label\": []"}, {"\"a=b\"", "7"}, {"\"figures\"", "\"figure\""},
        {"\"cost\"", "\"costs\""}, {"\"better\": \"lower\"", "\"better\": \"best\""},
        {"\"title\": \"launch\"", "\"title\": \"la\\u0000unch\""},
        {"\"target\": 0.2", "\"target\": \"0.2\""}, {"\"turns\": 3", "\"turns\": 0"},
        {"\"turns\": 3", "\"turns\": \"3\""}, {"\"turns\": 3", "\"turns\": 0.5"},
        {"\"subject\": \"ours\"", "\"subject\": \"x\""},
        {"\"subject\": \"ours\"", "\"subject\": \"native\""},
        {"\"repetitions\": 1000", "\"repetitions\": 2"},
        {"\"repetitions\": 1000", "\"repetitions\": 0"}, {"\"value\": 3000.5", "\"value\": 1e999"},
        {"\"value\": 3000.5", "\"value\": null"}, {"2000.25", "\"2000.25\""},
        {"\"samples\": [", "\"samples\": {}, \"more\": ["}, {"\"results\": [", "\"results\": [1,"},
        {"\"missing\": \"it", "\"missing\": [\"it\"], \"more\": \"it"},
        {"compute.share", "compute\xffshare"}};
    struct bench_results results = {0};
    static char text[FILE_ROOM];
    fill(&results);
    written(text, &results);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
        check_refused_with(text, changes[i][0], changes[i][1]);
    check_refused("[]", 2);
    check_refused("", 0);
}

TEST("bytes that are changed at random are refused in one line, or read")
{
    struct bench_results results = {0};
    static char text[FILE_ROOM], changed[FILE_ROOM];
    unsigned state = 7, read = 0;
    fill(&results);
    size_t length = written(text, &results);
    for (int round = 0; round < 20000; round++) {
        struct bench_results again = {0};
        char reason[100] = "";
        memcpy(changed, text, length);
        for (unsigned i = 0; i <= (state >> 20) % 3; i++) {
            state = state * 1103515245u + 12345u;
            changed[(state >> 8) % length] =
                state & 1 << 7 ? (char)(state >> 3) : "0123456789abcde{"[state >> 28];
        }
        int error = bench_results_parse(&again, changed, length, reason, sizeof(reason));
        CHECK(error == 0 || (error == -EINVAL && reason[0] && is_empty(&again)));
        CHECK(!strpbrk(reason, "\n\r\033"));
        read += error == 0;
        bench_results_finish(&again);
    }
    CHECK(read > 100);
}

TEST("what is no file is refused by its reason")
{
    struct bench_results results = {0};
    char reason[100];
    CHECK_EQ(
        bench_results_read(&results, "/nowhere/results.json", reason, sizeof(reason)), -ENOENT);
    CHECK_STR(reason, strerror(ENOENT));
    CHECK_EQ(bench_results_read(&results, "/tmp", reason, sizeof(reason)), -EISDIR);
    CHECK_EQ(bench_results_read(&results, "/dev/zero", reason, sizeof(reason)), -EINVAL);
    CHECK_EQ(bench_results_write(&results, "/nowhere/results.json"), -ENOENT);
}

TEST("groups that another run measured are taken over, in the groups' order")
{
    struct bench_results earlier = {0}, results = {0};
    const double sample = 5;
    fill(&earlier);
    bench_results_add_subject(&results, "native", NULL);
    bench_results_add_subject(&results, "other", "/lib/other.so");
    bench_figure_measured(bench_results_add_figure(&results, &share), "native", &sample, 1, 1);
    bench_results_merge(&results, &earlier);
    CHECK_EQ(results.subject_count, 3);
    CHECK_EQ(results.figure_count, 2);
    CHECK_STR(results.figures[0].id, "cost.launch.async");
    for (size_t i = 0; i < 2; i++) {
        REQUIRE(CHECK_EQ(results.figures[i].result_count, 3));
        for (size_t k = 0; k < 3; k++)
            CHECK_STR(results.figures[i].results[k].subject, results.subjects[k].label);
    }
    CHECK_EQ(bench_figure_result(&results.figures[0], "native")->repetitions, 1000);
    CHECK(bench_figure_result(&results.figures[0], "other")->missing);
    CHECK(bench_figure_result(&results.figures[1], "native")->value == 5);
    CHECK(bench_figure_result(&results.figures[1], "ours")->missing);
    bench_results_finish(&results);
    bench_results_finish(&earlier);
}

TEST("another machine's results, or another library's of the same label, are not taken over")
{
    struct bench_results one = {0}, other = {0};
    fill(&one);
    fill(&other);
    CHECK(!bench_results_mismatch(&one, &other));
    other.simulated = true;
    CHECK(bench_results_mismatch(&one, &other));
    other.simulated = other.full = false;
    CHECK(bench_results_mismatch(&one, &other));
    other.full = true;
    other.machine.gpu[0] = 'X';
    CHECK(bench_results_mismatch(&one, &other));
    other.machine.gpu[0] = 'G';
    CHECK(!bench_results_mismatch(&one, &other));
    bench_subject_set_build(&one.subjects[1], "0123456789abcdee");
    CHECK(bench_results_mismatch(&one, &other));
    free(other.subjects[1].build);
    other.subjects[1].build = NULL;
    CHECK(!bench_results_mismatch(&one, &other)); /* it is not known */
    other.subjects[1].environment[0].value[0] = 'X';
    CHECK(bench_results_mismatch(&one, &other));
}

TEST("a quantile is the value of its rank or lies between two, as far from the least as from the "
     "most")
{
    const double values[] = {9, 1, 8, 2, 7, 3, 6, 4, 5, 10};
    CHECK(bench_quantile(values, 10, 0.5) == 5.5);
    CHECK(bench_quantile(values, 9, 0.5) == 5);
    CHECK(fabs(bench_quantile(values, 10, 0.1) - 1.9) < 1e-9);
    CHECK(fabs(bench_quantile(values, 10, 0.9) - 9.1) < 1e-9);
    CHECK(bench_quantile(values, 10, 0) == 1 && bench_quantile(values, 10, 1) == 10);
    CHECK(bench_quantile(values, 1, 0.1) == 9);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
