/* SPDX-License-Identifier: Apache-2.0 */
/* Real work: matrix products by cuBLAS, training and inference by PyTorch, where they are found. */
#include "bench/chance.h"
#include "bench/turns.h"

#include "host/paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FREE "no limit"
#define HELD "limit 50"
#define ROUNDS 3      /* of turns in the life of a process */
#define WORK_MIB 2048 /* more than one of these programs takes beside its context */

static const struct bench_definition gemm_definition = {"work.gemm", "chain of matrix products",
    "cublasSgemm of 4096 × 4096, each on the product before; a step is four.", "steps/s",
    BENCH_HIGHER, false, 0};

static const struct bench_definition torch_definitions[] = {
    {"work.training", "training step",
        "Steps in a second of training a perceptron of three layers by PyTorch: many short "
        "kernels, which the host can hardly feed.",
        "steps/s", BENCH_HIGHER, false, 0},
    {"work.inference", "inference by a CUDA graph",
        "Replays in a second of a CUDA graph of a perceptron of eight layers by PyTorch.",
        "steps/s", BENCH_HIGHER, false, 0},
};
#define TORCHES (sizeof(torch_definitions) / sizeof(torch_definitions[0]))

/* Both programs are in this one of bench/compute_work's. */
#define TORCH_PROGRAM "bench/turns.py"

/* The first variant is native; then two for each subject. */
static size_t variants(const struct bench *bench)
{
    return 2 * bench->results.subject_count - 1;
}

/* False where there is nothing to measure; it is said why then. `id` NULL: of PyTorch's figures. */
static bool begin(struct bench *bench, const char *id, size_t variant, struct bench_turn *turn,
    struct bench_limits *ret_limits, char *place, size_t size)
{
    char reason[200];
    *turn = (struct bench_turn){.subject = (variant + 1) / 2,
        .condition = variant && variant % 2 == 0 ? HELD : FREE,
        .id = id ? id : torch_definitions[0].id,
        .seconds = id ? 60 : 120}; /* what starts Python reads many files */
    *ret_limits =
        (struct bench_limits){.cores = !strcmp(turn->condition, HELD) ? 50 : 0, .place = place};
    if (bench->failed[turn->subject][0])
        return false;
    if (!bench_can_limit(bench, turn->subject, ret_limits, reason, sizeof(reason))) {
        for (size_t i = 0; i < TORCHES; i++)
            bench_missing(
                bench, turn->subject, id ? id : torch_definitions[i].id, turn->condition, reason);
        return false;
    }
    bench_place(bench, place, size);
    return true;
}

/* Why a Python gave nothing, or no more. */
static void note_python(struct bench *bench, const struct bench_turn *turn)
{
    char reason[256], text[300];
    if (turn->ready || !turn->process.pid || bench_stopped() ||
        !bench_process_failure(&turn->process, reason, sizeof(reason)))
        return;
    snprintf(text, sizeof(text), "PyTorch by %.40s: %.200s", bench->options->python, reason);
    for (size_t i = 0; i < TORCHES; i++)
        bench_missing(bench, turn->subject, torch_definitions[i].id, turn->condition, text);
}

/* In the line that a worker is told. */
static void turn_line(const struct bench *bench, const char *word, char *line, size_t size)
{
    const bool full = bench->results.full;
    snprintf(line, size, "%s %.3f %.3f", word, full ? 0.5 : 0.25, full ? 2 : 0.35);
}

/* Workers of the variants from `first` on, `count` of them, beside each other, started in an order
 * by chance: the first process gets the first of the GPU's memory. */
static void start_gemms(struct bench *bench, struct bench_turn *turns, size_t first, size_t count)
{
    char place[PATH_MAX];
    struct bench_limits limits;
    size_t order[BENCH_TURNS_MOST];
    bench_shuffle(order, count);
    for (size_t k = 0; k < count; k++) {
        size_t i = order[k];
        if (begin(bench, gemm_definition.id, first + i, &turns[i], &limits, place, sizeof(place)) &&
            bench_start_worker(bench, &turns[i].process, turns[i].subject, &limits, 60, "gemm",
                gemm_definition.id, NULL) != 0)
            bench_missing(bench, turns[i].subject, gemm_definition.id, turns[i].condition,
                "it cannot be started");
    }
    (void)bench_turns_ready(bench, turns, count);
}

static void run_gemm(struct bench *bench, const struct bench_item *item, size_t number)
{
    struct bench_turn turns[BENCH_TURNS_MOST] = {{0}};
    const size_t together = bench_turns_beside(bench, variants(bench), WORK_MIB);
    char line[64];
    (void)item;
    (void)number;
    turn_line(bench, "turn", line, sizeof(line));
    for (size_t first = 0; first < variants(bench) && !bench_stopped(); first += together) {
        start_gemms(bench, turns, first, together);
        for (int round = 0; round < ROUNDS; round++)
            bench_turns_round(bench, turns, together, line);
        bench_turns_finish(bench, turns, together);
    }
}

/* Likewise. */
static void start_pythons(
    struct bench *bench, struct bench_turn *turns, size_t first, size_t count, char *script)
{
    char place[PATH_MAX];
    char *arguments[] = {(char *)bench->options->python, script, NULL};
    struct bench_limits limits;
    size_t order[BENCH_TURNS_MOST];
    bench_shuffle(order, count);
    for (size_t k = 0; k < count; k++) {
        size_t i = order[k];
        if (begin(bench, NULL, first + i, &turns[i], &limits, place, sizeof(place)) &&
            bench_start(bench, &turns[i].process, turns[i].subject, &limits, arguments, 120) != 0)
            bench_missing_all(
                bench, turns[i].subject, turns[i].condition, "Python cannot be started");
    }
    (void)bench_turns_ready(bench, turns, count);
}

static void run_torch(struct bench *bench, const struct bench_item *item, size_t number)
{
    struct bench_turn turns[BENCH_TURNS_MOST] = {{0}};
    const size_t together = bench_turns_beside(bench, variants(bench), WORK_MIB);
    char script[PATH_MAX], lines[TORCHES][64];
    (void)item;
    (void)number;
    if (path_find(TORCH_PROGRAM, script, sizeof(script)) != 0) {
        for (size_t s = 0; s < bench->results.subject_count; s++)
            bench_missing_all(bench, s, NULL, "the program for PyTorch is not installed");
        return;
    }
    turn_line(bench, "training", lines[0], sizeof(lines[0]));
    turn_line(bench, "inference", lines[1], sizeof(lines[1]));
    for (size_t first = 0; first < variants(bench) && !bench_stopped(); first += together) {
        start_pythons(bench, turns, first, together, script);
        for (size_t turn = 0; turn < ROUNDS * TORCHES; turn++)
            bench_turns_round(bench, turns, together, lines[turn % TORCHES]);
        for (size_t i = 0; i < together; i++)
            note_python(bench, &turns[i]);
        bench_turns_finish(bench, turns, together);
    }
}

static void declare(
    struct bench *bench, const struct bench_definition *definition, const char * not )
{
    bool beside = bench_turns_beside(bench, variants(bench), WORK_MIB) == variants(bench);
    bench_declare(bench, definition, FREE);
    bench_declare(bench, definition, HELD);
    bench_set_turns(bench, definition->id, FREE, beside ? ROUNDS : 0);
    bench_set_turns(bench, definition->id, HELD, beside ? ROUNDS : 0);
    bench_missing(bench, 0, definition->id, HELD, BENCH_NO_LIMIT);
    for (size_t s = 0; bench->options->sim && s < bench->results.subject_count; s++) {
        if (bench->failed[s][0])
            continue;
        bench_missing(bench, s, definition->id, FREE, not );
        if (s)
            bench_missing(bench, s, definition->id, HELD, not );
    }
}

void bench_work(struct bench *bench)
{
    const double variant_s = ROUNDS * (bench->results.full ? 2.6 : 0.65);
    const double all_s = variant_s * (double)variants(bench);
    const struct bench_item items[] = {
        {"cuBLAS", 1, 2 + all_s, 0, run_gemm, NULL},
        {"PyTorch", 1, 10 + 2 * all_s, 0, run_torch, NULL},
    };
    declare(bench, &gemm_definition, "cuBLAS does not run on the simulator");
    for (size_t i = 0; i < TORCHES; i++)
        declare(bench, &torch_definitions[i], "PyTorch does not run on the simulator");
    if (!bench->options->sim)
        bench_run_items(bench, items, sizeof(items) / sizeof(items[0]));
}
