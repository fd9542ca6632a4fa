/* SPDX-License-Identifier: Apache-2.0 */
/* Starting vgpu-load, and reading its report. */
#include "bench/load_run.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GRACE_S 20

int bench_load_start(struct bench *bench, struct bench_process *process, size_t subject,
    const struct bench_limits *limits, const struct bench_load *load)
{
    char kernel[16], window[16], seconds[16], warmup[16];
    char *arguments[BENCH_ARGUMENTS_MOST] = {bench->load, (char *)"--shape", (char *)load->shape,
        (char *)"--kernel-us", kernel, (char *)"--window-ms", window, (char *)"--seconds", seconds,
        (char *)"--warmup", warmup, (char *)"--json", (char *)"--calibration", bench->calibration};
    snprintf(kernel, sizeof(kernel), "%u", load->kernel_us);
    snprintf(window, sizeof(window), "%u", load->window_ms);
    snprintf(seconds, sizeof(seconds), "%.3f", load->seconds);
    snprintf(warmup, sizeof(warmup), "%.3f", load->warmup);
    for (size_t i = 0, end = 14; i < 7 && load->more[i]; i++)
        arguments[end++] = (char *)load->more[i];
    return bench_start(
        bench, process, subject, limits, arguments, load->seconds + load->warmup + GRACE_S);
}

static double number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : -1;
}

/* The JSON object at the end of what it wrote: a library may have talked before it. */
static json_t *find_report(const char *text)
{
    json_t *root = NULL;
    for (const char *at = text; at && !root; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (*at == '{')
            root = json_loads(at, JSON_DISABLE_EOF_CHECK, NULL);
    }
    return root;
}

bool bench_load_report(
    const struct bench_process *process, struct bench_report *ret_report, char *reason, size_t size)
{
    if (bench_process_failure(process, reason, size))
        return false;
    json_t *root = find_report(process->text);
    const json_t *windows = json_object_get(root, "windows");
    const json_t *latency = json_object_get(root, "latency_us");
    size_t count = json_array_size(windows);
    *ret_report = (struct bench_report){.work = number(root, "work_per_second"),
        .utilization = number(root, "nvml_utilization") / 100,
        .seconds = number(root, "seconds"),
        .p50_us = number(latency, "p50"),
        .p99_us = number(latency, "p99"),
        .latencies = (unsigned long)json_integer_value(json_object_get(latency, "count")),
        .begin_ns = (uint64_t)json_integer_value(json_object_get(root, "begin_ns")),
        .window_s = number(root, "window_ms") / 1000,
        .windows = calloc(count + 1, sizeof(double)),
        .window_count = count};
    for (size_t i = 0; ret_report->windows && i < count; i++)
        ret_report->windows[i] = json_number_value(json_array_get(windows, i));
    bool good = ret_report->windows && ret_report->work >= 0 && ret_report->window_s > 0;
    if (!good) {
        snprintf(reason, size, "its load ended without a report");
        bench_report_finish(ret_report);
    }
    json_decref(root);
    return good;
}

void bench_report_finish(struct bench_report *report)
{
    free(report->windows);
    *report = (struct bench_report){0};
}

bool bench_load_run(struct bench *bench, size_t subject, struct bench_limits *limits,
    const struct bench_load *load, struct bench_report *ret_report, char *reason, size_t size)
{
    struct bench_process process = {0};
    char place[PATH_MAX];
    if (subject && !bench_can_limit(bench, subject, limits, reason, size))
        return false;
    bench_place(bench, place, sizeof(place));
    limits->place = place;
    int error = bench_load_start(bench, &process, subject, limits, load);
    limits->place = NULL;
    if (error) {
        snprintf(reason, size, "vgpu-load cannot be started: %s", strerror(-error));
        return false;
    }
    bench_process_wait(&process, 1);
    bench_note_end(bench, subject, &process);
    bool good = bench_load_report(&process, ret_report, reason, size);
    bench_process_finish(&process);
    return good;
}

void bench_latency_sample(struct bench *bench, size_t subject, const char *id,
    const char *condition, const struct bench_report *report, double us, const char *what)
{
    char reason[64];
    if (report->latencies && us >= 0) {
        bench_sample(bench, subject, id, condition, us / 1e3, report->latencies);
        return;
    }
    snprintf(reason, sizeof(reason), "no %s ended in %.1f s", what, report->seconds);
    bench_missing(bench, subject, id, condition, reason);
}

bool bench_calibrate(struct bench *bench, char *reason, size_t size)
{
    char place[PATH_MAX];
    char *arguments[] = {bench->load, (char *)"--seconds", (char *)"0.1", (char *)"--json",
        (char *)"--save-calibration", bench->calibration, NULL};
    struct bench_limits limits = {0};
    struct bench_process process = {0};
    if (access(bench->calibration, R_OK) == 0)
        return true;
    bench_say(bench, "calibration of the load, natively");
    bench_place(bench, place, sizeof(place));
    limits.place = place;
    if (bench_start(bench, &process, 0, &limits, arguments, 60) != 0) {
        snprintf(reason, size, "vgpu-load cannot be started");
        return false;
    }
    bench_process_wait(&process, 1);
    bool good = !bench_process_failure(&process, reason, size);
    bench_process_finish(&process);
    return good;
}
