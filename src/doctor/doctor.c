/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu doctor: what works in this place, what does not, and what to do about it. */
#include "doctor/doctor.h"

#include "base/parse.h"
#include "doctor/checks.h"
#include "doctor/child.h"
#include "doctor/command.h"
#include "doctor/deadline.h"
#include "doctor/print.h"
#include "doctor/traces.h"
#include "host/options.h"
#include "host/paths.h"
#include "host/preload.h"
#include "host/say.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>

struct options {
    struct doctor_options command;
    bool inside;
    int device;
};

static const char usage_text[] =
    "usage: vgpu doctor [--json] [--device N]\n"
    "       vgpu doctor [--json] [--output FILE] [--verdict-status] -- COMMAND [ARGUMENT...]\n"
    "\n"
    "Runs a small CUDA program under libvgpu.so and prints a line for each check: what works, "
    "what\n"
    "does not, and how to correct it. With COMMAND: runs COMMAND in the present environment (vgpu\n"
    "run sets one up), watches its processes, and prints to stderr at its end whether the limits\n"
    "hold in them.\n"
    "  --device N        only this device, as CUDA numbers them here; without it all\n"
    "  --json            the same as JSON: docs/doctor.md\n"
    "  --output FILE     writes the result for COMMAND there, not to stderr\n"
    "  --verdict-status  exit with 0 if the limits hold, else 1, instead of COMMAND's status\n"
    "  -h, --help        this text\n"
    "Exit status: 0 no problem (there may be notes), 1 a problem, 2 invalid arguments; with "
    "COMMAND\n"
    "that of COMMAND, 127 if it is not found, 126 if it cannot be run.\n";

static int parse_device(const char *text, int *ret_device)
{
    uint64_t number;
    if (parse_number(text, INT_MAX, &number) != 0) {
        say_error("--device \"%.64s\" is not accepted; accepted: a whole number, as CUDA "
                  "counts devices",
            text);
        return TOOL_USAGE;
    }
    *ret_device = (int)number;
    return 0;
}

/* What does not go together. */
static int check_options(int argc, char **argv, struct options *options)
{
    bool behind = optind > 1 && !strcmp(argv[optind - 1], "--");
    struct doctor_options *command = &options->command;
    command->command = behind && optind < argc ? argv + optind : NULL;
    if (optind < argc && !behind)
        say_error("\"%.64s\": a command stands behind \"--\"; 'vgpu doctor --help' tells "
                  "how",
            argv[optind]);
    else if (behind && optind == argc)
        say_error("no command behind \"--\"; 'vgpu doctor --help' tells how");
    else if (command->command && options->device != DOCTOR_ALL_DEVICES)
        say_error("--device is not for a command: all that it uses is looked at");
    else if (!command->command && (command->output || command->verdict_status))
        say_error("%s is for a command; 'vgpu doctor --help' tells how",
            command->output ? "--output" : "--verdict-status");
    else
        return 0;
    return TOOL_USAGE;
}

enum { JSON = OPTION_FIRST, DEVICE, INSIDE, OUTPUT, VERDICT };

static int take_option(int option, void *context)
{
    struct options *options = context;
    switch (option) {
    case JSON:
        options->command.json = true;
        return 0;
    case OUTPUT:
        options->command.output = optarg;
        return 0;
    case VERDICT:
        options->command.verdict_status = true;
        return 0;
    case DEVICE:
        return parse_device(optarg, &options->device);
    default: /* our own child */
        options->inside = true;
        options->device = atoi(optarg);
        return 0;
    }
}

/* 0, or the exit status after the reason was said; *ret_done: nothing is left to do. */
static int parse_options(int argc, char **argv, struct options *options, bool *ret_done)
{
    static const struct option known[] = {{"json", no_argument, NULL, JSON},
        {"device", required_argument, NULL, DEVICE}, {"inside", required_argument, NULL, INSIDE},
        {"output", required_argument, NULL, OUTPUT}, {"verdict-status", no_argument, NULL, VERDICT},
        OPTION_HELP, {0}};
    static const struct command_options taken = {usage_text, known, take_option};
    int status = options_take(&taken, argc, argv, options, ret_done);
    return status || *ret_done ? status : check_options(argc, argv, options);
}

/* ---- which library ---- */

/* The first name of the library in the list. */
static bool name_in_list(char *list, char *ret_name, size_t size)
{
    char *rest = list;
    for (char *word; (word = strsep(&rest, " :\t\n")) != NULL;) {
        if (!preload_names_library(word))
            continue;
        snprintf(ret_name, size, "%s", word);
        return true;
    }
    return false;
}

/* What programs that start here are to get; false where nothing names the library. */
static bool find_preloaded(struct facts *facts)
{
    char list[4096] = "", name[PATH_MAX];
    const char *by = "LD_PRELOAD", *variable = getenv("LD_PRELOAD");
    snprintf(list, sizeof(list), "%s", variable ? variable : "");
    bool found = name_in_list(list, name, sizeof(name));
    FILE *file = found ? NULL : fopen("/etc/ld.so.preload", "re");
    if (file) {
        list[fread(list, 1, sizeof(list) - 1, file)] = '\0';
        fclose(file);
        by = "/etc/ld.so.preload";
        found = name_in_list(list, name, sizeof(name));
    }
    if (!found)
        return false;
    facts_set(facts, "preload.by", by);
    facts_set(facts, "preload.path", name);
    return true;
}

/* The library to put before the child: NULL where what is preloaded here is this one. */
static const char *choose_library(struct facts *facts)
{
    static char path[PATH_MAX];
    const char *obstacle = "it is neither beside this program nor in its library directory";
    bool preloaded = dlsym(RTLD_DEFAULT, "vgpu_report") != NULL;
    (void)find_preloaded(facts);
    facts_set(facts, "preload.works", preloaded ? "yes" : "no");
    if (preloaded)
        return NULL;
    if (path_find("libvgpu.so", path, sizeof(path)) == 0)
        obstacle = preload_obstacle(path);
    if (obstacle)
        facts_set(facts, "library.error", obstacle);
    return obstacle ? NULL : path;
}

/* ---- where we are ---- */

static bool file_contains(const char *path, const char *word)
{
    char text[512] = "";
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    return strstr(text, word) != NULL;
}

/* gVisor's /proc/version names a build of 2016, whatever its version. */
static const char *sandbox(void)
{
    bool gvisor = file_contains("/proc/version", "gVisor") ||
                  file_contains("/proc/version", "#1 SMP Sun Jan 10 15:06:54 PST 2016");
    return gvisor ? "gVisor" : "none";
}

static bool is_mps_client(void)
{
    struct stat status;
    char path[PATH_MAX];
    const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
    snprintf(path, sizeof(path), "%s/control", directory ? directory : "/tmp/nvidia-mps");
    return stat(path, &status) == 0;
}

static void add_place(struct facts *facts)
{
    struct utsname name;
    if (uname(&name) == 0)
        facts_set(facts, "kernel.release", name.release);
    facts_set(facts, "kernel.sandbox", sandbox());
    facts_set(facts, "mps", is_mps_client() ? "yes" : "no");
}

#define PATIENCE_S 60 /* the small program alone has 30 */

static int examine(void *context)
{
    static struct facts facts;
    static struct checks checks;
    const struct options *options = context;
    doctor_step("looking for the library");
    add_place(&facts);
    const char *library = choose_library(&facts);
    doctor_step("waiting for the small program");
    int error = doctor_ask(library, options->device, &facts);
    if (error) {
        say_error("cannot start a process: %s", strerror(-error));
        return TOOL_FAILED;
    }
    if (options->device >= 0 &&
        (unsigned long long)options->device >= fact_number(&facts, "cuda.devices"))
        check_add(&checks, "device", options->device, CHECK_PROBLEM,
            "choose another, or leave --device out", "there is no such device: CUDA sees %llu",
            fact_number(&facts, "cuda.devices"));
    checks_of_process(&checks, &facts);
    checks_of_place(&checks);
    checks_of_container(&checks, &facts);
    if (options->command.json)
        doctor_print_json(&checks, &facts);
    else
        doctor_print(stdout, &checks);
    for (size_t i = 0; i < checks.count; i++) {
        if (checks.list[i].status == CHECK_PROBLEM)
            return TOOL_FAILED;
    }
    return 0;
}

static int note_traces(void *context)
{
    doctor_step("looking for the region and the boards");
    doctor_traces_note(context);
    return 0;
}

static int remove_traces(void *context)
{
    doctor_step("removing what the small program made");
    doctor_traces_remove(context);
    return 0;
}

#define REMOVAL_PATIENCE_S 10

/* What would end us is kept until nothing is left behind; it ends the examination. Each step is a
 * child's, as its files may lie on a file system that does not answer. */
static int examine_and_clean(struct options *options)
{
    struct doctor_traces *traces =
        mmap(NULL, sizeof(*traces), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (traces == MAP_FAILED) {
        say_error("%s", strerror(errno));
        return TOOL_FAILED;
    }
    int status = doctor_within(PATIENCE_S, note_traces, traces);
    if (status)
        return status;
    doctor_take_signals(DOCTOR_SIGNALS_END_CHILD);
    status = doctor_within(PATIENCE_S, examine, options);
    doctor_take_signals(DOCTOR_SIGNALS_WAIT);
    int removed = doctor_within(REMOVAL_PATIENCE_S, remove_traces, traces);
    doctor_take_signals(DOCTOR_SIGNALS_END_US);
    return status ? status : removed;
}

int doctor_main(int argc, char **argv)
{
    struct options options = {.device = DOCTOR_ALL_DEVICES};
    bool done;
    int status = parse_options(argc, argv, &options, &done);
    if (done || status)
        return status;
    if (options.inside)
        return doctor_probe(options.device);
    if (options.command.command)
        return doctor_command(&options.command);
    return examine_and_clean(&options);
}
