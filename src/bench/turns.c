/* SPDX-License-Identifier: Apache-2.0 */
/* The turns of workers that live beside each other. */
#include "bench/turns.h"

#include "base/clock.h"
#include "bench/chance.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#define LONG_TURN_S 2.5  /* the longest turn */
#define CONTEXT_MIB 1024 /* more than a context needs */

size_t bench_turns_beside(const struct bench *bench, size_t count, double mib)
{
    bool fit = (CONTEXT_MIB + mib) * (double)count < bench->memory_mib * 0.8;
    return fit ? count : 1;
}

static bool is_word(const char *line, const char *word)
{
    size_t length = strlen(word);
    return !strncmp(line, word, length) && line[length] == '\n';
}

/* Why a worker that ended has no more figures. */
static void note_failure(struct bench *bench, struct bench_turn *turn)
{
    char reason[256];
    turn->ready = false;
    bench_process_wait(&turn->process, 1);
    bench_note_end(bench, turn->subject, &turn->process);
    if (bench_stopped() || !bench_process_failure(&turn->process, reason, sizeof(reason)))
        return;
    const char *conditions[] = {turn->condition, turn->also};
    for (size_t i = 0; i < 2 && conditions[i]; i++) {
        if (turn->id)
            bench_missing(bench, turn->subject, turn->id, conditions[i], reason);
        else
            bench_missing_all(bench, turn->subject, conditions[i], reason);
    }
}

/* Where it hangs, half of the time that is left is the others'. */
static void allow(const struct bench *bench, struct bench_turn *turn)
{
    double half_s = ((double)bench->cut_ns - (double)clock_now_ns()) / 2e9;
    bool little = bench->cut_ns && half_s < turn->seconds;
    bench_allow(bench, &turn->process, little ? fmax(half_s, 2 * LONG_TURN_S) : turn->seconds);
}

/* Gathers until the word; whether it came. */
static bool hear(struct bench *bench, struct bench_turn *turn, const char *word)
{
    const char *line;
    allow(bench, turn);
    while (!bench_stopped() && (line = bench_process_line(&turn->process, &turn->offset))) {
        if (is_word(line, word))
            return true;
        bench_gather_line(bench, turn->subject, turn->condition, line);
        if (turn->also)
            bench_gather_line(bench, turn->subject, turn->also, line);
    }
    note_failure(bench, turn);
    return false;
}

static void tell(struct bench_turn *turn, const char *word)
{
    char line[64];
    snprintf(line, sizeof(line), "%s\n", word);
    bench_process_tell(&turn->process, line);
}

size_t bench_turns_ready(struct bench *bench, struct bench_turn *turns, size_t count)
{
    size_t ready = 0;
    bench->turn = 0;
    for (size_t i = 0; i < count; i++) {
        turns[i].ready = turns[i].process.pid && hear(bench, &turns[i], "ready");
        ready += turns[i].ready;
    }
    return ready;
}

void bench_turns_round(
    struct bench *bench, struct bench_turn *turns, size_t count, const char *word)
{
    size_t order[BENCH_TURNS_MOST];
    bench_shuffle(order, count);
    for (size_t i = 0; i < count && !bench_stopped(); i++) {
        struct bench_turn *turn = &turns[order[i]];
        if (!turn->ready)
            continue;
        tell(turn, word);
        (void)hear(bench, turn, "done");
    }
    bench->turn++;
}

/* One of those that this process may run on; -1 where they are not known. */
static int cpu_by_chance(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        return -1;
    uint64_t before = bench_chance() % (uint64_t)CPU_COUNT(&allowed);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &allowed) || before--)
        cpu++;
    return cpu;
}

void bench_turns_round_pinned(
    struct bench *bench, struct bench_turn *turns, size_t count, const char *word)
{
    char line[64];
    int cpu = cpu_by_chance();
    if (cpu >= 0)
        snprintf(line, sizeof(line), "%s cpu %d", word, cpu);
    bench_turns_round(bench, turns, count, cpu >= 0 ? line : word);
}

void bench_turns_together(
    struct bench *bench, struct bench_turn *turns, size_t count, const char *word)
{
    for (size_t i = 0; i < count; i++) {
        if (turns[i].ready)
            tell(&turns[i], word);
    }
    for (size_t i = 0; i < count && !bench_stopped(); i++) {
        if (turns[i].ready)
            (void)hear(bench, &turns[i], "done");
    }
}

void bench_turns_finish(struct bench *bench, struct bench_turn *turns, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (turns[i].ready)
            bench_process_end_input(&turns[i].process);
    }
    for (size_t i = 0; i < count; i++) {
        if (turns[i].ready) {
            allow(bench, &turns[i]);
            note_failure(bench, &turns[i]);
        }
        bench_process_finish(&turns[i].process);
    }
}
