/* SPDX-License-Identifier: Apache-2.0 */
/* Results to results.json, which is replaced at once. */
#include "base/text.h"
#include "bench/results/need.h"
#include "bench/results/results.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static json_t *write_result(const struct bench_result *result, bool simulated)
{
    if (result->missing)
        return json_pack("{s:s, s:b, s:s}", "subject", result->subject, "simulated", simulated,
            "missing", result->missing);
    json_t *samples = json_array();
    for (size_t i = 0; i < result->sample_count; i++)
        json_array_append_new(samples, json_real(result->samples[i]));
    json_t *object = json_pack("{s:s, s:b, s:f, s:f, s:f, s:I, s:o}", "subject", result->subject,
        "simulated", simulated, "value", result->value, "low", result->low, "high", result->high,
        "repetitions", (json_int_t)result->repetitions, "samples", samples);
    json_t *rounds = result->rounds ? json_array() : NULL;
    for (size_t i = 0; rounds && i < result->sample_count; i++)
        json_array_append_new(rounds, json_integer(result->rounds[i]));
    if (rounds)
        json_object_set_new(object, "rounds", rounds);
    return object;
}

static json_t *write_figure(const struct bench_figure *figure, bool simulated)
{
    json_t *results = json_array();
    for (size_t i = 0; i < figure->result_count; i++)
        json_array_append_new(results, write_result(&figure->results[i], simulated));
    return json_pack("{s:s, s:s, s:b, s:s, s:s, s:s, s:s, s:o, s:s, s:o, s:o}", "id", figure->id,
        "group", figure->group, "simulated", simulated, "title", figure->title, "definition",
        figure->definition, "unit", figure->unit, "better", bench_better_name(figure->better),
        "target", figure->has_target ? json_real(figure->target) : json_null(), "case",
        figure->condition, "turns", figure->turns ? json_integer(figure->turns) : json_null(),
        "results", results);
}

/* Escaped, to be freed: JSON takes UTF-8 alone. NULL of NULL. */
static char *fit_for_json(const char *raw)
{
    size_t length = raw ? strlen(raw) : 0, room = 4 * length + 1;
    char *text = raw ? bench_need(malloc(room)) : NULL;
    if (text)
        text_escape(text, room, raw, length);
    return text;
}

static json_t *write_subject(const struct bench_subject *subject)
{
    json_t *environment = json_object();
    for (size_t i = 0; i < subject->setting_count; i++) {
        char *name = fit_for_json(subject->environment[i].name);
        char *value = fit_for_json(subject->environment[i].value);
        json_object_set_new(environment, name, json_string(value));
        free(name);
        free(value);
    }
    char *library = fit_for_json(subject->library);
    json_t *object = json_pack("{s:s, s:s?, s:s?, s:o}", "label", subject->label, "library",
        library, "build", subject->build, "environment", environment);
    free(library);
    return object;
}

static const char *known(const char *text)
{
    return text ? text : "";
}

static json_t *write_root(const struct bench_results *results)
{
    const struct bench_machine *machine = &results->machine;
    json_t *subjects = json_array(), *figures = json_array();
    for (size_t i = 0; i < results->subject_count; i++)
        json_array_append_new(subjects, write_subject(&results->subjects[i]));
    for (size_t i = 0; i < results->figure_count; i++)
        json_array_append_new(figures, write_figure(&results->figures[i], results->simulated));
    return json_pack("{s:i, s:b, s:s, s:o, s:{s:s+, s:s, s:s, s:s, s:i, s:s, s:s}, s:o, s:o}",
        "version", BENCH_RESULTS_VERSION, "simulated", results->simulated, "mode",
        results->full ? "full" : "quick", "seed",
        results->seed ? json_integer(results->seed) : json_null(), "machine", "gpu",
        known(machine->gpu), results->simulated ? BENCH_SIMULATED : "", "driver",
        known(machine->driver), "cuda", known(machine->cuda), "cpu", known(machine->cpu), "cores",
        (int)machine->cores, "kernel", known(machine->kernel), "when", known(machine->when),
        "subjects", subjects, "figures", figures);
}

int bench_results_write(const struct bench_results *results, const char *path)
{
    size_t room = strlen(path) + sizeof(".XXXXXX");
    char *young = malloc(room);
    json_t *root = write_root(results);
    int error = young && root ? 0 : -ENOMEM;
    if (!error) {
        snprintf(young, room, "%s.XXXXXX", path);
        int fd = mkostemp(young, O_CLOEXEC);
        FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
        error = file ? 0 : -errno;
        if (file) {
            int failed = json_dumpf(root, file, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
            failed |= fputc('\n', file) == EOF;
            failed |= fchmod(fd, 0644) != 0;
            failed |= fclose(file) != 0;
            error = failed || rename(young, path) != 0 ? -(errno ? errno : EIO) : 0;
            if (error)
                unlink(young);
        }
    }
    json_decref(root);
    free(young);
    return error;
}
