/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu run: a command inside a container of its own, or inside one that --region names. */
#include "base/guard.h"
#include "base/parse.h"
#include "region/region.h"
#include "region/slot.h"
#include "tool/child.h"
#include "tool/glob.h"
#include "tool/paths.h"
#include "tool/preload.h"
#include "tool/run_env.h"
#include "tool/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LEFT_OVER_SECONDS 60

struct run_options {
    const char *memory, *cores, *soft_cores, *priority, *region, *sim;
    bool env, json;
    char **command;
};

static const char usage_text[] =
    "usage: vgpu run [--memory SIZE[,SIZE...]] [--cores PERCENT[,...]]\n"
    "                [--soft-cores PERCENT[,...]] [--priority N] [--region FILE]\n"
    "                [--sim[=DESCRIPTION]] [--] COMMAND [ARGUMENT...]\n"
    "       vgpu run --env [--json] [OPTION...]\n"
    "\n"
    "Runs COMMAND inside a slice of the GPU; its exit status and signals are passed through.\n"
    "  --memory SIZE    device memory, for all devices or one size each: 2GiB, 1.5g, 512m;\n"
    "                   0: no limit\n"
    "  --cores PERCENT  share of the GPU's time, for all devices or one each\n"
    "  --soft-cores PERCENT\n"
    "                   share up to which it may rise while the GPU is otherwise idle, likewise\n"
    "  --priority N     0 is high, larger is lower; 1 without it\n"
    "  --region FILE    join (or create) the container with this shared region\n"
    "  --sim[=DESC]     a simulated machine in the driver's place; DESC as in docs/simulator.md\n"
    "  --env            run nothing: print the variables that COMMAND would have, for a shell:\n"
    "                   eval \"$(vgpu run --env --memory 2GiB)\"\n"
    "  --json           these variables for programs; goes with --env\n"
    "  -h, --help       this text\n";

static int check_command(bool given, const struct run_options *options)
{
    if (options->env && given)
        tool_error("--env runs no command: leave \"%.64s\" out", options->command[0]);
    else if (!options->env && options->json)
        tool_error("--json goes with --env alone");
    else if (!options->env && !given)
        tool_error("no command given; 'vgpu run --help' tells how");
    else
        return 0;
    return TOOL_USAGE;
}

/* 0, or the exit status after the reason was said; *ret_done: nothing is left to do. */
static int parse_options(int argc, char **argv, struct run_options *options, bool *ret_done)
{
    enum { MEMORY = 256, CORES, SOFT_CORES, PRIORITY, REGION, SIM, ENV, JSON, HELP };
    static const struct option known[] = {{"memory", required_argument, NULL, MEMORY},
        {"cores", required_argument, NULL, CORES},
        {"soft-cores", required_argument, NULL, SOFT_CORES},
        {"priority", required_argument, NULL, PRIORITY},
        {"region", required_argument, NULL, REGION}, {"sim", optional_argument, NULL, SIM},
        {"env", no_argument, NULL, ENV}, {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, HELP}, {0}};
    *ret_done = true;
    const char *word = argv[optind];
    for (int option; (option = getopt_long(argc, argv, "+:h", known, NULL)) != -1;
         word = argv[optind]) {
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
        case REGION:
            options->region = optarg;
            break;
        case SIM:
            options->sim = optarg ? optarg : "";
            break;
        case ENV:
            options->env = true;
            break;
        case JSON:
            options->json = true;
            break;
        case HELP:
        case 'h':
            fputs(usage_text, stdout);
            return 0;
        default:
            return tool_refuse_option("run", option, word);
        }
    }
    options->command = argv + optind;
    int status = check_command(optind < argc, options);
    *ret_done = status != 0;
    return status;
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
            tool_error("%s names more devices than can be; accepted: one value for all, or "
                       "one each for up to %d",
                option, CONFIG_DEVICES);
            return TOOL_USAGE;
        }
        if (check(item) != 0) {
            tool_error("%s \"%s\" is not accepted; accepted: %s", option, item, accepted);
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
        tool_error("%s is neither beside this program nor in its library directory", name);
    else if ((obstacle = preload_obstacle(path)) != NULL) {
        tool_error("\"%s\": %s", path, obstacle);
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

/* Whether a process of the container whose region lies at the path lives on. */
static bool region_in_use(const char *path)
{
    struct region region;
    if (access(path, F_OK) != 0 || region_open(&region, path) != 0)
        return false;
    guard_enter();
    bool live = slot_any_live(&region);
    guard_leave();
    region_detach(&region);
    return live;
}

/* Which region the run's processes use: `where` in its directory says. */
static void write_where(const char *directory)
{
    char path[PATH_MAX];
    const char *region = getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
    snprintf(path, sizeof(path), "%s/where", directory);
    int fd = region ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644) : -1;
    if (fd < 0)
        return;
    (void)!write(fd, region, strlen(region));
    close(fd);
}

/* The directory is open to all users: what lies there under the name may be anything. */
static bool read_where(const char *directory, char *region, size_t size)
{
    char path[PATH_MAX];
    struct stat status;
    snprintf(path, sizeof(path), "%s/where", directory);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length =
        fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid()
            ? read(fd, region, size - 1)
            : -1;
    close(fd);
    region[length > 0 ? length : 0] = '\0';
    return length > 0;
}

static bool processes_left(const char *directory)
{
    char region[PATH_MAX];
    return read_where(directory, region, sizeof(region)) && region_in_use(region);
}

static void remove_directory(const char *directory)
{
    static const char *const names[] = {"region", "machine", "where"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
}

/* True where the directory is this user's, its `vgpu run` is gone (it holds the lock while it
 * lives), and no process of the run lives on. A young one may just be coming to be. */
static bool is_left_over(const char *directory)
{
    struct stat status;
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool left = fd >= 0 && fstat(fd, &status) == 0 && status.st_uid == geteuid() &&
                time(NULL) - status.st_mtime > LEFT_OVER_SECONDS &&
                flock(fd, LOCK_EX | LOCK_NB) == 0 && !processes_left(directory);
    if (fd >= 0)
        close(fd);
    return left;
}

/* What an earlier run left, because it was killed or a process of its own outlived it. */
static void sweep_left_over(void)
{
    glob_t found;
    if (glob("/tmp/vgpu-run-??????", GLOB_NOSORT, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        if (is_left_over(found.gl_pathv[i]))
            remove_directory(found.gl_pathv[i]);
    }
    globfree(&found);
}

/* A process of the run that lives on keeps its files, for a later run's sweep. */
static void remove_files(const char *directory)
{
    if (directory[0] && !processes_left(directory))
        remove_directory(directory);
}

static int refuse_region(const char *name, const char *reason)
{
    tool_error("--region \"%.256s\" is not accepted: %s; accepted: the path of a file, or of one "
               "to be made",
        name, reason);
    return TOOL_USAGE;
}

/* A region's name counts from where we are, not from where the command's processes will be. */
static int name_region(const char *name)
{
    char directory[PATH_MAX] = "", path[PATH_MAX];
    struct stat status;
    if (!*name)
        return refuse_region(name, "it is empty");
    if (*name != '/' && !getcwd(directory, sizeof(directory)))
        return refuse_region(name, strerror(errno));
    int length = snprintf(path, sizeof(path), "%s%s%s", directory, directory[0] ? "/" : "", name);
    if (length < 0 || (size_t)length >= sizeof(path))
        return refuse_region(name, strerror(ENAMETOOLONG));
    if (stat(path, &status) != 0 && errno != ENOENT)
        return refuse_region(name, strerror(errno));
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        return refuse_region(name, "it is no regular file");
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    return 0;
}

/* The run's own directory holds its region and, simulated, its machine. */
static int set_files(const struct run_options *options, char *directory)
{
    char path[PATH_MAX];
    const char *machine = getenv("VGPU_SIM_MACHINE");
    bool own_machine = options->sim && !strstr(options->sim, "machine=") && !(machine && *machine);
    int error = options->region ? name_region(options->region) : 0;
    if (error || (options->region && !own_machine)) {
        directory[0] = '\0';
        return error;
    }
    if (!mkdtemp(directory)) {
        tool_error("cannot make %s: %s", directory, strerror(errno));
        return TOOL_FAILED;
    }
    if (!options->region) {
        snprintf(path, sizeof(path), "%s/region", directory);
        setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    }
    if (own_machine) {
        snprintf(path, sizeof(path), "%s/machine", directory);
        setenv("VGPU_SIM_MACHINE", path, 1);
    }
    write_where(directory);
    /* The command's processes may be other users'; what is not theirs they cannot replace. */
    if (chmod(directory, 01777) != 0) {
        tool_error("cannot open %s to all users: %s", directory, strerror(errno));
        remove_directory(directory);
        return TOOL_FAILED;
    }
    /* Held until this process ends, however it does. */
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        (void)flock(fd, LOCK_EX | LOCK_NB);
    return 0;
}

static int set_priority(const char *text)
{
    uint64_t priority;
    if (parse_number(text, UINT32_MAX, &priority) != 0) {
        tool_error(
            "--priority \"%.64s\" is not accepted; accepted: %s", text, PARSE_PRIORITY_ACCEPTED);
        return TOOL_USAGE;
    }
    setenv("CUDA_TASK_PRIORITY", text, 1);
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
    return status;
}

int tool_run(int argc, char **argv)
{
    struct run_options options = {0};
    char directory[] = "/tmp/vgpu-run-XXXXXX";
    bool done = false;
    int status = parse_options(argc, argv, &options, &done);
    if (done)
        return status;
    struct run_environment before = run_env_keep();
    status = set_limits(&options);
    if (status)
        return status;
    if (options.sim && (status = check_sim(options.sim)))
        return status;
    if ((status = set_preloads(&options)) || (status = set_files(&options, directory)))
        return status;
    if (options.env)
        return run_env_print(&before, options.json);
    struct child_end end;
    status = child_run(options.command, &end);
    remove_files(directory);
    sweep_left_over();
    return status ? status : child_end_as(&end);
}
