/* SPDX-License-Identifier: Apache-2.0 */
/* Real work: matrix products by cuBLAS, training and inference by PyTorch, where they are found. */
#include "bench/bench.h"

#include "tool/paths.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FREE "no limit"
#define HELD "limit 50"

static const struct bench_definition gemm_definition = {"work.gemm", "chain of matrix products",
    "cublasSgemm of 4096 × 4096, each on the product before; a step is four.", "steps/s",
    BENCH_HIGHER, false, 0};

/* PyTorch's programs are bench/compute_work's. */
static const struct torch {
    struct bench_definition definition;
    const char *script;
} torches[] = {
    {{"work.training", "training step",
         "Steps in a second of training a perceptron of three layers by PyTorch: many "
         "short kernels, which the host can hardly feed.",
         "steps/s", BENCH_HIGHER, false, 0},
        "training_mlp.py"},
    {{"work.inference", "inference by a CUDA graph",
         "Replays in a second of a CUDA graph of a perceptron of eight layers by PyTorch.",
         "steps/s", BENCH_HIGHER, false, 0},
        "graph.py"},
};
#define TORCHES (sizeof(torches) / sizeof(torches[0]))

/* The first variant is native; then two for each subject. */
static bool begin(struct bench *bench, const char *id, size_t variant, size_t *ret_subject,
    const char **ret_condition, struct bench_limits *ret_limits, char *place, size_t size)
{
    char reason[200];
    *ret_subject = (variant + 1) / 2;
    *ret_condition = variant && variant % 2 == 0 ? HELD : FREE;
    *ret_limits =
        (struct bench_limits){.cores = !strcmp(*ret_condition, HELD) ? 50 : 0, .place = place};
    if (!variant)
        bench_missing(bench, 0, id, HELD, BENCH_NO_LIMIT);
    if (bench->failed[*ret_subject][0])
        return false;
    if (!bench_can_limit(bench, *ret_subject, ret_limits, reason, sizeof(reason))) {
        bench_missing(bench, *ret_subject, id, *ret_condition, reason);
        return false;
    }
    bench_place(bench, place, size);
    return true;
}

static void run_gemm(struct bench *bench, const struct bench_item *item, size_t variant)
{
    struct bench_process process = {0};
    struct bench_limits limits;
    char place[PATH_MAX], seconds[16], reason[256];
    const char *condition;
    size_t subject;
    (void)item;
    if (!begin(bench, gemm_definition.id, variant, &subject, &condition, &limits, place,
            sizeof(place)))
        return;
    snprintf(
        seconds, sizeof(seconds), "%.3f", (bench->results.full ? 3 : 1) * bench->options->scale);
    if (bench->options->sim) {
        bench_missing(
            bench, subject, gemm_definition.id, condition, "cuBLAS does not run on the simulator");
        return;
    }
    if (bench_start_worker(
            bench, &process, subject, &limits, 40, "gemm", gemm_definition.id, seconds, NULL) != 0)
        return;
    bench_process_wait(&process, 1);
    if (!bench_stopped() && bench_process_failure(&process, reason, sizeof(reason)))
        bench_missing(bench, subject, gemm_definition.id, condition, reason);
    bench_gather_worker(bench, subject, condition, &process);
    bench_process_finish(&process);
}

/* The JSON object that ends what compute_work's programs write. */
static double steps_in(const struct bench_process *process)
{
    const char *at = process->text ? strstr(process->text, "{\"work_per_second\"") : NULL;
    json_t *root = at ? json_loads(at, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const json_t *value = json_object_get(root, "work_per_second");
    double steps = json_is_number(value) ? json_number_value(value) : -1;
    json_decref(root);
    return steps;
}

static void run_torch(struct bench *bench, const struct bench_item *item, size_t variant)
{
    const struct torch *torch = item->data;
    struct bench_process process = {0};
    struct bench_limits limits;
    char place[PATH_MAX], script[PATH_MAX], name[64], seconds[16], reason[256] = "";
    char *arguments[] = {(char *)bench->options->python, script, seconds, (char *)"0.5", NULL};
    const char *condition;
    size_t subject;
    if (!begin(bench, torch->definition.id, variant, &subject, &condition, &limits, place,
            sizeof(place)))
        return;
    snprintf(name, sizeof(name), "bench/%s", torch->script);
    snprintf(seconds, sizeof(seconds), "%.3f", bench->results.full ? 4.0 : 1.5);
    if (path_find(name, script, sizeof(script)) != 0) {
        bench_missing(
            bench, subject, torch->definition.id, condition, "its program is not installed");
        return;
    }
    if (bench_start(bench, &process, subject, &limits, arguments, 60) != 0)
        return;
    bench_process_wait(&process, 1);
    bench_note_end(bench, subject, &process);
    double steps = steps_in(&process);
    if (bench_process_failure(&process, reason, sizeof(reason)) || steps < 0)
        bench_missing(bench, subject, torch->definition.id, condition,
            reason[0] ? reason : "it ended without a report");
    else
        bench_sample(bench, subject, torch->definition.id, condition, steps, 1);
    bench_process_finish(&process);
}

/* Whether Python finds PyTorch with a GPU; if not, the reason. */
static bool has_torch(struct bench *bench, char *reason, size_t size)
{
    char *arguments[] = {(char *)bench->options->python, (char *)"-c",
        (char *)"import sys, torch; sys.exit(None if torch.cuda.is_available() else 'PyTorch finds "
                "no "
                "GPU')",
        NULL};
    struct bench_limits none = {.place = bench->scratch};
    struct bench_process process = {0};
    char why[200];
    if (bench->options->sim) {
        snprintf(reason, size, "PyTorch does not run on the simulator");
        return false;
    }
    if (bench_start(bench, &process, 0, &none, arguments, 60) != 0)
        return false;
    bench_process_wait(&process, 1);
    bool found = !bench_process_failure(&process, why, sizeof(why));
    if (!found)
        snprintf(reason, size, "no Python with PyTorch: %s: %s", bench->options->python, why);
    bench_process_finish(&process);
    return found;
}

void bench_work(struct bench *bench)
{
    const size_t variants = 2 * bench->results.subject_count - 1;
    struct bench_item items[1 + TORCHES] = {{"cuBLAS", variants, 2.5, 0, run_gemm, NULL}};
    char reason[300] = "it could not be asked for PyTorch";
    size_t count = 1;
    bench_declare(bench, &gemm_definition, FREE);
    bench_declare(bench, &gemm_definition, HELD);
    bool torch = has_torch(bench, reason, sizeof(reason));
    for (size_t i = 0; i < TORCHES; i++) {
        bench_declare(bench, &torches[i].definition, FREE);
        bench_declare(bench, &torches[i].definition, HELD);
        for (size_t s = 0; !torch && s < bench->results.subject_count; s++) {
            bench_missing(bench, s, torches[i].definition.id, FREE, reason);
            bench_missing(bench, s, torches[i].definition.id, HELD, reason);
        }
        if (torch)
            items[count++] = (struct bench_item){
                torches[i].definition.title, variants, 7, 0, run_torch, &torches[i]};
    }
    bench_run_items(bench, items, count);
}
