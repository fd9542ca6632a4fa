/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a group while it is measured, and what the items of a group are run by. */
#include "base/clock.h"
#include "bench/bench.h"
#include "bench/chance.h"
#include "bench/results/need.h"
#include "bench/rounds.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HANGS_MOST 3
#define ROUNDS_MOST 25 /* more of them show nothing new */
/* So late may the first round of an item end, and so late is what still runs cut off: by --full, by
 * --quick. The next group's time is less by that. */
#define LATE_S(bench) ((bench)->results.full ? 10 : 3)
#define CUT_S(bench) ((bench)->results.full ? 15 : 6)

void bench_say(const struct bench *bench, const char *format, ...)
{
    char line[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    fprintf(stderr, "%6.1f s  %s\n", (double)(clock_now_ns() - bench->began_ns) / 1e9, line);
}

void bench_declare(
    struct bench *bench, const struct bench_definition *definition, const char *condition)
{
    bench->measured = bench_need(
        realloc(bench->measured, (bench->measured_count + 1) * sizeof(*bench->measured)));
    struct bench_measured *measured = &bench->measured[bench->measured_count++];
    size_t length = strlen(condition) + 1;
    char *copy = memcpy(bench_need(malloc(length)), condition, length);
    *measured = (struct bench_measured){.texts = {.id = (char *)definition->id,
                                            .group = (char *)bench->group,
                                            .title = (char *)definition->title,
                                            .definition = (char *)definition->definition,
                                            .unit = (char *)definition->unit,
                                            .better = definition->better,
                                            .has_target = definition->has_target,
                                            .target = definition->target,
                                            .condition = copy}};
}

void bench_declare_target(struct bench *bench, const struct bench_definition *definition,
    const char *condition, double target)
{
    bench_declare(bench, definition, condition);
    bench->measured[bench->measured_count - 1].texts.has_target = true;
    bench->measured[bench->measured_count - 1].texts.target = target;
}

static struct bench_measured *find_measured(
    const struct bench *bench, const char *id, const char *condition)
{
    for (size_t i = 0; i < bench->measured_count; i++) {
        struct bench_measured *measured = &bench->measured[i];
        if (!strcmp(measured->texts.id, id) && !strcmp(measured->texts.condition, condition))
            return measured;
    }
    return NULL;
}

void bench_set_target(struct bench *bench, const char *id, const char *condition, double target)
{
    struct bench_measured *measured = find_measured(bench, id, condition);
    if (measured) {
        measured->texts.has_target = true;
        measured->texts.target = target;
    }
}

void bench_set_turns(struct bench *bench, const char *id, const char *condition, unsigned turns)
{
    struct bench_measured *measured = find_measured(bench, id, condition);
    if (measured)
        measured->texts.turns = turns;
}

static struct bench_gathered *find(
    const struct bench *bench, size_t subject, const char *id, const char *condition)
{
    struct bench_measured *measured = find_measured(bench, id, condition);
    return measured ? &measured->of[subject] : NULL;
}

static void add_sample(struct bench_gathered *gathered, double value, unsigned moment)
{
    size_t count = gathered->count + 1;
    gathered->samples = bench_need(realloc(gathered->samples, count * sizeof(*gathered->samples)));
    gathered->moments = bench_need(realloc(gathered->moments, count * sizeof(*gathered->moments)));
    gathered->samples[gathered->count] = value;
    gathered->moments[gathered->count++] = moment;
}

void bench_sample(struct bench *bench, size_t subject, const char *id, const char *condition,
    double value, unsigned long repetitions)
{
    struct bench_gathered *gathered = find(bench, subject, id, condition);
    if (!gathered || !isfinite(value))
        return;
    add_sample(gathered, value, bench_moment(bench->round, bench->turn));
    gathered->repetitions += repetitions;
    bench->gathered++;
}

void bench_missing(
    struct bench *bench, size_t subject, const char *id, const char *condition, const char *reason)
{
    struct bench_gathered *gathered = find(bench, subject, id, condition);
    if (gathered)
        snprintf(gathered->missing, sizeof(gathered->missing), "%s", reason);
}

void bench_missing_all(
    struct bench *bench, size_t subject, const char *condition, const char *reason)
{
    for (size_t i = 0; i < bench->measured_count; i++) {
        struct bench_gathered *gathered = &bench->measured[i].of[subject];
        if ((!condition || !strcmp(bench->measured[i].texts.condition, condition)) &&
            !gathered->count && !gathered->missing[0])
            snprintf(gathered->missing, sizeof(gathered->missing), "%s", reason);
    }
}

bool bench_median(const struct bench *bench, size_t subject, const char *id, const char *condition,
    double *ret_median)
{
    const struct bench_gathered *gathered = find(bench, subject, id, condition);
    bool found = gathered && gathered->count;
    if (found)
        *ret_median = bench_quantile(gathered->samples, gathered->count, 0.5);
    return found;
}

void bench_divide(struct bench *bench, const char *id, const char *condition, double divisor)
{
    for (size_t s = 0; s < bench->results.subject_count; s++) {
        struct bench_gathered *gathered = find(bench, s, id, condition);
        for (size_t i = 0; gathered && i < gathered->count; i++)
            gathered->samples[i] /= divisor;
    }
}

void bench_drop(struct bench *bench, const char *id, const char *condition, const char *reason)
{
    for (size_t s = 0; s < bench->results.subject_count; s++) {
        struct bench_gathered *gathered = find(bench, s, id, condition);
        if (gathered && gathered->count)
            snprintf(gathered->missing, sizeof(gathered->missing), "%s", reason);
        if (gathered)
            gathered->count = 0;
    }
}

/* The samples of one library; `native`: the median. */
static void add_added(const struct bench_gathered *alone, double native,
    const struct bench_gathered *gathered, bool percent, struct bench_gathered *added)
{
    for (size_t i = 0; i < gathered->count; i++) {
        const double *sample = bench_sample_of(alone, gathered->moments[i]);
        double of = sample && (!percent || *sample > 0) ? *sample : native;
        double more = gathered->samples[i] - of;
        if (!sample)
            continue;
        add_sample(added, percent ? more / of * 100 : more, gathered->moments[i]);
        added->repetitions += gathered->repetitions / gathered->count;
    }
}

void bench_gather_added(struct bench *bench, const char *id, const char *condition,
    const char *added, const char *added_condition, bool percent)
{
    const struct bench_gathered *alone = find(bench, 0, id, condition);
    double native = 0;
    bool known = bench_median(bench, 0, id, condition, &native) && (!percent || native > 0);
    const struct bench_measured *of_what = find_measured(bench, id, condition);
    bench_set_turns(bench, added, added_condition, of_what ? of_what->texts.turns : 0);
    bench_missing(bench, 0, added, added_condition, BENCH_COMPARED);
    for (size_t s = 1; s < bench->results.subject_count; s++) {
        const struct bench_gathered *gathered = find(bench, s, id, condition);
        struct bench_gathered *to = find(bench, s, added, added_condition);
        if (known && gathered && to)
            add_added(alone, native, gathered, percent, to);
        if (gathered && gathered->missing[0])
            bench_missing(bench, s, added, added_condition, gathered->missing);
        else if (!known)
            bench_missing(bench, s, added, added_condition, BENCH_NO_NATIVE);
        else if (gathered && gathered->count)
            bench_missing(bench, s, added, added_condition, BENCH_APART);
    }
}

void bench_note_end(struct bench *bench, size_t subject, const struct bench_process *process)
{
    char reason[200];
    if (!process->hung || process->cut || bench->failed[subject][0] ||
        ++bench->hung[subject] < HANGS_MOST)
        return;
    bench_process_failure(process, reason, sizeof(reason));
    snprintf(bench->failed[subject], sizeof(bench->failed[subject]),
        "given up after %d processes that hung: %s", HANGS_MOST, reason);
}

void bench_gather_line(struct bench *bench, size_t subject, const char *condition, const char *line)
{
    char id[80], reason[200];
    unsigned long repetitions;
    double value;
    if (sscanf(line, "%79s %lf %lu", id, &value, &repetitions) == 3)
        bench_sample(bench, subject, id, condition, value, repetitions);
    else if (sscanf(line, "%79s ! %199[^\n]", id, reason) == 2)
        bench_missing(bench, subject, id, condition, reason);
}

static void gather_text(
    struct bench *bench, size_t subject, const char *condition, const struct bench_process *process)
{
    char reason[256];
    for (const char *line = process->text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        bench_gather_line(bench, subject, condition, line);
    }
    if (!bench_stopped() && bench_process_failure(process, reason, sizeof(reason)))
        bench_missing_all(bench, subject, condition, reason);
}

void bench_gather_worker(struct bench *bench, size_t subject, const char *condition,
    const char *also, struct bench_process *process)
{
    bench_process_wait(process, 1);
    bench_note_end(bench, subject, process);
    gather_text(bench, subject, condition, process);
    if (also)
        gather_text(bench, subject, also, process);
}

struct item_state {
    double took; /* a variant's seconds: the guess, then the longest seen */
    unsigned rounds;
    bool over;
};

/* All variants of an item: the first one has an advantage in some figures, and the contrary in
 * others. */
static void run_round(struct bench *bench, const struct bench_item *item, struct item_state *state)
{
    unsigned long before = bench->gathered;
    size_t order[BENCH_VARIANTS_MOST];
    bench_shuffle(order, item->variants);
    bench_say(bench, "%s: %s, round %u", bench->group, item->name, state->rounds + 1);
    bench->round = state->rounds;
    for (size_t i = 0; i < item->variants && !bench_stopped(); i++) {
        uint64_t began_ns = clock_now_ns();
        unsigned places = bench->places;
        bench->turn = 0;
        item->run(bench, item, order[i]);
        bench_remove_places(bench, places);
        double took = (double)(clock_now_ns() - began_ns) / 1e9;
        if ((!state->rounds && !i) || took > state->took)
            state->took = took;
    }
    state->rounds++;
    state->over |= bench->gathered == before; /* nor would it another time */
}

void bench_run_items(struct bench *bench, const struct bench_item *items, size_t count)
{
    struct item_state states[64] = {0};
    bool any = !bench->options->declare;
    for (size_t i = 0; i < count; i++)
        states[i].took = items[i].seconds * bench->options->scale;
    while (any && !bench_stopped()) {
        any = false;
        for (size_t i = 0; i < count && !bench_stopped(); i++) {
            double needs = states[i].took * (double)items[i].variants;
            double late_s = states[i].rounds ? 0 : LATE_S(bench);
            uint64_t now_ns = clock_now_ns();
            bool fits = (double)bench->until_ns - (double)now_ns >= (needs - late_s) * 1e9;
            /* A test's run is made once, however long it takes. */
            if (bench->options->scale < 1)
                fits = states[i].rounds == 0;
            states[i].over |=
                !fits ||
                states[i].rounds >= (items[i].rounds_most ? items[i].rounds_most : ROUNDS_MOST);
            bench->left_out |= !fits && !states[i].rounds;
            if (states[i].over)
                continue;
            run_round(bench, &items[i], &states[i]);
            any = true;
        }
    }
}

/* Why the subject has no sample where nothing else is known. */
static const char *lack(const struct bench *bench, size_t subject)
{
    if (bench->unstarted[subject][0])
        return bench->unstarted[subject];
    return bench->left_out ? BENCH_TIME_USED_UP : "what measures it ran, and gave no value";
}

static void take_over(struct bench *bench)
{
    for (size_t i = 0; i < bench->measured_count; i++) {
        struct bench_measured *measured = &bench->measured[i];
        struct bench_figure *figure = bench_results_add_figure(&bench->results, &measured->texts);
        for (size_t s = 0; s < bench->results.subject_count; s++) {
            const char *label = bench->results.subjects[s].label;
            struct bench_gathered *gathered = &measured->of[s];
            if (gathered->count)
                bench_figure_measured(
                    figure, label, gathered->samples, gathered->count, gathered->repetitions);
            else
                bench_figure_missing(
                    figure, label, gathered->missing[0] ? gathered->missing : lack(bench, s));
        }
        bench_rounds_set(bench, measured, figure);
    }
}

static void forget(struct bench *bench)
{
    for (size_t i = 0; i < bench->measured_count; i++) {
        for (size_t s = 0; s < BENCH_SUBJECTS_MOST; s++) {
            free(bench->measured[i].of[s].samples);
            free(bench->measured[i].of[s].moments);
        }
        free(bench->measured[i].texts.condition);
    }
    free(bench->measured);
    bench->measured = NULL;
    bench->measured_count = 0;
}

void bench_run_group(
    struct bench *bench, const char *group, void (*measure)(struct bench *), double seconds)
{
    bench->group = group;
    bench->left_out = false;
    memset(bench->unstarted, 0, sizeof(bench->unstarted));
    bench->until_ns = clock_now_ns() + (uint64_t)(seconds * 1e9);
    if (bench->options->scale == 1) /* a test's runs are made, however long they take */
        bench->cut_ns = bench->until_ns + (uint64_t)(CUT_S(bench) * 1e9);
    measure(bench);
    for (size_t s = 0; s < bench->results.subject_count; s++) {
        if (bench->failed[s][0])
            bench_missing_all(bench, s, NULL, bench->failed[s]);
    }
    if (!bench_stopped())
        take_over(bench);
    forget(bench);
}
