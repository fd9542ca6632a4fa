/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments, each refused in one line where it is off. */
#include "bench/options.h"

#include "base/parse.h"
#include "bench/libraries.h"
#include "host/child.h"
#include "host/options.h"
#include "host/paths.h"
#include "host/say.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char usage_text[] =
    "usage: vgpu bench [--library PATH[,NAME=VALUE...] [--label NAME]]... [--quick|--full]\n"
    "                  [--only GROUP[,GROUP...]] [--sim[=DESCRIPTION]] [--output DIR]\n"
    "                  [--python PROGRAM] [--seed NUMBER]\n"
    "       vgpu bench --report [--output DIR]\n"
    "\n"
    "Measures on the first GPU what a GPU-sharing library costs and whether its limits hold, and\n"
    "compares with the same work without it; writes results.json and report.html, and prints a\n"
    "table.\n"
    "  --library PATH   a library to preload, and variables for it, at most seven times;\n"
    "                   \"vgpu\" is this one, which is measured if none is given. In a value\n"
    "                   {bytes}, {mib}, {percent} and {region} stand for the limits and for a\n"
    "                   file of its own, {board} for a directory that containers share;\n"
    "                   without them HAMi-core's variables are set\n"
    "  --label NAME     the name in the report of the preceding library (vgpu, or its file's "
    "name)\n"
    "  --quick          within 3 minutes (the default)\n"
    "  --full           within 20 minutes: more loads, more limits, more repetitions\n"
    "  --only GROUP     cost, memory, compute, tenants or work; other results in DIR are kept\n"
    "  --sim[=DESC]     on the simulator; docs/simulator.md describes DESC\n"
    "  --output DIR     where the results are written (vgpu-bench)\n"
    "  --python PROGRAM the Python that has PyTorch (python3)\n"
    "  --seed NUMBER    the seed of the random orders and cores; results.json has that of a run\n"
    "  --report         measure nothing; table and report of the results in DIR (only --output\n"
    "                   may be given with it)\n"
    "\n"
    "docs/bench.md describes each figure. Exit status: 0 done, 1 nothing could be measured or\n"
    "written, 2 invalid arguments.\n";

static bool set_only(struct bench_options *options, const char *list)
{
    char item[32];
    while (parse_list_next(&list, item, sizeof(item))) {
        size_t group = 0;
        while (bench_groups[group] && strcmp(bench_groups[group], item) != 0)
            group++;
        if (!bench_groups[group]) {
            say_error("--only \"%.32s\" is not accepted; accepted: cost, memory, compute, "
                      "tenants, work",
                item);
            return false;
        }
        options->only[group] = true;
    }
    return true;
}

static bool set_scale(struct bench_options *options, const char *text)
{
    char *end;
    options->scale = strtod(text, &end);
    if (*end || end == text || !(options->scale > 0 && options->scale <= 1)) {
        say_error("--seconds-scale \"%.32s\" is not accepted; accepted: above 0, up to 1", text);
        return false;
    }
    return true;
}

static bool set_seed(struct bench_options *options, const char *text)
{
    uint64_t seed;
    if (parse_number(text, UINT32_MAX, &seed) != 0 || !seed) {
        say_error("--seed \"%.32s\" is not accepted; accepted: 1 to %u", text, UINT32_MAX);
        return false;
    }
    options->seed = (uint32_t)seed;
    return true;
}

enum { LIBRARY = OPTION_FIRST, LABEL, QUICK, FULL, ONLY, SIM, OUTPUT, PYTHON, REPORT, SCALE, SEED };

static int take(int option, void *context)
{
    struct bench_options *options = context;
    bool good = true;
    options->measure |= option != REPORT && option != OUTPUT;
    switch (option) {
    case LIBRARY:
        good = bench_library_add(&options->asked, optarg);
        break;
    case LABEL:
        good = bench_library_label(&options->asked, optarg);
        break;
    case QUICK:
        options->quick = true;
        break;
    case FULL:
        options->asked.full = true;
        break;
    case ONLY:
        good = set_only(options, optarg);
        break;
    case SIM:
        options->sim = optarg ? optarg : "";
        options->asked.simulated = true;
        break;
    case OUTPUT:
        options->output = optarg;
        break;
    case PYTHON:
        options->python = optarg;
        break;
    case REPORT:
        options->report = true;
        break;
    case SEED:
        good = set_seed(options, optarg);
        break;
    default:
        good = set_scale(options, optarg);
    }
    return good ? 0 : TOOL_USAGE;
}

/* The words of a description are the simulator's to know. */
static bool check_sim(const char *description)
{
    char checker[PATH_MAX];
    setenv("VGPU_SIM", description, 1);
    return path_find("sim/vgpu-sim-check", checker, sizeof(checker)) != 0 ||
           child_status(checker) != TOOL_USAGE;
}

static bool check_together(struct bench_options *options)
{
    struct bench_results *asked = &options->asked;
    struct stat status;
    if (!options->output[0] || (stat(options->output, &status) == 0 && !S_ISDIR(status.st_mode))) {
        say_error("--output \"%.256s\" is not accepted; accepted: a directory, or one to be made",
            options->output);
        return false;
    }
    if (options->report && options->measure) {
        say_error("--report measures nothing; accepted beside it: --output");
        return false;
    }
    if (options->report)
        return true;
    if (options->quick && asked->full) {
        say_error("--quick and --full are not accepted together; accepted: one of them");
        return false;
    }
    if (options->scale < 1 && !options->sim) {
        say_error("--seconds-scale is for tests: it needs --sim");
        return false;
    }
    if (asked->subject_count == 1 && !bench_library_add(asked, BENCH_OWN))
        return false;
    for (size_t i = 1; i < asked->subject_count; i++) {
        const char *label = asked->subjects[i].label;
        if (bench_results_subject(asked, label) != &asked->subjects[i]) {
            say_error("two libraries are called \"%.64s\"; --label gives one another name", label);
            return false;
        }
    }
    return !options->sim || check_sim(options->sim);
}

bool bench_options_parse(int argc, char **argv, struct bench_options *options, int *ret_status)
{
    static const struct option known[] = {{"library", required_argument, NULL, LIBRARY},
        {"label", required_argument, NULL, LABEL}, {"quick", no_argument, NULL, QUICK},
        {"full", no_argument, NULL, FULL}, {"only", required_argument, NULL, ONLY},
        {"sim", optional_argument, NULL, SIM}, {"output", required_argument, NULL, OUTPUT},
        {"python", required_argument, NULL, PYTHON}, {"report", no_argument, NULL, REPORT},
        {"seconds-scale", required_argument, NULL, SCALE}, {"seed", required_argument, NULL, SEED},
        OPTION_HELP, {0}};
    static const struct command_options accepted = {usage_text, known, take};
    bool done;
    *options = (struct bench_options){.output = "vgpu-bench", .python = "python3", .scale = 1};
    bench_results_add_subject(&options->asked, BENCH_NATIVE, NULL);
    *ret_status = options_take(&accepted, argc, argv, options, &done);
    if (done)
        return false;
    *ret_status = TOOL_USAGE;
    if (optind != argc) {
        *ret_status = say_refuse_word(argv[optind]);
        return false;
    }
    return check_together(options);
}
