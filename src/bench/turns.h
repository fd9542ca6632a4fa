/* SPDX-License-Identifier: Apache-2.0 */
/* Workers of several subjects that live beside each other and measure in turn, a few hundredths of
 * a second each, while the others wait: what drifts on a machine within seconds, or slows one core
 * down for a while, meets all of them. */
#ifndef VGPU_BENCH_TURNS_H
#define VGPU_BENCH_TURNS_H

#include "bench/bench.h"

#define BENCH_TURNS_MOST (2 * BENCH_SUBJECTS_MOST)

struct bench_turn {
    size_t subject;
    const char *condition; /* of what its worker writes */
    const char *also;      /* a condition that its figures stand for as well; NULL */
    const char *id; /* the figure that is missing where it fails; NULL: all of its condition */
    struct bench_process process;
    double
        seconds;   /* that it has to get ready, and for each turn; less where little time is left */
    size_t offset; /* in its output: what was read */
    bool ready;    /* it waits for a turn */
};

/* How many of `count` workers with `mib` MiB each may live beside each other: all, or one at a
 * time. */
size_t bench_turns_beside(const struct bench *bench, size_t count, double mib);

/* Waits until each that was started says "ready"; one that ends instead is a reason for its
 * figures. Returns how many are ready. */
size_t bench_turns_ready(struct bench *bench, struct bench_turn *turns, size_t count);

/* Each that is ready is told the word, one after the other in an order by chance, and what it
 * writes until "done" is gathered (bench_gather_worker). */
void bench_turns_round(
    struct bench *bench, struct bench_turn *turns, size_t count, const char *word);

/* The same where each pins itself to one CPU for its turn (worker_pin): the same for all, chosen by
 * chance for each round from those of this process, because some cores are slower than others. */
void bench_turns_round_pinned(
    struct bench *bench, struct bench_turn *turns, size_t count, const char *word);

/* Tells all the word at once, and gathers what they write until "done". */
void bench_turns_together(
    struct bench *bench, struct bench_turn *turns, size_t count, const char *word);

/* Ends them: a worker ends by itself where its input does. */
void bench_turns_finish(struct bench *bench, struct bench_turn *turns, size_t count);

#endif
