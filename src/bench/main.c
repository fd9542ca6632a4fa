/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu-bench, which `vgpu bench` executes: the run from its arguments to its report. */
#include "base/clock.h"
#include "bench/chance.h"
#include "bench/results/derive.h"
#include "bench/load_run.h"
#include "bench/options.h"
#include "bench/report/report.h"
#include "host/paths.h"
#include "host/say.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

const char tool_name[] = "vgpu";

/* Seconds of each group, in their order: 173 and 1,160 in all, the rest is for the end. By --full
 * each is less than 8 minutes, so that --only can measure them in short calls. */
static const struct group {
    void (*measure)(struct bench *bench);
    double quick_s, full_s;
} groups[] = {{bench_cost, 21, 145}, {bench_memory, 18, 100}, {bench_compute, 54, 460},
    {bench_tenants, 51, 260}, {bench_work, 29, 195}};
#define GROUPS (sizeof(groups) / sizeof(groups[0]))

static bool find(const char *name, char *path)
{
    if (path_find(name, path, PATH_MAX) == 0)
        return true;
    say_error("%s is neither beside this program nor in its library directory", name);
    return false;
}

static bool find_files(struct bench *bench)
{
    ssize_t length = readlink("/proc/self/exe", bench->program, sizeof(bench->program) - 1);
    if (length <= 0) {
        say_error("/proc/self/exe: %s", strerror(errno));
        return false;
    }
    bench->program[length] = '\0';
    if (!find("vgpu-load", bench->load))
        return false;
    if (bench->options->sim) {
        if (!find("sim/libvgpu-sim-rm.so", bench->sim))
            return false;
        *strrchr(bench->sim, '/') = '\0';
    }
    return true;
}

static bool make_directories(struct bench *bench)
{
    const char *temporary = getenv("TMPDIR");
    if (mkdir(bench->options->output, 0777) != 0 && errno != EEXIST) {
        say_error(
            "--output \"%.256s\" cannot be made: %s", bench->options->output, strerror(errno));
        return false;
    }
    if (access(bench->options->output, W_OK | X_OK) != 0) {
        say_error("--output \"%.256s\" cannot be written to: %s", bench->options->output,
            strerror(errno));
        return false;
    }
    snprintf(bench->scratch, sizeof(bench->scratch), "%.3000s/vgpu-bench-XXXXXX",
        temporary && *temporary == '/' ? temporary : "/tmp");
    if (!mkdtemp(bench->scratch)) {
        say_error("cannot make %.256s: %s", bench->scratch, strerror(errno));
        bench->scratch[0] = '\0';
        return false;
    }
    snprintf(bench->calibration, sizeof(bench->calibration), "%.3000s/calibration", bench->scratch);
    return true;
}

/* The rest of the line "WORD rest" in the text; "" where there is none. */
static void word_in(const char *text, const char *word, char *value, size_t size)
{
    size_t length = strlen(word);
    value[0] = '\0';
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, word, length) && line[length] == ' ')
            snprintf(value, size, "%.*s", (int)strcspn(line + length + 1, "\n"), line + length + 1);
    }
}

static char *word_copy(const char *text, const char *word)
{
    char value[256];
    word_in(text, word, value, sizeof(value));
    return strdup(value);
}

static char *processor_name(void)
{
    char line[512], *name = NULL;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && !name && fgets(line, sizeof(line), file)) {
        char *value = strchr(line, ':');
        if (value && !strncmp(line, "model name", 10)) {
            value[strcspn(value, "\n")] = '\0';
            name = strdup(value + 1 + strspn(value + 1, " "));
        }
    }
    if (file)
        fclose(file);
    return name ? name : strdup("");
}

static void fill_machine(struct bench *bench, const char *said)
{
    struct bench_machine *machine = &bench->results.machine;
    char value[64];
    struct utsname names;
    time_t now = time(NULL);
    struct tm utc;
    machine->gpu = word_copy(said, "gpu");
    machine->cuda = word_copy(said, "cuda");
    machine->driver = word_copy(said, "driver");
    word_in(said, "memory", value, sizeof(value));
    bench->memory_mib = strtod(value, NULL) / BENCH_MIB;
    word_in(said, "bus", bench->bus, sizeof(bench->bus));
    machine->cpu = processor_name();
    machine->kernel = strdup(uname(&names) == 0 ? names.release : "");
    strftime(value, sizeof(value), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    machine->when = strdup(value);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    machine->cores = cores > 0 ? (unsigned)cores : 0;
}

/* Native processes are not native where the system preloads something into all. */
static void warn_of_preload(const struct bench *bench)
{
    char word[256];
    FILE *file = fopen("/etc/ld.so.preload", "re");
    if (file && fscanf(file, "%255s", word) == 1)
        bench_say(bench, "/etc/ld.so.preload has \"%s\" in native processes, too", word);
    if (file)
        fclose(file);
}

/* Whether anything can be measured: the machine is asked natively, and each library is tried. */
static bool probe(struct bench *bench)
{
    warn_of_preload(bench);
    for (size_t i = 0; i < bench->results.subject_count && !bench_stopped(); i++) {
        const struct bench_subject *subject = &bench->results.subjects[i];
        struct bench_process process = {0};
        char place[PATH_MAX], reason[200] = "it could not be started";
        bench_place(bench, place, sizeof(place));
        struct bench_limits limits = {.place = place};
        bool good = bench_start_worker(
                        bench, &process, i, &limits, 30, "probe", subject->library, NULL) == 0;
        bench_process_wait(&process, 1);
        good = good && !bench_process_failure(&process, reason, sizeof(reason));
        if (good && i == 0)
            fill_machine(bench, process.text);
        if (!good && i > 0) {
            snprintf(bench->failed[i], sizeof(bench->failed[i]), "%s", reason);
            bench_say(bench, "%s: %s", subject->label, reason);
        }
        bench_process_finish(&process);
        if (!good && i == 0 && !bench_stopped()) {
            say_error("there is no GPU to measure on: %s", reason);
            return false;
        }
    }
    return !bench_stopped();
}

static char *copy(const char *text)
{
    return strdup(text ? text : "");
}

/* Writes what this run found so far, with what an earlier one found of other groups. */
static int save(const struct bench *bench, const struct bench_results *earlier, const char *path,
    struct bench_results *ret_all)
{
    const struct bench_machine *machine = &bench->results.machine;
    bench_results_finish(ret_all);
    ret_all->simulated = bench->results.simulated;
    ret_all->full = bench->results.full;
    ret_all->seed = bench->results.seed;
    ret_all->machine = (struct bench_machine){.gpu = copy(machine->gpu),
        .driver = copy(machine->driver),
        .cuda = copy(machine->cuda),
        .cpu = copy(machine->cpu),
        .kernel = copy(machine->kernel),
        .when = copy(machine->when),
        .cores = machine->cores};
    bench_results_merge(ret_all, &bench->results);
    bench_results_merge(ret_all, earlier);
    bench_results_derive(ret_all);
    int error = bench_results_write(ret_all, path);
    if (error)
        say_error("\"%.256s\" cannot be written: %s", path, strerror(-error));
    return error;
}

static bool is_asked(const struct bench_options *options, size_t group)
{
    bool any = false;
    for (size_t i = 0; i < GROUPS; i++)
        any |= options->only[i];
    return !any || options->only[group];
}

/* Each group's time ends at the begin plus the budgets of it and of those before it. */
static int measure(struct bench *bench, const struct bench_results *earlier, const char *path,
    struct bench_results *ret_all)
{
    double allowed_s = 0;
    char reason[256];
    int error = 0;
    if (!bench_calibrate(bench, reason, sizeof(reason)) && !bench_stopped()) {
        say_error("the load cannot be calibrated: %s", reason);
        return TOOL_FAILED;
    }
    for (size_t i = 0; i < GROUPS && !error && !bench_stopped(); i++) {
        if (!is_asked(bench->options, i))
            continue;
        allowed_s += bench->results.full ? groups[i].full_s : groups[i].quick_s;
        double left_s = allowed_s - (double)(clock_now_ns() - bench->began_ns) / 1e9;
        bench_run_group(bench, bench_groups[i], groups[i].measure, left_s > 0 ? left_s : 0);
        if (!bench_stopped())
            error = save(bench, earlier, path, ret_all);
    }
    return error ? TOOL_FAILED : 0;
}

/* False after a line on why what lies there must not stand beside what would be measured. */
static bool read_earlier(struct bench_results *earlier, const char *path)
{
    char reason[300];
    if (access(path, F_OK) != 0 || bench_results_read(earlier, path, reason, sizeof(reason)) == 0)
        return true;
    say_error("\"%.256s\" is not accepted: %s; remove it, or give another --output", path, reason);
    return false;
}

static int run(struct bench *bench, struct bench_results *earlier, struct bench_results *all)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%.4000s/" BENCH_RESULTS_FILE, bench->options->output);
    if (!read_earlier(earlier, path))
        return TOOL_USAGE;
    if (!find_files(bench) || !make_directories(bench) || !probe(bench))
        return TOOL_FAILED;
    const char *mismatch =
        earlier->subject_count ? bench_results_mismatch(&bench->results, earlier) : NULL;
    if (mismatch) {
        say_error("\"%.256s\" cannot be added to: %s; give another --output", path, mismatch);
        return TOOL_USAGE;
    }
    int status = measure(bench, earlier, path, all);
    if (status || bench_stopped())
        return status;
    return bench_report_show(all, bench->options->output);
}

/* Ends as the signal would have ended it. */
static void end_by(int signal_number)
{
    sigset_t one;
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    sigemptyset(&one);
    sigaddset(&one, signal_number);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    struct bench_options options;
    struct bench_results earlier = {0}, all = {0};
    int status;
    if (argc > 1 && !strcmp(argv[1], "--worker"))
        return bench_worker(argc - 2, argv + 2);
    if (argc == 2 && !strcmp(argv[1], "--definitions"))
        return bench_definitions();
    say_for_command("bench");
    if (!bench_options_parse(argc, argv, &options, &status)) {
        bench_results_finish(&options.asked);
        return say_end(status);
    }
    if (options.report)
        return bench_report_again(options.output);
    bench_process_begin();
    bench.options = &options;
    bench.began_ns = clock_now_ns();
    bench.results = options.asked;
    bench.results.seed = options.seed ? options.seed : bench_chance_seed();
    bench_chance_begin(bench.results.seed);
    status = run(&bench, &earlier, &all);
    if (bench.scratch[0])
        bench_remove_tree(bench.scratch);
    bench_results_finish(&bench.results);
    bench_results_finish(&earlier);
    bench_results_finish(&all);
    if (bench_stopped())
        end_by(bench_stopped());
    return status;
}
