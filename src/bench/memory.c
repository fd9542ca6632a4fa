/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a memory limit holds, for whatever kind of memory, and what stays unseen. */
#include "bench/memory.h"

#include "base/clock.h"
#include "bench/card.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_MIB 4096.0
#define MANAGED_MISSING "managed memory is on the card only where a kernel uses it"
#define UNLISTED "NVML lists no process: what the driver keeps for itself is not known"
#define RACERS_MOST 16
#define LOOK_NS 2000000u  /* between looks at the card while processes race */
#define CONTEXT_MIB 700.0 /* what a racer's context needs of its own, at most */

static const struct bench_definition given_definition = {"memory.given", "given until refused",
    "What a program got of this kind of memory under the limit until it was refused, in pieces of "
    "1/64 of the limit and then smaller ones, and at most twice the limit, where nothing refused "
    "it. Target: the limit, less what NVML lists natively for a process that has opened a context "
    "and nothing else, because a context counts as well.",
    "MiB", BENCH_TARGET, false, 0};
static const struct bench_definition card_definition = {"memory.card", "on the card at the refusal",
    "By how much NVML's figure for the whole card, asked from outside, was larger when the program "
    "was refused than "
    "before the program began.",
    "MiB", BENCH_TARGET, true, 0};
static const struct bench_definition driver_definition = {"memory.driver",
    "on the card in no process's name",
    "How much of that NVML does not list as the process's: what the driver keeps for itself. "
    "Natively of a process that holds seven eighths of the limit.",
    "MiB", BENCH_LOWER, false, 0};
static const struct bench_definition above_definition = {"memory.above",
    "above the limit at the refusal",
    "By how much the card's figure, less what is in no process's name natively, was above the "
    "limit (negative: below it), when the program was refused or, where nothing refused it, had "
    "twice the limit; for a "
    "kernel's local memory (64 KiB a thread) after its launch.",
    "MiB", BENCH_LOWER, true, BENCH_PAGES_MIB};
static const struct bench_definition unseen_definition = {"memory.unseen", "unseen",
    "How far what cuMemGetInfo tells the program is used, at the refusal, lies from the card's "
    "figure less what is in no process's name natively.",
    "MiB", BENCH_LOWER, true, BENCH_PAGES_MIB};
static const struct bench_definition recovery_definition = {"memory.recovery", "recovery",
    "What the program got when it had freed all and asked again, of what it got the first time.",
    "%", BENCH_HIGHER, true, 100};
static const struct bench_definition over_definition = {"memory.overshoot", "overshoot",
    "Processes of one container, each with a context, allocate at once until all are refused: by "
    "how much NVML's figure for the card, less what is in no process's name of as many native "
    "processes, rose above the limit (negative: stayed below it), as looked at each 2 ms "
    "meanwhile and then.",
    "MiB", BENCH_LOWER, true, BENCH_PAGES_MIB};
static const struct kind {
    const char *name, *call;
} kinds[] = {{"linear", "cuMemAlloc"}, {"pitched", "cuMemAllocPitch"}, {"async", "cuMemAllocAsync"},
    {"pool", "cuMemAllocFromPoolAsync"}, {"managed", "cuMemAllocManaged"},
    {"array", "cuArrayCreate"}, {"array3d", "cuArray3DCreate"},
    {"mipmapped", "cuMipmappedArrayCreate"}, {"virtual", "cuMemCreate"},
    {"graph", "memory of a graph"}, {"local", "local memory of a kernel"}};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* Of the group: what is limited to. */
static double limit_mib;
static char race_condition[64];
static unsigned racers;
static bool unlisted;      /* NVML did not list a native process */
static double context_mib; /* what NVML lists natively for a context alone; negative: not known */

/* What was seen of a kind (KINDS: of the race) is judged when all is measured, by what the native
 * processes of the kind showed. */
#define RACE KINDS
static struct seen {
    size_t subject, kind;
    bool refused;
    double card_mib, told_mib; /* how much the card's figure rose; what the program was told */
} * seen;
static size_t seen_count;

void bench_memory_bytes(char *text, size_t size, double mib)
{
    snprintf(text, size, "%.0f", floor(mib) * BENCH_MIB);
}

bool bench_memory_begin(struct bench *bench, size_t subject, struct bench_limits *limits,
    char *place, size_t size, double memory_mib)
{
    char reason[200];
    *limits = (struct bench_limits){.memory_mib = memory_mib, .place = place};
    if (!subject || bench->failed[subject][0])
        return false;
    if (!bench_can_limit(bench, subject, limits, reason, sizeof(reason))) {
        bench_missing_all(bench, subject, NULL, reason);
        return false;
    }
    bench_place(bench, place, size);
    return true;
}

/* Notes what the card shows of a subject's processes, for the judgement, or showed at most where
 * that is more; of native ones what is in no process's name. */
static void see(struct bench *bench, size_t subject, size_t kind, const char *condition,
    const struct bench_process *processes, size_t count, double before_mib, double most_mib,
    bool refused, double told_mib)
{
    double own_mib = -1, now_mib = bench_card_mib(processes, count, &own_mib);
    bool known = before_mib >= 0 && now_mib >= 0;
    if (known && own_mib >= 0)
        bench_sample(
            bench, subject, driver_definition.id, condition, now_mib - before_mib - own_mib, count);
    else
        bench_missing(bench, subject, driver_definition.id, condition,
            known ? UNLISTED : bench_card_missing());
    unlisted |= !subject && known && own_mib < 0;
    struct seen *grown = known ? realloc(seen, (seen_count + 1) * sizeof(*seen)) : NULL;
    if (grown) {
        seen = grown;
        seen[seen_count++] =
            (struct seen){subject, kind, refused, fmax(now_mib, most_mib) - before_mib, told_mib};
    }
}

static bool is_kind(size_t kind, const char *name)
{
    return !strcmp(kinds[kind].name, name);
}

static void see_kind(struct bench *bench, size_t subject, size_t kind,
    const struct bench_process *process, double before_mib, bool refused, double told)
{
    const char *missing = before_mib < 0 ? bench_card_missing() : NULL;
    if (is_kind(kind, "managed"))
        missing = MANAGED_MISSING;
    if (missing) {
        const char *ids[] = {"memory.card", "memory.driver", "memory.above", "memory.unseen"};
        for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
            bench_missing(bench, subject, ids[i], kinds[kind].call, missing);
        return;
    }
    see(bench, subject, kind, kinds[kind].call, process, 1, before_mib, 0, refused,
        told / BENCH_MIB);
}

/* What is in no process's name natively, of that kind; of cuMemAlloc where it was not measured, for
 * each process. Negative where that is not known. */
static double native_mib(const struct bench *bench, size_t kind)
{
    double mib = 0;
    const char *condition = kind == RACE ? race_condition : kinds[kind].call;
    if (bench_median(bench, 0, driver_definition.id, condition, &mib))
        return fmax(0, mib);
    if (bench_median(bench, 0, driver_definition.id, kinds[0].call, &mib))
        return fmax(0, mib) * (kind == RACE ? racers : 1);
    return -1;
}

/* What was not refused, and is not above the limit either, wanted too little to try it. */
static void judge_limit(
    struct bench *bench, const struct seen *one, const char *call, double less_mib)
{
    if (one->refused || less_mib > limit_mib)
        bench_sample(bench, one->subject, "memory.above", call, less_mib - limit_mib, 1);
    else
        bench_missing(bench, one->subject, "memory.above", call, BENCH_NOT_REFUSED);
    if (one->refused)
        bench_sample(bench, one->subject, "memory.unseen", call, fabs(less_mib - one->told_mib), 1);
}

static void judge_one(struct bench *bench, const struct seen *one, double race_mib)
{
    const char *call = one->kind == RACE ? race_condition : kinds[one->kind].call;
    double native = native_mib(bench, one->kind), less_mib = one->card_mib - native;
    if (one->kind != RACE && one->refused)
        bench_sample(bench, one->subject, "memory.card", call, one->card_mib, 1);
    if (!one->refused) {
        bench_missing(bench, one->subject, "memory.card", call, BENCH_NOT_REFUSED);
        bench_missing(bench, one->subject, "memory.unseen", call, BENCH_NOT_REFUSED);
    }
    if (native < 0) {
        const char *ids[] = {"memory.above", "memory.unseen", over_definition.id};
        for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
            bench_missing(
                bench, one->subject, ids[i], call, unlisted ? UNLISTED : BENCH_NOT_SUBTRACTED);
    } else if (one->kind == RACE) {
        bench_sample(bench, one->subject, over_definition.id, call, less_mib - race_mib, racers);
    } else {
        judge_limit(bench, one, call, less_mib);
    }
}

static void judge(struct bench *bench, double race_mib)
{
    for (size_t i = 0; context_mib >= 0 && i < KINDS; i++)
        bench_set_target(bench, given_definition.id, kinds[i].call, limit_mib - context_mib);
    for (size_t i = 0; i < seen_count; i++) {
        if (seen[i].subject)
            judge_one(bench, &seen[i], race_mib);
    }
    free(seen);
    seen = NULL;
    seen_count = 0;
}

/* Natively nothing refuses: about as much is held as a program is given under the limit. */
static bool begin_card(struct bench *bench, size_t subject, struct bench_limits *limits,
    char *place, size_t size, double memory_mib)
{
    if (subject)
        return bench_memory_begin(bench, subject, limits, place, size, memory_mib);
    *limits = (struct bench_limits){.place = place};
    if (!bench->failed[0][0])
        bench_place(bench, place, size);
    return !bench->failed[0][0];
}

static void refuse_kind(struct bench *bench, size_t subject, size_t kind)
{
    struct bench_process process = {0};
    struct bench_limits limits;
    char place[PATH_MAX], chunk[32], most[32], reason[256];
    const char *call = kinds[kind].call;
    size_t offset = 0;
    if (!subject && (is_kind(kind, "managed") || is_kind(kind, "local")))
        return;
    if (!begin_card(bench, subject, &limits, place, sizeof(place), limit_mib))
        return;
    bench_memory_bytes(chunk, sizeof(chunk), limit_mib / BENCH_PIECES);
    bench_memory_bytes(most, sizeof(most), subject ? limit_mib * 2 : limit_mib * 7 / 8);
    double before_mib = bench_card_mib(NULL, 0, NULL);
    if (bench_start_worker(bench, &process, subject, &limits, BENCH_MEMORY_DEADLINE_S, "refuse",
            kinds[kind].name, chunk, most, NULL) != 0)
        return;
    double given = bench_process_word(&process, &offset, "given");
    bool refused = bench_process_word(&process, &offset, "refused") > 0;
    double told = bench_process_word(&process, &offset, "told");
    if (told >= 0) {
        see_kind(bench, subject, kind, &process, before_mib, refused, told);
        bench_process_tell(&process, "\n");
        double again = subject ? bench_process_word(&process, &offset, "again") : -1;
        if (subject && !is_kind(kind, "local"))
            bench_sample(bench, subject, "memory.given", call, given / BENCH_MIB, 1);
        if (again >= 0 && given > 0 && refused)
            bench_sample(bench, subject, "memory.recovery", call, again / given * 100, 1);
        else if (subject && (given == 0 || !refused))
            bench_missing(bench, subject, "memory.recovery", call,
                refused ? "it was given none the first time" : BENCH_NOT_REFUSED);
    }
    bench_process_wait(&process, 1);
    bench_note_end(bench, subject, &process);
    if (!bench_stopped() && bench_process_failure(&process, reason, sizeof(reason)))
        bench_missing_all(bench, subject, call, reason);
    bench_process_finish(&process);
}

/* Natively, of a process that has a context and nothing else. */
static void see_context(struct bench *bench)
{
    struct bench_process process = {0};
    struct bench_limits limits;
    char place[PATH_MAX];
    size_t offset = 0;
    if (!begin_card(bench, 0, &limits, place, sizeof(place), 0) ||
        bench_start_worker(bench, &process, 0, &limits, BENCH_MEMORY_DEADLINE_S, "refuse",
            kinds[0].name, "0", "0", NULL) != 0)
        return;
    if (bench_process_word(&process, &offset, "told") >= 0)
        (void)bench_card_mib(&process, 1, &context_mib);
    bench_process_finish(&process);
}

static void run_kinds(struct bench *bench, const struct bench_item *item, size_t subject)
{
    (void)item;
    if (!subject && context_mib < 0)
        see_context(bench);
    for (size_t i = 0; i < KINDS && !bench_stopped(); i++)
        refuse_kind(bench, subject, i);
}

/* Whether it has said what it was given. */
static bool has_raced(const struct bench_process *process)
{
    const char *said = process->text ? strstr(process->text, "given ") : NULL;
    return said && strchr(said, '\n');
}

/* Looks at the card until each has taken what it could get, or ended; how many did take it. */
static size_t watch(struct bench_process *processes, size_t count, double *ret_card_mib)
{
    size_t given, over;
    *ret_card_mib = 0;
    do {
        bench_process_wait_until(processes, count, clock_now_ns() + LOOK_NS);
        *ret_card_mib = fmax(*ret_card_mib, bench_card_now_mib());
        given = over = 0;
        for (size_t i = 0; i < count; i++) {
            given += has_raced(&processes[i]);
            over += has_raced(&processes[i]) || processes[i].ended;
        }
    } while (over < count && !bench_stopped());
    return given;
}

/* Starts the racers and lets them go; how many took what they could get, and the most that the card
 * showed meanwhile. */
static size_t race(struct bench *bench, size_t subject, const struct bench_limits *limits,
    double most_mib, struct bench_process *processes, double *ret_card_mib)
{
    size_t offsets[RACERS_MOST] = {0}, ready = 0;
    char most[32];
    bench_memory_bytes(most, sizeof(most), most_mib);
    for (size_t i = 0; i < racers; i++) {
        if (bench_start_worker(bench, &processes[i], subject, limits, BENCH_MEMORY_DEADLINE_S,
                "race", "33554432", most, NULL) != 0 ||
            bench_process_word(&processes[i], &offsets[i], "ready") < 0)
            break;
        ready++;
    }
    for (size_t i = 0; i < ready; i++)
        bench_process_tell(&processes[i], "\n");
    return watch(processes, ready, ret_card_mib);
}

static void run_race(struct bench *bench, const struct bench_item *item, size_t subject)
{
    struct bench_process processes[RACERS_MOST] = {{0}};
    struct bench_limits limits;
    char place[PATH_MAX], reason[256] = "";
    double race_mib = *(const double *)item->data, before_mib = bench_card_mib(NULL, 0, NULL);
    double shown_mib, most_mib = subject ? race_mib : fmax(64, race_mib / racers - CONTEXT_MIB);
    if (!begin_card(bench, subject, &limits, place, sizeof(place), race_mib))
        return;
    bool all = race(bench, subject, &limits, most_mib, processes, &shown_mib) == racers;
    if (all && !bench_card_missing())
        see(bench, subject, RACE, race_condition, processes, racers, before_mib, shown_mib, true,
            0);
    for (size_t i = 0; i < racers && !all && !reason[0]; i++) {
        bench_note_end(bench, subject, &processes[i]);
        if (processes[i].ended)
            bench_process_failure(&processes[i], reason, sizeof(reason));
    }
    for (size_t i = 0; i < racers; i++)
        bench_process_finish(&processes[i]);
    if (!bench_stopped() && (!all || bench_card_missing()))
        bench_missing_all(bench, subject, race_condition, all ? bench_card_missing() : reason);
}

static void declare(struct bench *bench)
{
    for (size_t i = 0; i < KINDS; i++) {
        const char *call = kinds[i].call;
        if (!is_kind(i, "local")) {
            bench_declare(bench, &given_definition, call);
            bench_declare(bench, &recovery_definition, call);
            bench_declare_target(bench, &card_definition, call, limit_mib);
        }
        bench_declare(bench, &driver_definition, call);
        bench_declare(bench, &above_definition, call);
        bench_declare(bench, &unseen_definition, call);
    }
    bench_declare(bench, &driver_definition, race_condition);
    bench_declare(bench, &over_definition, race_condition);
    for (size_t i = 0; i < bench->measured_count; i++) {
        const struct bench_figure *texts = &bench->measured[i].texts;
        if (strcmp(texts->id, driver_definition.id) != 0)
            bench_missing(bench, 0, texts->id, texts->condition, BENCH_NO_LIMIT);
    }
    for (size_t i = 0; i < KINDS; i++) {
        if (is_kind(i, "local") || is_kind(i, "managed"))
            bench_missing(bench, 0, driver_definition.id, kinds[i].call,
                is_kind(i, "local") ? "more than the limit natively" : MANAGED_MISSING);
    }
}

void bench_memory(struct bench *bench)
{
    limit_mib = fmin(LIMIT_MIB, floor(bench->memory_mib / 8));
    racers = bench->results.full ? RACERS_MOST : 4;
    unlisted = false;
    context_mib = -1;
    double race_mib = fmin(limit_mib + racers * CONTEXT_MIB, bench->memory_mib / 2);
    const size_t subjects = bench->results.subject_count;
    struct bench_item items[2 + BENCH_MEMORY_TIMES] = {
        {"every kind of allocation", subjects, 4.9, 10, run_kinds, NULL},
        {"processes that race", subjects, 1 + racers * 0.4, 5, run_race, &race_mib},
    };
    snprintf(race_condition, sizeof(race_condition), "%u processes", racers);
    declare(bench);
    size_t count = 2 + bench_memory_times(bench, limit_mib, items + 2);
    bench_card_begin(bench);
    bench_run_items(bench, items, count);
    judge(bench, race_mib);
    bench_card_finish();
}
