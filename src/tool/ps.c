/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu ps: the containers of this machine and their processes. */
#include "tool/ps.h"

#include "base/parse.h"
#include "host/choose.h"
#include "host/options.h"
#include "tool/tool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PID_MAX 4194304u /* the kernel's own largest */

struct ps_options {
    const char **files; /* room for all arguments */
    bool json;
    struct collect_choice choice;
};

static const char usage_text[] =
    "usage: vgpu ps [--json] [--all] [--region FILE... | --pid PID | --search LIST]\n"
    "\n"
    "Lists the containers that are visible from here, and their processes: device memory by kind\n"
    "and GPU time against the limits, the gate that enforces them, and which containers wait.\n"
    "  --all            also containers without a live process\n"
    "  --region FILE    only the container with this shared region; may be given several times\n"
    "  --pid PID        only the containers of this process, or of those that it started\n"
    "  --search LIST    where to look for regions: files, directories and patterns, separated by\n"
    "                   colons; an empty item stands for the usual places. Without it\n"
    "                   VGPU_REGION_PATH is used\n"
    "  --json           the same as JSON\n"
    "  -h, --help       this text\n"
    "vgpu-ps(1) describes the columns and how shares are measured. Exit status: 0; 1 a region or\n"
    "process that was named cannot be read; 2 invalid arguments.\n";

enum { JSON = OPTION_FIRST, ALL, REGION, PID, SEARCH };

static const struct option known[] = {{"json", no_argument, NULL, JSON},
    {"all", no_argument, NULL, ALL}, {"region", required_argument, NULL, REGION},
    {"pid", required_argument, NULL, PID}, {"search", required_argument, NULL, SEARCH}, OPTION_HELP,
    {0}};

static int take_pid(const char *text, unsigned *ret_pid)
{
    uint64_t pid;
    if (parse_number(text, PID_MAX, &pid) != 0 || !pid) {
        say_error("--pid \"%.64s\" is not accepted; accepted: a process's number", text);
        return TOOL_USAGE;
    }
    *ret_pid = (unsigned)pid;
    return 0;
}

static int take_option(int option, void *context)
{
    struct ps_options *options = context;
    switch (option) {
    case JSON:
        options->json = true;
        return 0;
    case ALL:
        options->choice.all = true;
        return 0;
    case REGION:
        options->files[options->choice.file_count++] = optarg;
        return 0;
    case PID:
        return take_pid(optarg, &options->choice.pid);
    default:
        options->choice.search = optarg;
        return 0;
    }
}

static int check_options(int argc, char **argv, struct ps_options *options)
{
    struct collect_choice *choice = &options->choice;
    bool named = choice->file_count || choice->pid;
    if (optind < argc)
        return say_refuse_word(argv[optind]);
    if ((choice->file_count && choice->pid) || (named && choice->search))
        say_error("--region, --pid and --search exclude each other");
    else
        return 0;
    return TOOL_USAGE;
}

/* 0, or the exit status after the reason was said; *ret_done: nothing is left to do. */
static int parse_options(int argc, char **argv, struct ps_options *options, bool *ret_done)
{
    static const struct command_options taken = {usage_text, known, take_option};
    int status = options_take(&taken, argc, argv, options, ret_done);
    return status || *ret_done ? status : check_options(argc, argv, options);
}

/* A terminal that does not say how wide it is has 80 columns. */
static unsigned terminal_width(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO))
        return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

static void say_problem(const struct collect_problem *problem, unsigned pid)
{
    if (problem->path)
        say_error("%.256s: %s", problem->path, choose_explain(problem->error));
    else if (problem->error == -ENODATA)
        say_error(
            "process %u has no region, nor has any that it started: they run without vgpu, or "
            "have not used the GPU yet",
            pid);
    else if (problem->error == -ENOENT || problem->error == -ESRCH)
        say_error("there is no process %u", pid);
    else
        say_error("process %u cannot be looked at: %s", pid, strerror(-problem->error));
}

/* What is not in the table, behind it. */
static void say_rest(const struct collection *collection, const struct ps_options *options)
{
    size_t hidden = collection->unreadable;
    fflush(stdout);
    for (size_t i = 0; i < collection->problem_count; i++)
        say_problem(&collection->problems[i], options->choice.pid);
    if (options->json)
        return;
    if (hidden)
        say_error(
            "%zu region%s of others: not readable, run as root", hidden, hidden == 1 ? "" : "s");
    if (collection->count || hidden || collection->problem_count)
        return;
    if (options->choice.file_count || options->choice.pid)
        say_error("no program lives in it; --all shows it");
    else
        say_error(
            "no container with a program in it was found; --all shows those without, --search "
            "and VGPU_REGION_PATH look elsewhere");
}

static int show(const struct ps_options *options)
{
    struct collection collection;
    int error = collect(&options->choice, &collection);
    if (!error && options->json)
        ps_print_json(&collection);
    else if (!error && (collection.count || !collection.problem_count))
        error = ps_print(&collection, terminal_width());
    if (error) {
        say_error("%s", strerror(-error));
        return TOOL_FAILED;
    }
    say_rest(&collection, options);
    bool failed = collection.problem_count != 0;
    collection_free(&collection);
    return failed ? TOOL_FAILED : 0;
}

int tool_ps(int argc, char **argv)
{
    const char **files = calloc((size_t)argc + 1, sizeof(*files));
    struct ps_options options = {.files = files, .choice.files = files};
    bool done;
    if (!files) {
        say_error("%s", strerror(ENOMEM));
        return TOOL_FAILED;
    }
    int status = parse_options(argc, argv, &options, &done);
    if (!done && !status)
        status = show(&options);
    free(files);
    return status;
}
