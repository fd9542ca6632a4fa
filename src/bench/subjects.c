/* SPDX-License-Identifier: Apache-2.0 */
/* The environment in which a subject's processes run: the same for all but for the library, and
 * what is said of its limits. */
#include "bench/bench.h"

#include "base/clock.h"
#include "bench/results/need.h"
#include "bench/results/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRIES_MOST 4096
#define SHORT_S 15 /* what hangs may take of a test's time, or of --quick's */
#define USUAL_S 60

extern char **environ;

/* What would make a native process none, or add to a limit. */
static const char *const foreign[] = {"LD_PRELOAD=", "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_MEM",
    "CUDA_OVERSUBSCRIBE", "CUDA_DEVICE_SM_LIMIT", "CUDA_CORE_LIMIT", "CUDA_CORE_SOFT_LIMIT",
    "CUDA_TASK_PRIORITY", "CUDA_DEVICE_MEMORY_SHARED_CACHE", "CUDA_REDIRECT=", "GPU_DEVICES_UUID",
    "LIBCUDA_LOG_LEVEL=", "LOGGER_LEVEL=", "VGPU_", "GPU_CORE_UTILIZATION_POLICY="};

struct list {
    char **entries;
    size_t count;
};

static void add(struct list *list, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct list *list, const char *format, ...)
{
    va_list arguments;
    char *entry = NULL;
    va_start(arguments, format);
    int length = vasprintf(&entry, format, arguments);
    va_end(arguments);
    if (length >= 0 && list->count + 1 < ENTRIES_MOST)
        list->entries[list->count++] = entry;
    else if (length >= 0)
        free(entry);
}

static bool is_foreign(const char *entry)
{
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
        if (!strncmp(entry, foreign[i], strlen(foreign[i])))
            return true;
    }
    return false;
}

bool bench_can_limit(const struct bench *bench, size_t number, const struct bench_limits *limits,
    char *missing, size_t size)
{
    const struct bench_subject *subject = &bench->results.subjects[number];
    const char *lacks = NULL;
    if (!subject->library)
        lacks = limits->memory_mib > 0 || limits->cores ? BENCH_NO_LIMIT : NULL;
    else if (limits->memory_mib > 0 && !bench_settings_have(subject, BENCH_WORD_BYTES) &&
             !bench_settings_have(subject, BENCH_WORD_MIB))
        lacks = "no variable of its environment is said to be its memory limit";
    else if (limits->cores && !bench_settings_have(subject, BENCH_WORD_PERCENT))
        lacks = "no variable of its environment is said to be its compute limit";
    if (lacks)
        snprintf(missing, size, "%s", lacks);
    return !lacks;
}

/* What a word in braces stands for. */
struct fill {
    const char *word;
    char text[PATH_MAX + 16];
    bool given;
};

#define FILLS 5

static const struct fill *fill_at(const char *value, const struct fill *fills)
{
    for (size_t i = 0; i < FILLS; i++) {
        if (!strncmp(value, fills[i].word, strlen(fills[i].word)))
            return &fills[i];
    }
    return NULL;
}

/* Sets the variable with its words filled in; one of a limit that there is not is not set. */
static void add_setting(
    struct list *list, const struct bench_setting *setting, const struct bench_limits *limits)
{
    struct fill fills[FILLS] = {{.word = BENCH_WORD_BYTES, .given = limits->memory_mib > 0},
        {.word = BENCH_WORD_MIB, .given = limits->memory_mib > 0},
        {.word = BENCH_WORD_PERCENT, .given = limits->cores > 0},
        {.word = BENCH_WORD_REGION, .given = true}, {.word = BENCH_WORD_BOARD, .given = true}};
    char *value = NULL;
    size_t size;
    bool given = true;
    snprintf(fills[0].text, sizeof(fills[0].text), "%.0f", limits->memory_mib * BENCH_MIB);
    snprintf(fills[1].text, sizeof(fills[1].text), "%.0f", limits->memory_mib);
    snprintf(fills[2].text, sizeof(fills[2].text), "%u", limits->cores);
    snprintf(fills[3].text, sizeof(fills[3].text), "%s/region", limits->place);
    /* Without this directory there is no board. */
    snprintf(
        fills[4].text, sizeof(fills[4].text), "%s", limits->board ? limits->board : limits->place);
    FILE *out = bench_need(open_memstream(&value, &size));
    for (const char *at = setting->value; *at;) {
        const struct fill *fill = fill_at(at, fills);
        if (fill)
            fputs(fill->text, out);
        else
            putc(*at, out);
        at += fill ? strlen(fill->word) : 1;
        given = given && (!fill || fill->given);
    }
    fclose(out);
    if (given)
        add(list, "%s=%s", setting->name, value);
    free(value);
}

static void add_subject(
    struct list *list, const struct bench_subject *subject, const struct bench_limits *limits)
{
    size_t count;
    struct bench_setting *settings = bench_settings_of(subject, &count);
    for (size_t i = 0; i < count; i++)
        add_setting(list, &settings[i], limits);
    free(settings);
}

static void add_sim(struct list *list, const struct bench *bench)
{
    const char *path = getenv("LD_LIBRARY_PATH");
    if (!bench->options->sim)
        return;
    add(list, "VGPU_SIM=%s", bench->options->sim);
    add(list, "VGPU_SIM_MACHINE=%s/machine", bench->scratch);
    add(list, "LD_LIBRARY_PATH=%s%s%s", bench->sim, path ? ":" : "", path ? path : "");
}

char **bench_environment(
    const struct bench *bench, size_t number, const struct bench_limits *limits)
{
    const struct bench_subject *subject = &bench->results.subjects[number];
    struct list list = {calloc(ENTRIES_MOST, sizeof(char *)), 0};
    const char *preload = subject->library ? subject->library : "";
    if (!list.entries)
        exit(1);
    for (char **entry = environ; *entry; entry++) {
        if (!is_foreign(*entry) &&
            (!bench->options->sim || strncmp(*entry, "LD_LIBRARY_PATH=", 16) != 0))
            add(&list, "%s", *entry);
    }
    if (bench->options->sim)
        add(&list, "LD_PRELOAD=%s%s%s/libvgpu-sim-rm.so", preload, *preload ? ":" : "", bench->sim);
    else if (*preload)
        add(&list, "LD_PRELOAD=%s", preload);
    add_sim(&list, bench);
    if (subject->library)
        add_subject(&list, subject, limits);
    return list.entries;
}

void bench_environment_free(char **environment)
{
    for (size_t i = 0; environment[i]; i++)
        free(environment[i]);
    free(environment);
}

void bench_place(struct bench *bench, char *place, size_t size)
{
    int length = snprintf(place, size, "%s/%u", bench->scratch, ++bench->places);
    if (length < 0 || (size_t)length >= size || mkdir(place, 0700) != 0)
        bench_say(bench, "cannot make %s: %s", place, strerror(errno));
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *ftw)
{
    (void)status;
    (void)kind;
    (void)ftw;
    return remove(path) != 0 && errno != ENOENT;
}

void bench_remove_tree(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void bench_remove_places(const struct bench *bench, unsigned first)
{
    char place[PATH_MAX];
    for (unsigned i = first + 1; i <= bench->places; i++) {
        snprintf(place, sizeof(place), "%.3000s/%u", bench->scratch, i);
        bench_remove_tree(place);
    }
}

void bench_allow(const struct bench *bench, struct bench_process *process, double seconds)
{
    const bool brief = bench->options->scale < 1 || !bench->results.full;
    if (brief && seconds <= USUAL_S && seconds > SHORT_S)
        seconds = SHORT_S;
    process->deadline_ns = clock_now_ns() + (uint64_t)(seconds * 1e9);
    process->cut = bench->cut_ns && bench->cut_ns < process->deadline_ns;
    if (process->cut)
        process->deadline_ns = bench->cut_ns;
}

int bench_start(struct bench *bench, struct bench_process *process, size_t subject,
    const struct bench_limits *limits, char *const *arguments, double seconds)
{
    char **environment = bench_environment(bench, subject, limits);
    int error = bench_process_start(process, arguments, environment);
    bench_allow(bench, process, seconds);
    bench_environment_free(environment);
    if (error)
        snprintf(bench->unstarted[subject], sizeof(bench->unstarted[subject]),
            "a process could not be started: %s", strerror(-error));
    return error;
}

int bench_start_worker(struct bench *bench, struct bench_process *process, size_t subject,
    const struct bench_limits *limits, double seconds, const char *name, ...)
{
    char *arguments[BENCH_ARGUMENTS_MOST] = {bench->program, (char *)"--worker", (char *)name};
    va_list more;
    va_start(more, name);
    for (int i = 3; i + 1 < BENCH_ARGUMENTS_MOST; i++) {
        arguments[i] = va_arg(more, char *);
        if (!arguments[i])
            break;
    }
    va_end(more);
    return bench_start(bench, process, subject, limits, arguments, seconds);
}
