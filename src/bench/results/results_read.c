/* SPDX-License-Identifier: Apache-2.0 */
/* Results from results.json: the file may come from anywhere, and each word of it may be wrong. */
#include "base/text.h"
#include "bench/results/derive.h"
#include "bench/results/need.h"
#include "bench/results/results.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MOST (64l << 20)
#define REPETITIONS_MOST 1000000000ll
#define TURNS_MOST 1000
#define ROUNDS_MOST 1000000

struct reader {
    char *reason;
    size_t room;
    bool failed;
};

static void refuse(struct reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void refuse(struct reader *reader, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (!reader->failed && reader->room)
        text_escape(reader->reason, reader->room, text, strlen(text));
    reader->failed = true;
}

static const char *text_in(
    struct reader *reader, const json_t *object, const char *where, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value))
        return json_string_value(value);
    refuse(reader, "%s.%s is %s; accepted: a text", where, name, value ? "no text" : "not there");
    return "";
}

/* As text_in, but may be null or not there: NULL then. */
static const char *text_or_null(
    struct reader *reader, const json_t *object, const char *where, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return !value || json_is_null(value) ? NULL : text_in(reader, object, where, name);
}

static double number_in(
    struct reader *reader, const json_t *object, const char *where, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (json_is_number(value) && isfinite(json_number_value(value)))
        return json_number_value(value);
    refuse(
        reader, "%s.%s is %s; accepted: a number", where, name, value ? "no number" : "not there");
    return 0;
}

static long long whole_in(struct reader *reader, const json_t *object, const char *where,
    const char *name, long long least, long long most)
{
    const json_t *value = json_object_get(object, name);
    if (json_is_integer(value) && json_integer_value(value) >= least &&
        json_integer_value(value) <= most)
        return json_integer_value(value);
    refuse(reader, "%s.%s is not accepted; accepted: a whole number from %lld to %lld", where, name,
        least, most);
    return least;
}

static const json_t *array_in(
    struct reader *reader, const json_t *object, const char *where, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_array(value))
        refuse(
            reader, "%s.%s is %s; accepted: a list", where, name, value ? "no list" : "not there");
    return value;
}

/* One of the words, which NULL ends; its place. */
static int word_in(struct reader *reader, const json_t *object, const char *where, const char *name,
    const char *const *words)
{
    const char *text = text_in(reader, object, where, name);
    for (int i = 0; words[i]; i++) {
        if (!strcmp(words[i], text))
            return i;
    }
    char accepted[128] = "";
    for (int i = 0; words[i]; i++) {
        size_t length = strlen(accepted);
        snprintf(accepted + length, sizeof(accepted) - length, "%s%s", i ? ", " : "", words[i]);
    }
    refuse(reader, "%s.%s is \"%.64s\"; accepted: %s", where, name, text, accepted);
    return 0;
}

static char *copy(struct reader *reader, const char *text)
{
    char *copied = strdup(text);
    if (!copied)
        refuse(reader, "out of memory");
    return copied;
}

static void read_machine(struct reader *reader, const json_t *root, struct bench_machine *machine)
{
    const json_t *object = json_object_get(root, "machine");
    const struct {
        const char *name;
        char **text;
    } texts[] = {{"gpu", &machine->gpu}, {"driver", &machine->driver}, {"cuda", &machine->cuda},
        {"cpu", &machine->cpu}, {"kernel", &machine->kernel}, {"when", &machine->when}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        *texts[i].text = copy(reader, text_in(reader, object, "machine", texts[i].name));
    machine->cores = (unsigned)whole_in(reader, object, "machine", "cores", 0, 1 << 20);
}

/* A GPU that is simulated is called so in files of later versions. */
static void drop_simulated(char *gpu)
{
    size_t length = gpu ? strlen(gpu) : 0, mark = strlen(BENCH_SIMULATED);
    if (length >= mark && !strcmp(gpu + length - mark, BENCH_SIMULATED))
        gpu[length - mark] = '\0';
}

static void read_subject(
    struct reader *reader, const json_t *object, size_t place, struct bench_results *results)
{
    char where[64];
    snprintf(where, sizeof(where), "subjects[%zu]", place);
    const char *label = text_in(reader, object, where, "label");
    const char *library = text_or_null(reader, object, where, "library");
    const json_t *environment = json_object_get(object, "environment");
    if (!json_is_object(environment))
        refuse(reader, "%s.environment is no object; accepted: variables and their values", where);
    if (bench_results_subject(results, label))
        refuse(reader, "%s.label is \"%.64s\" a second time", where, label);
    struct bench_subject *subject = bench_results_add_subject(results, label, library);
    const char *build = text_or_null(reader, object, where, "build");
    if (build)
        bench_subject_set_build(subject, build);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)environment, name, value)
        bench_subject_set(subject, name, text_in(reader, environment, where, name));
}

static void read_samples(struct reader *reader, const json_t *object, const char *where,
    const char *subject, struct bench_figure *figure)
{
    const json_t *samples = array_in(reader, object, where, "samples");
    size_t count = json_array_size(samples);
    long long repetitions = whole_in(reader, object, where, "repetitions", 1, REPETITIONS_MOST);
    if (!count || count > (unsigned long long)repetitions) {
        refuse(reader, "%s.samples has %zu values; accepted: 1 to its repetitions", where, count);
        return;
    }
    double *values = malloc(count * sizeof(*values));
    for (size_t i = 0; values && i < count; i++) {
        const json_t *value = json_array_get(samples, i);
        values[i] = json_number_value(value);
        if (!json_is_number(value) || !isfinite(values[i]))
            refuse(reader, "%s.samples[%zu] is no number", where, i);
    }
    if (!values)
        refuse(reader, "out of memory");
    else if (!reader->failed)
        bench_figure_measured(figure, subject, values, count, (unsigned long)repetitions);
    free(values);
}

/* One for each sample, none less than the one before. */
static void read_rounds(struct reader *reader, const json_t *rounds, const char *where,
    const char *subject, struct bench_figure *figure)
{
    size_t count = bench_figure_result(figure, subject)->sample_count;
    unsigned *values = bench_need(malloc(count * sizeof(*values)));
    if (json_array_size(rounds) != count)
        refuse(reader, "%s.rounds is not accepted; accepted: one for each of its samples", where);
    for (size_t i = 0; !reader->failed && i < count; i++) {
        const json_t *value = json_array_get(rounds, i);
        json_int_t least = i ? (json_int_t)values[i - 1] : 0, round = json_integer_value(value);
        if (!json_is_integer(value) || round < least || round > ROUNDS_MOST)
            refuse(reader, "%s.rounds[%zu] is not accepted; accepted: numbers that do not descend",
                where, i);
        values[i] = (unsigned)round;
    }
    if (!reader->failed)
        bench_figure_set_rounds(figure, subject, values);
    free(values);
}

static void read_result(struct reader *reader, const json_t *object, const char *where,
    const struct bench_results *results, struct bench_figure *figure)
{
    const char *subject = text_in(reader, object, where, "subject");
    const char *missing = text_or_null(reader, object, where, "missing");
    if (reader->failed)
        return;
    if (!bench_results_subject(results, subject))
        refuse(reader, "%s.subject is \"%.64s\", which is none of the subjects", where, subject);
    else if (bench_figure_result(figure, subject))
        refuse(reader, "%s.subject is \"%.64s\" a second time", where, subject);
    else if (missing)
        bench_figure_missing(figure, subject, missing);
    else {
        /* They follow from the samples, and stand there for other readers. */
        (void)number_in(reader, object, where, "value");
        (void)number_in(reader, object, where, "low");
        (void)number_in(reader, object, where, "high");
        read_samples(reader, object, where, subject, figure);
        const json_t *rounds = json_object_get(object, "rounds");
        if (rounds && !reader->failed)
            read_rounds(reader, rounds, where, subject, figure);
    }
}

/* Files that do not say it are of versions that measured these in turn. */
static unsigned former_turns(const char *id)
{
    static const struct {
        const char *begin;
        unsigned turns;
    } known[] = {{"cost.launch.", 6}, {"cost.alloc.live.", 10}, {"cost.alloc.", 6},
        {"cost.query", 6}, {"cost.", 1}, {"work.", 3}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (!strncmp(id, known[i].begin, strlen(known[i].begin)))
            return known[i].turns;
    }
    return 0;
}

static unsigned turns_in(
    struct reader *reader, const json_t *object, const char *where, const char *id)
{
    const json_t *value = json_object_get(object, "turns");
    if (!value)
        return former_turns(id);
    return json_is_null(value) ? 0
                               : (unsigned)whole_in(reader, object, where, "turns", 1, TURNS_MOST);
}

static void read_figure(
    struct reader *reader, const json_t *object, size_t place, struct bench_results *results)
{
    static const char *const betters[] = {"lower", "higher", "target", NULL};
    char where[64], inner[128];
    snprintf(where, sizeof(where), "figures[%zu]", place);
    const json_t *target = json_object_get(object, "target");
    /* The texts are the document's while this lasts. */
    struct bench_figure texts = {.id = (char *)text_in(reader, object, where, "id"),
        .group = (char *)text_in(reader, object, where, "group"),
        .title = (char *)text_in(reader, object, where, "title"),
        .definition = (char *)text_in(reader, object, where, "definition"),
        .unit = (char *)text_in(reader, object, where, "unit"),
        .condition = (char *)text_in(reader, object, where, "case"),
        .better = (enum bench_better)word_in(reader, object, where, "better", betters),
        .has_target = target && !json_is_null(target)};
    if (texts.has_target)
        texts.target = number_in(reader, object, where, "target");
    texts.turns = turns_in(reader, object, where, texts.id);
    const json_t *list = array_in(reader, object, where, "results");
    (void)word_in(reader, object, where, "group", bench_groups);
    if (bench_results_find(results, texts.id, texts.condition))
        refuse(
            reader, "%s is \"%.64s\" of \"%.64s\" a second time", where, texts.id, texts.condition);
    if (reader->failed)
        return;
    struct bench_figure *figure = bench_results_add_figure(results, &texts);
    for (size_t i = 0; i < json_array_size(list) && !reader->failed; i++) {
        snprintf(inner, sizeof(inner), "%s.results[%zu]", where, i);
        read_result(reader, json_array_get(list, i), inner, results, figure);
    }
}

static void read_root(struct reader *reader, const json_t *root, struct bench_results *results)
{
    static const char *const modes[] = {"quick", "full", NULL};
    if (!json_is_object(root)) {
        refuse(reader, "it is no JSON object");
        return;
    }
    (void)whole_in(reader, root, "it", "version", BENCH_RESULTS_VERSION, BENCH_RESULTS_VERSION);
    const json_t *simulated = json_object_get(root, "simulated");
    if (!json_is_boolean(simulated))
        refuse(reader, "simulated is neither true nor false");
    results->simulated = json_is_true(simulated);
    results->full = word_in(reader, root, "it", "mode", modes) == 1;
    const json_t *seed = json_object_get(root, "seed");
    if (seed && !json_is_null(seed)) /* earlier versions had one for all */
        results->seed = (uint32_t)whole_in(reader, root, "it", "seed", 1, UINT32_MAX);
    read_machine(reader, root, &results->machine);
    if (results->simulated)
        drop_simulated(results->machine.gpu);
    const json_t *subjects = array_in(reader, root, "it", "subjects");
    for (size_t i = 0; i < json_array_size(subjects) && !reader->failed; i++)
        read_subject(reader, json_array_get(subjects, i), i, results);
    const json_t *figures = array_in(reader, root, "it", "figures");
    for (size_t i = 0; i < json_array_size(figures) && !reader->failed; i++)
        read_figure(reader, json_array_get(figures, i), i, results);
}

int bench_results_parse(struct bench_results *results, const char *text, size_t length,
    char *reason, size_t reason_size)
{
    struct reader reader = {.reason = reason, .room = reason_size};
    json_error_t error;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        refuse(&reader, "line %d, column %d: %s", error.line, error.column, error.text);
    else
        read_root(&reader, root, results);
    json_decref(root);
    if (reader.failed)
        bench_results_finish(results);
    else
        bench_results_derive(results);
    return reader.failed ? -EINVAL : 0;
}

/* The file's bytes, to be freed, or NULL with errno. */
static char *load_file(const char *path, size_t *ret_length)
{
    struct stat status = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int error = fd < 0 || fstat(fd, &status) != 0 ? errno : 0;
    if (!error && !S_ISREG(status.st_mode))
        error = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    if (!error && status.st_size > FILE_MOST)
        error = EFBIG;
    char *text = error ? NULL : malloc((size_t)status.st_size + 1);
    size_t length = 0;
    for (ssize_t got = 1;
         text && got > 0 && length<(size_t)status.st_size; length += got> 0 ? (size_t)got : 0) {
        got = read(fd, text + length, (size_t)status.st_size - length);
        error = got < 0 ? errno : 0;
    }
    if (fd >= 0)
        close(fd);
    if (error) {
        free(text);
        text = NULL;
        errno = error;
    }
    *ret_length = length;
    return text;
}

int bench_results_read(
    struct bench_results *results, const char *path, char *reason, size_t reason_size)
{
    size_t length = 0;
    char *text = load_file(path, &length);
    if (!text) {
        int error = errno;
        snprintf(reason, reason_size, "%s", strerror(error));
        return -error;
    }
    int error = bench_results_parse(results, text, length, reason, reason_size);
    free(text);
    return error;
}
