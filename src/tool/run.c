/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu run: a command inside a container of its own, or inside one that --region names. */
#include "base/parse.h"
#include "config/config_oversubscription.h"
#include "host/child.h"
#include "host/options.h"
#include "host/paths.h"
#include "host/preload.h"
#include "tool/run_env.h"
#include "tool/run_files.h"
#include "tool/run_machine.h"
#include "tool/run_registry.h"
#include "tool/run_warn.h"
#include "tool/tool.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run_options {
    const char *memory, *cores, *soft_cores, *priority, *region, *sim, *oversubscribe;
    bool env, json;
    char **command;
};

static const char usage_text[] =
    "usage: vgpu run [--memory SIZE[,SIZE...]] [--cores PERCENT[,...]]\n"
    "                [--soft-cores PERCENT[,...]] [--priority N] [--oversubscribe[=RATIO]]\n"
    "                [--region FILE] [--sim[=DESCRIPTION]] [--] COMMAND [ARGUMENT...]\n"
    "       vgpu run --env [--json] [OPTION...]\n"
    "\n"
    "Runs COMMAND inside a slice of the GPU; its exit status and signals are passed through.\n"
    "  --memory SIZE    device memory, for all devices or one size each: 2GiB, 1.5g, 512m;\n"
    "                   0: no limit. A context alone takes about 520 MiB on an H100 or H200\n"
    "  --cores PERCENT  share of the GPU's time, for all devices or one each\n"
    "  --soft-cores PERCENT\n"
    "                   share that it may use while the GPU is otherwise idle, likewise\n"
    "  --priority N     0 is high, larger is lower; 1 without it\n"
    "  --oversubscribe[=RATIO]\n"
    "                   what does not fit on the card is backed by host memory, within the\n"
    "                   limit; with a ratio above 1, what does not fit into limit / ratio\n"
    "  --region FILE    join (or create) the container with this shared region; its directory\n"
    "                   must exist\n"
    "  --sim[=DESC]     use a simulated machine, not the driver; docs/simulator.md describes DESC\n"
    "  --env            run nothing: print the variables that COMMAND would have, for a shell:\n"
    "                   eval \"$(vgpu run --env --memory 2GiB)\"\n"
    "  --json           these variables as JSON; only with --env\n"
    "  -h, --help       this text\n";

static int check_command(bool given, const struct run_options *options)
{
    if (options->env && given)
        say_error("--env runs no command: leave \"%.64s\" out", options->command[0]);
    else if (!options->env && options->json)
        say_error("--json goes with --env alone");
    else if (!options->env && !given)
        say_error("no command given; 'vgpu run --help' tells how");
    else
        return 0;
    return TOOL_USAGE;
}

enum { MEMORY = OPTION_FIRST, CORES, SOFT_CORES, PRIORITY, OVERSUBSCRIBE, REGION, SIM, ENV, JSON };

static int take_option(int option, void *context)
{
    struct run_options *options = context;
    switch (option) {
    case MEMORY:
        options->memory = optarg;
        break;
    case CORES:
        options->cores = optarg;
        break;
    case SOFT_CORES:
        options->soft_cores = optarg;
        break;
    case PRIORITY:
        options->priority = optarg;
        break;
    case OVERSUBSCRIBE:
        options->oversubscribe = optarg ? optarg : "true";
        break;
    case REGION:
        options->region = optarg;
        break;
    case SIM:
        options->sim = optarg ? optarg : "";
        break;
    case ENV:
        options->env = true;
        break;
    default:
        options->json = true;
        break;
    }
    return 0;
}

/* getopt takes an optional value only behind '=': in "--oversubscribe 2" the 2 would be the
 * command. */
static int check_ratio(const char *option, const char *next)
{
    uint64_t ratio;
    if (strcmp(option, "--oversubscribe") != 0 || !next || config_parse_ratio(next, &ratio) != 0)
        return 0;
    say_error("--oversubscribe takes its ratio behind '=': --oversubscribe=%.64s", next);
    return TOOL_USAGE;
}

/* 0, or the exit status after the reason was said; *ret_done: nothing is left to do. */
static int parse_options(int argc, char **argv, struct run_options *options, bool *ret_done)
{
    static const struct option known[] = {{"memory", required_argument, NULL, MEMORY},
        {"cores", required_argument, NULL, CORES},
        {"soft-cores", required_argument, NULL, SOFT_CORES},
        {"priority", required_argument, NULL, PRIORITY},
        {"oversubscribe", optional_argument, NULL, OVERSUBSCRIBE},
        {"region", required_argument, NULL, REGION}, {"sim", optional_argument, NULL, SIM},
        {"env", no_argument, NULL, ENV}, {"json", no_argument, NULL, JSON}, OPTION_HELP, {0}};
    static const struct command_options taken = {usage_text, known, take_option};
    int status = options_take(&taken, argc, argv, options, ret_done);
    if (status || *ret_done)
        return status;
    options->command = argv + optind;
    status = check_ratio(argv[optind - 1], argv[optind]);
    return status ? status : check_command(optind < argc, options);
}

/* A limit is its family's alone: what an outer environment says of it would add to it. `second` may
 * be NULL. */
static void clear_family(const char *first, const char *second)
{
    const char *families[] = {first, second};
    for (int f = 0; f < 2 && families[f]; f++) {
        char name[64];
        unsetenv(families[f]);
        for (int i = 0; i < CONFIG_DEVICES; i++) {
            snprintf(name, sizeof(name), "%s_%d", families[f], i);
            unsetenv(name);
        }
    }
}

static int check_size(const char *text)
{
    uint64_t bytes;
    return parse_size(text, &bytes);
}

static int check_percent(const char *text)
{
    uint64_t percent;
    return parse_number(text, 100, &percent);
}

/* Sets VARIABLE for one value, VARIABLE_<i> for several. Returns 0 or TOOL_USAGE. */
static int set_list(const char *option, const char *list, const char *variable, const char *other,
    int (*check)(const char *text), const char *accepted)
{
    char item[64], name[64];
    bool several = strchr(list, ',') != NULL;
    clear_family(variable, other);
    for (int i = 0; parse_list_next(&list, item, sizeof(item)); i++) {
        if (i == CONFIG_DEVICES) {
            say_error("%s names more devices than can be; accepted: one value for all, or "
                      "one each for up to %d",
                option, CONFIG_DEVICES);
            return TOOL_USAGE;
        }
        if (check(item) != 0) {
            say_error("%s \"%s\" is not accepted; accepted: %s", option, item, accepted);
            return TOOL_USAGE;
        }
        snprintf(name, sizeof(name), several ? "%s_%d" : "%s", variable, i);
        setenv(name, item, 1);
    }
    return 0;
}

static int find_or_say(const char *name, char *path, size_t size)
{
    const char *obstacle = NULL;
    int error = path_find(name, path, size);
    if (error)
        say_error("%s is neither beside this program nor in its library directory", name);
    else if ((obstacle = preload_obstacle(path)) != NULL) {
        say_error("\"%s\": %s", path, obstacle);
        error = -ENOEXEC;
    }
    return error;
}

/* The words of a description are the simulator's to know: its checker says what is wrong. Where it
 * cannot be asked, the simulator says it when the command uses it. */
static int check_sim(const char *description)
{
    char checker[PATH_MAX];
    setenv("VGPU_SIM", description, 1);
    if (path_find("sim/vgpu-sim-check", checker, sizeof(checker)) != 0)
        return 0;
    return child_status(checker) == TOOL_USAGE ? TOOL_USAGE : 0;
}

static int set_preloads(const struct run_options *options)
{
    char library[PATH_MAX], sim[PATH_MAX];
    if (find_or_say("libvgpu.so", library, sizeof(library)))
        return TOOL_FAILED;
    if (options->sim) {
        if (find_or_say("sim/libvgpu-sim-rm.so", sim, sizeof(sim)))
            return TOOL_FAILED;
        preload_first("LD_PRELOAD", sim, ':');
        *strrchr(sim, '/') = '\0';
        preload_first("LD_LIBRARY_PATH", sim, ':');
    }
    preload_first("LD_PRELOAD", library, ':');
    return 0;
}

static int set_priority(const char *text)
{
    uint64_t priority;
    if (parse_number(text, UINT32_MAX, &priority) != 0) {
        say_error(
            "--priority \"%.64s\" is not accepted; accepted: %s", text, PARSE_PRIORITY_ACCEPTED);
        return TOOL_USAGE;
    }
    setenv("CUDA_TASK_PRIORITY", text, 1);
    return 0;
}

static int set_oversubscription(const struct run_options *options)
{
    uint64_t ratio = 1;
    const char *text = options->oversubscribe;
    if (strcmp(text, "true") != 0 && (config_parse_ratio(text, &ratio) != 0 || !ratio)) {
        say_error(
            "--oversubscribe \"%.64s\" is not accepted; accepted: a ratio above 1, as 1.5, at "
            "most %d, or none",
            text, CONFIG_RATIO_MOST);
        return TOOL_USAGE;
    }
    if (!options->memory && !options->region && !getenv("CUDA_DEVICE_MEMORY_LIMIT") &&
        !getenv("CUDA_MEM_LIMIT")) {
        say_error("--oversubscribe is within a memory limit; accepted: with --memory SIZE");
        return TOOL_USAGE;
    }
    clear_family("CUDA_MEM_OVERSOLD", "CUDA_MEM_RATIO");
    clear_family("CUDA_OVERSUBSCRIBE", "CUDA_MEMORY_RATIO");
    setenv("CUDA_MEMORY_OVERSUBSCRIBE", text, 1);
    return 0;
}

/* What the options say of limits, as variables. Returns 0 or TOOL_USAGE. */
static int set_limits(const struct run_options *options)
{
    int status = 0;
    if (options->memory)
        status = set_list("--memory", options->memory, "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_MEM_LIMIT",
            check_size, PARSE_SIZE_ACCEPTED);
    if (!status && options->cores)
        status = set_list("--cores", options->cores, "CUDA_DEVICE_SM_LIMIT", "CUDA_CORE_LIMIT",
            check_percent, PARSE_PERCENT_ACCEPTED);
    if (!status && options->soft_cores)
        status = set_list("--soft-cores", options->soft_cores, "CUDA_CORE_SOFT_LIMIT", NULL,
            check_percent, PARSE_PERCENT_ACCEPTED);
    if (!status && options->priority)
        status = set_priority(options->priority);
    if (!status && options->oversubscribe)
        status = set_oversubscription(options);
    if (!status)
        run_warn_of_memory(options->memory);
    if (!status && (options->soft_cores || options->cores))
        run_warn_of_soft_limits();
    return status;
}

int tool_run(int argc, char **argv)
{
    struct run_options options = {0};
    char directory[] = RUN_FILES_TEMPLATE;
    bool done;
    int status = parse_options(argc, argv, &options, &done);
    if (done || status)
        return status;
    struct run_environment before = run_env_keep();
    status = set_limits(&options);
    if (status)
        return status;
    if (options.sim && (status = check_sim(options.sim)))
        return status;
    if ((status = set_preloads(&options)))
        return status;
    if (options.sim)
        run_machine_share(options.sim);
    if ((status = run_files_make(options.region, options.sim, directory))) {
        run_machine_leave();
        return status;
    }
    run_registry_choose(options.sim);
    if (options.env)
        return run_env_print(&before, options.json);
    struct child_end end;
    status = child_run(options.command, &end);
    run_files_remove(directory);
    run_files_sweep();
    run_machine_leave();
    return status ? status : child_end_as(&end);
}
