/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments, each refused in one line where it is off. */
#include "bench/options.h"

#include "base/parse.h"
#include "tool/child.h"
#include "tool/paths.h"
#include "tool/tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWN_LABEL "vgpu"

static const char usage_text[] =
    "usage: vgpu bench [--library PATH[,NAME=VALUE...] [--label NAME]]... [--quick|--full]\n"
    "                  [--only GROUP[,GROUP...]] [--sim[=DESCRIPTION]] [--output DIR]\n"
    "                  [--python PROGRAM] [--report]\n"
    "\n"
    "Measures on the first GPU what a library that shares it costs, and whether its limits hold,\n"
    "beside the same work without one; writes results.json and report.html, and prints a table.\n"
    "  --library PATH   a library to be preloaded, and variables for it; \"vgpu\" is this one, "
    "which is\n"
    "                   measured where none is given. In a value {bytes}, {mib}, {percent} and "
    "{region}\n"
    "                   stand for the limits and for a file of its own; without them HAMi-core's\n"
    "                   variables are set\n"
    "  --label NAME     what the report calls the library before it\n"
    "  --quick          within 3 minutes (so without --full)\n"
    "  --full           within 20 minutes: more loads, more limits, more repetitions\n"
    "  --only GROUP     cost, memory, compute, tenants or work; the others' results in DIR are "
    "kept\n"
    "  --sim[=DESC]     on the simulator; DESC as in docs/simulator.md\n"
    "  --output DIR     where the results are written (vgpu-bench)\n"
    "  --python PROGRAM the Python that has PyTorch (python3)\n"
    "  --report         measure nothing; table and report of the results in DIR\n"
    "\n"
    "docs/bench.md says what each figure is. Exit status: 0 done, 1 it could not be measured or\n"
    "written, 2 the arguments are off.\n";

/* A relative path counts from here, and the loader takes a list: no blank and no colon. */
static char *library_path(const char *name)
{
    char path[PATH_MAX];
    struct stat status;
    if (!strcmp(name, OWN_LABEL)) {
        if (path_find("libvgpu.so", path, sizeof(path)) == 0)
            return strdup(path);
        tool_error("bench: libvgpu.so is neither beside this program nor in its library directory");
        return NULL;
    }
    if (!realpath(name, path) || stat(path, &status) != 0) {
        tool_error(
            "bench: --library \"%.256s\" is not accepted: %s; accepted: a library's path, or "
            "\"vgpu\"",
            name, strerror(errno));
        return NULL;
    }
    if (!S_ISREG(status.st_mode) || strpbrk(path, " :")) {
        tool_error(
            "bench: --library \"%.256s\" is not accepted: %s; accepted: a library's path, or "
            "\"vgpu\"",
            name,
            S_ISREG(status.st_mode) ? "the loader takes no blank and no colon" : "it is no file");
        return NULL;
    }
    return strdup(path);
}

/* FNV-1a, 64 bits, of the library's file: the same path may have another build tomorrow. */
static void set_build(struct bench_subject *subject, const char *path)
{
    unsigned char part[65536];
    char build[32];
    uint64_t hash = 0xcbf29ce484222325u;
    FILE *file = fopen(path, "re");
    for (size_t got; file && (got = fread(part, 1, sizeof(part), file)) > 0;) {
        for (size_t i = 0; i < got; i++)
            hash = (hash ^ part[i]) * 0x100000001b3u;
    }
    if (file && !ferror(file)) {
        snprintf(build, sizeof(build), "%016llx", (unsigned long long)hash);
        bench_subject_set_build(subject, build);
    }
    if (file)
        fclose(file);
}

static bool set_variables(struct bench_subject *subject, char *list)
{
    for (char *rest = NULL, *item = strtok_r(list, ",", &rest); item;
         item = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(item, '=');
        if (!value || value == item) {
            tool_error(
                "bench: --library has \"%.128s\" behind its path; accepted: NAME=VALUE", item);
            return false;
        }
        *value = '\0';
        bench_subject_set(subject, item, value + 1);
    }
    return true;
}

static bool add_library(struct bench_options *options, const char *argument)
{
    struct bench_results *asked = &options->asked;
    char *copy = strdup(argument), *rest = copy ? strchr(copy, ',') : NULL;
    bool good = false;
    if (asked->subject_count == BENCH_SUBJECTS_MOST) {
        tool_error("bench: --library \"%.128s\" is one too many; accepted: %d", argument,
            BENCH_SUBJECTS_MOST - 1);
        free(copy);
        return false;
    }
    if (rest)
        *rest++ = '\0';
    char *path = copy ? library_path(copy) : NULL;
    if (path) {
        const char *name = strrchr(path, '/');
        struct bench_subject *subject = bench_results_add_subject(asked,
            !strcmp(copy, OWN_LABEL) ? OWN_LABEL
            : name                   ? name + 1
                                     : path,
            path);
        set_build(subject, path);
        good = !rest || set_variables(subject, rest);
    }
    free(path);
    free(copy);
    return good;
}

static bool set_label(struct bench_options *options, const char *label)
{
    struct bench_results *asked = &options->asked;
    if (asked->subject_count < 2) {
        tool_error("bench: --label \"%.128s\" is not accepted: no --library is before it", label);
        return false;
    }
    if (!*label || strlen(label) > 40 || !strcmp(label, BENCH_NATIVE)) {
        tool_error(
            "bench: --label \"%.128s\" is not accepted; accepted: 1 to 40 characters, not \"%s\"",
            label, BENCH_NATIVE);
        return false;
    }
    struct bench_subject *subject = &asked->subjects[asked->subject_count - 1];
    free(subject->label);
    subject->label = strdup(label);
    return subject->label != NULL;
}

static bool set_only(struct bench_options *options, const char *list)
{
    char item[32];
    while (parse_list_next(&list, item, sizeof(item))) {
        size_t group = 0;
        while (bench_groups[group] && strcmp(bench_groups[group], item) != 0)
            group++;
        if (!bench_groups[group]) {
            tool_error("bench: --only \"%.32s\" is not accepted; accepted: cost, memory, compute, "
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
        tool_error(
            "bench: --seconds-scale \"%.32s\" is not accepted; accepted: above 0, up to 1", text);
        return false;
    }
    return true;
}

enum { LIBRARY = 256, LABEL, QUICK, FULL, ONLY, SIM, OUTPUT, PYTHON, REPORT, SCALE, HELP };

static bool take(int option, struct bench_options *options)
{
    switch (option) {
    case LIBRARY:
        return add_library(options, optarg);
    case LABEL:
        return set_label(options, optarg);
    case QUICK:
        options->asked.full = false;
        return true;
    case FULL:
        options->asked.full = true;
        return true;
    case ONLY:
        return set_only(options, optarg);
    case SIM:
        options->sim = optarg ? optarg : "";
        options->asked.simulated = true;
        return true;
    case OUTPUT:
        options->output = optarg;
        return true;
    case PYTHON:
        options->python = optarg;
        return true;
    case REPORT:
        options->report = true;
        return true;
    default:
        return set_scale(options, optarg);
    }
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
    if (!options->output[0]) {
        tool_error(
            "bench: --output \"\" is not accepted; accepted: a directory, or one to be made");
        return false;
    }
    if (options->report)
        return true;
    if (options->scale < 1 && !options->sim) {
        tool_error("bench: --seconds-scale is for tests: it needs --sim");
        return false;
    }
    if (asked->subject_count == 1 && !add_library(options, OWN_LABEL))
        return false;
    for (size_t i = 1; i < asked->subject_count; i++) {
        const char *label = asked->subjects[i].label;
        if (bench_results_subject(asked, label) != &asked->subjects[i]) {
            tool_error(
                "bench: two libraries are called \"%.64s\"; --label gives one another name", label);
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
        {"seconds-scale", required_argument, NULL, SCALE}, {"help", no_argument, NULL, HELP}, {0}};
    *options = (struct bench_options){.output = "vgpu-bench", .python = "python3", .scale = 1};
    *ret_status = TOOL_USAGE;
    bench_results_add_subject(&options->asked, BENCH_NATIVE, NULL);
    const char *word = argv[optind];
    for (int option; (option = getopt_long(argc, argv, "+:h", known, NULL)) != -1;
         word = argv[optind]) {
        if (option == HELP || option == 'h') {
            fputs(usage_text, stdout);
            *ret_status = 0;
            return false;
        }
        if (option == '?' || option == ':') {
            tool_speak_for("bench");
            *ret_status = tool_refuse_option(option, word);
            return false;
        }
        if (!take(option, options))
            return false;
    }
    if (optind != argc) {
        tool_error("bench: \"%.64s\" is not accepted; 'vgpu bench --help' lists the options",
            argv[optind]);
        return false;
    }
    return check_together(options);
}
