/* SPDX-License-Identifier: Apache-2.0 */
/* Orders in the region, and their outcome in its slots. */
#include "host/release.h"

#include "base/clock.h"
#include "base/machine_memory.h"
#include "base/saturating.h"
#include "base/sleep.h"
#include "host/say.h"
#include "host/size.h"
#include "region/region_read.h"
#include "region/region_set.h"
#include "region/slot.h"

#include <errno.h>
#include <stdio.h>

/* Nanoseconds that a process has to answer: for its work to end, and for each GiB, of which 0.4 s
 * were measured (docs/memory.md). */
#define ANSWER_NS 10000000000ull
#define ANSWER_GIB_NS 2000000000ull
#define LOOK_NS 2000000ull

/* ---- looks ---- */

struct look {
    struct release_outcome sums;
    unsigned waiting;     /* processes that have not answered the order */
    unsigned taking;      /* that take part */
    uint32_t order;       /* in force */
    uint64_t ready_bytes; /* of host memory: to move into it takes none of the machine's */
};

static void add_usage(struct release_outcome *sums, const struct vgpu_usage *usage)
{
    uint64_t movable = usage->movable < usage->buffer ? usage->movable : usage->buffer;
    sums->context_bytes = saturating_sum(sums->context_bytes, usage->context);
    sums->module_bytes = saturating_sum(sums->module_bytes, usage->module);
    sums->other_bytes = saturating_sum(sums->other_bytes, usage->buffer - movable);
    sums->unexplained_bytes = saturating_sum(sums->unexplained_bytes, usage->unexplained);
    sums->left_bytes = saturating_sum(sums->left_bytes, movable);
}

static enum vgpu_release_state state_of(const struct vgpu_slot *slot)
{
    return (enum vgpu_release_state)(uint32_t)slot->release;
}

/* Of one that is parked or checkpointed the account may show nothing. */
static bool takes_part(const struct vgpu_slot *slot, unsigned devices)
{
    enum vgpu_release_state state = state_of(slot);
    bool any = slot->released || state == VGPU_RELEASE_PARKED || state == VGPU_RELEASE_CHECKPOINTED;
    for (unsigned d = 0; d < devices; d++)
        any |= slot->usage[d].movable || slot->usage[d].spilled;
    return any;
}

static bool has_context(const struct vgpu_slot *slot, unsigned devices)
{
    bool any = false;
    for (unsigned d = 0; d < devices; d++)
        any |= slot->usage[d].context != 0;
    return any;
}

static void add_answer(struct look *look, const struct vgpu_slot *slot, uint32_t order)
{
    enum vgpu_release_state state = state_of(slot);
    if (state != VGPU_RELEASE_CHECKPOINTED &&
        (slot->release >> 32 != order || state == VGPU_RELEASE_MOVING)) {
        look->waiting++;
        return;
    }
    look->sums.parked += state == VGPU_RELEASE_PARKED;
    look->sums.checkpointed += state == VGPU_RELEASE_CHECKPOINTED;
    look->sums.moved += state == VGPU_RELEASE_DONE || state == VGPU_RELEASE_PARKED ||
                        state == VGPU_RELEASE_CHECKPOINTED;
    look->sums.back += state == VGPU_RELEASE_IDLE;
    look->sums.partly += state == VGPU_RELEASE_PARTLY;
    look->sums.not_drained += state == VGPU_RELEASE_NOT_DRAINED;
    look->sums.captures += state == VGPU_RELEASE_CAPTURES;
    if (state == VGPU_RELEASE_NO_ROOM)
        look->sums.lacking_bytes = saturating_sum(look->sums.lacking_bytes, slot->lacking);
}

static int look_at(const struct chosen_region *chosen, uint32_t order, struct look *ret_look)
{
    struct region_reading reading;
    struct vgpu_slot slot;
    struct look look = {.waiting = 0};
    bool locked;
    int found = region_read(chosen->region.fd, &reading);
    for (unsigned i = 0; found >= 0 && i < reading.slot_bound; i++) {
        found = region_read_slot(&reading, i, &slot, &locked);
        if (found <= 0)
            continue;
        for (unsigned d = 0; d < reading.device_count; d++)
            add_usage(&look.sums, &slot.usage[d]);
        look.sums.released_bytes = saturating_sum(look.sums.released_bytes, slot.released);
        look.ready_bytes = saturating_sum(look.ready_bytes, slot.ready);
        if (takes_part(&slot, reading.device_count)) {
            look.taking++;
            add_answer(&look, &slot, order);
        } else {
            look.sums.without += has_context(&slot, reading.device_count);
        }
    }
    look.order = found < 0 ? 0 : reading.head.release;
    if (found < 0)
        return found;
    *ret_look = look;
    return 0;
}

/* Until all have answered, or some lack host memory. */
static int wait_for_answers(const struct chosen_region *chosen, uint32_t order, uint64_t bytes,
    struct release_outcome *ret_outcome)
{
    uint64_t until = clock_now_ns() + ANSWER_NS + (bytes >> 30) * ANSWER_GIB_NS;
    struct look look;
    int error;
    while ((error = look_at(chosen, order, &look)) == 0 && look.waiting && look.order == order &&
           !look.sums.lacking_bytes && clock_now_ns() < until)
        sleep_ns(LOOK_NS);
    if (!error && look.order != order)
        error = -ECANCELED;
    if (error)
        return error;
    *ret_outcome = look.sums;
    ret_outcome->silent = look.waiting;
    return 0;
}

/* ---- orders ---- */

static int set_paused(struct chosen_region *chosen, bool paused)
{
    bool was;
    return region_set_paused(&chosen->region, paused, &was);
}

static int take_back(struct chosen_region *chosen, bool was_paused)
{
    uint32_t order;
    int error = region_set_release(&chosen->region, VGPU_RELEASE_NONE, &order);
    return error || !was_paused ? error : set_paused(chosen, true);
}

/* What stays on the card is another afterwards. Those that the driver does not checkpoint are
 * parked no longer: another order leaves them released. */
static int checkpoint(struct chosen_region *chosen, uint32_t order, struct release_outcome *outcome)
{
    struct checkpoint_outcome made;
    struct release_outcome ignored;
    struct look look;
    int error = checkpoint_take(chosen, &made);
    if (!error && (made.refused || made.lacks))
        error = region_set_release(&chosen->region, VGPU_RELEASE_PAUSE, &order);
    if (!error && (made.refused || made.lacks))
        error = wait_for_answers(chosen, order, 0, &ignored);
    if (!error)
        error = look_at(chosen, order, &look);
    if (error)
        return error;
    *outcome = look.sums;
    outcome->silent = look.waiting;
    outcome->checkpoint = made;
    return 0;
}

/* A pause that is in force keeps work off the GPU by means that would keep the copies off it, and
 * the driver's lock waiting: it ends while they are made, and the order holds back work meanwhile.
 */
static int give(struct chosen_region *chosen, enum vgpu_release kind, bool was_paused,
    uint64_t bytes, struct release_outcome *outcome)
{
    uint32_t order;
    int error = region_set_release(&chosen->region, kind, &order);
    if (!error && was_paused)
        error = set_paused(chosen, false);
    if (!error)
        error = wait_for_answers(chosen, order, bytes, outcome);
    if (!error && outcome->lacking_bytes)
        return take_back(chosen, was_paused);
    if (!error && kind == VGPU_RELEASE_CHECKPOINT)
        error = checkpoint(chosen, order, outcome);
    return error || kind == VGPU_RELEASE_ON_DEMAND ? error : set_paused(chosen, true);
}

int release_give(
    struct chosen_region *chosen, enum vgpu_release kind, struct release_outcome *ret_outcome)
{
    struct release_outcome outcome = {0};
    struct region_state state;
    struct look look;
    const char *lacks = kind == VGPU_RELEASE_CHECKPOINT ? checkpoint_lacks() : NULL;
    if (lacks)
        kind = VGPU_RELEASE_PAUSE;
    int error = look_at(chosen, 0, &look);
    if (!error)
        error = region_set_state(&chosen->region, &state);
    if (error)
        return error;
    uint64_t movable = look.sums.left_bytes;
    uint64_t room = saturating_sum(machine_memory_free(""), look.ready_bytes);
    outcome = look.sums;
    outcome.lacking_bytes = 0;
    if (movable > room)
        outcome.lacking_bytes = movable - room;
    else if (look.taking > look.sums.checkpointed &&
             (movable || look.sums.released_bytes || kind == VGPU_RELEASE_CHECKPOINT))
        error = give(chosen, kind, state.paused, movable, &outcome);
    else if (kind != VGPU_RELEASE_ON_DEMAND)
        error = set_paused(chosen, true);
    outcome.movable_bytes = movable;
    if (lacks)
        outcome.checkpoint.lacks = lacks;
    if (!error)
        *ret_outcome = outcome;
    return error;
}

/* What is restored stays parked, and takes no room, until the order ends. */
static int hold_parked(struct chosen_region *chosen, uint32_t order_now)
{
    uint32_t order;
    return (order_now & 3) == VGPU_RELEASE_CHECKPOINT
               ? 0
               : region_set_release(&chosen->region, VGPU_RELEASE_CHECKPOINT, &order);
}

/* The driver comes first: nothing else may be asked of what it has checkpointed. Then the pause
 * ends: until the order ends too, work waits for it. */
int release_end(struct chosen_region *chosen, struct release_outcome *ret_outcome)
{
    struct checkpoint_outcome restored = {.done = 0};
    struct look look;
    uint32_t order;
    int error = look_at(chosen, 0, &look);
    if (!error && look.sums.checkpointed)
        error = hold_parked(chosen, look.order);
    if (!error && look.sums.checkpointed)
        error = checkpoint_restore(chosen, &restored);
    if (error || restored.lacking_bytes || restored.lacks) {
        *ret_outcome = look.sums;
        ret_outcome->checkpoint = restored;
        return error;
    }
    if (!error)
        error = set_paused(chosen, false);
    if (!error)
        error = look_at(chosen, 0, &look);
    if (!error)
        error = region_set_release(&chosen->region, VGPU_RELEASE_NONE, &order);
    if (!error)
        error = wait_for_answers(chosen, order, look.sums.released_bytes, ret_outcome);
    if (!error) {
        ret_outcome->movable_bytes = look.sums.released_bytes;
        ret_outcome->checkpoint = restored;
    }
    return error;
}

bool release_has_checkpointed(const struct chosen_region *chosen)
{
    struct look look;
    return look_at(chosen, 0, &look) == 0 && look.sums.checkpointed;
}

/* ---- words ---- */

static void print_count(unsigned count, const char *what)
{
    if (count)
        printf("%u process%s %s\n", count, count == 1 ? "" : "es", what);
}

static void print_stays(const char *what, uint64_t bytes)
{
    if (bytes)
        printf("  %-8s %s\n", size_text(bytes).text, what);
}

static void print_answers(const struct release_outcome *outcome)
{
    print_count(outcome->back, "had its memory moved and has it back: it works");
    print_count(outcome->not_drained,
        "not drained: its work on the GPU does not end, and its memory stays");
    print_count(outcome->captures, "captures work into a graph: its memory stays");
    print_count(outcome->partly, "moved only a part");
    print_count(outcome->silent, "did not answer: stopped, or without a thread that moves");
}

static void print_refused(const char *what, const struct checkpoint_outcome *made)
{
    if (made->lacks)
        printf("not %s: %s\n", what, made->lacks);
    else if (made->refused)
        printf("not %s: %u, because the driver refuses (%s: %d)\n", what, made->refused,
            made->where, made->code);
}

static void print_checkpoint(const struct release_outcome *outcome)
{
    print_count(outcome->checkpointed, "checkpointed: nothing of it is on the card");
    print_refused("checkpointed", &outcome->checkpoint);
    print_count(outcome->without, "not checkpointed: no memory of cuMemAlloc, which alone moves");
    unsigned unparked = outcome->moved - outcome->parked - outcome->checkpointed;
    print_count(
        unparked, "not checkpointed: a call of it waits, or its host memory cannot be kept");
}

void release_print(const struct release_outcome *outcome, enum vgpu_release kind)
{
    if (!outcome->movable_bytes && !outcome->released_bytes && !outcome->parked &&
        !outcome->checkpointed) {
        printf(
            "nothing released: none of its memory can be moved, which only memory of a container "
            "with oversubscription can\n");
        return;
    }
    if (outcome->released_bytes)
        printf("released: %s in host memory, until %s\n", size_text(outcome->released_bytes).text,
            kind == VGPU_RELEASE_ON_DEMAND ? "the next work or 'vgpu resume'" : "'vgpu resume'");
    else
        printf("released: nothing\n");
    print_answers(outcome);
    if (kind == VGPU_RELEASE_CHECKPOINT)
        print_checkpoint(outcome);
    if (outcome->context_bytes || outcome->module_bytes || outcome->other_bytes ||
        outcome->unexplained_bytes || outcome->left_bytes)
        printf("on the card stay:\n");
    print_stays("contexts, with their local memory", outcome->context_bytes);
    print_stays("modules", outcome->module_bytes);
    print_stays("pools, arrays and other memory that the driver owns", outcome->other_bytes);
    print_stays("in no kind", outcome->unexplained_bytes);
    print_stays("movable", outcome->left_bytes);
}

void release_print_end(const struct release_outcome *outcome)
{
    uint64_t back = outcome->movable_bytes - (outcome->released_bytes < outcome->movable_bytes
                                                     ? outcome->released_bytes
                                                     : outcome->movable_bytes);
    printf("%s came back from host memory", size_text(back).text);
    if (outcome->released_bytes)
        printf("; %s stays there: the card, or the container's share of it, is full, or its work "
               "did not end",
            size_text(outcome->released_bytes).text);
    putchar('\n');
    print_refused("restored", &outcome->checkpoint);
    print_count(outcome->silent, "did not answer: stopped, or without a thread that moves");
}

void release_refuse_end(const struct release_outcome *outcome)
{
    if (outcome->checkpoint.lacks) {
        say_error("not restored: %s; nothing is changed", outcome->checkpoint.lacks);
        return;
    }
    say_error("the card is short of room: %s lack for what the driver has checkpointed; nothing is "
              "restored, and nothing is changed: resume it again once there is room",
        size_text(outcome->checkpoint.lacking_bytes).text);
}

void release_refuse(const struct release_outcome *outcome)
{
    say_error("host memory is short: %s lack for the container's device memory; nothing is moved, "
              "and nothing is changed",
        size_text(outcome->lacking_bytes).text);
}
