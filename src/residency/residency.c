/* SPDX-License-Identifier: Apache-2.0 */
/* Heat, and what pays. */
#include "residency/residency.h"

#include <stddef.h>

static uint64_t min_of(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

/* When it was used last, or made: of new memory no more is known. */
static uint64_t heat_ns(const struct residency_use *use)
{
    return use->used_ns > use->made_ns ? use->used_ns : use->made_ns;
}

static bool is_hotter(const struct residency_use *one, const struct residency_use *other)
{
    static const int order[] = {
        [RESIDENCY_HOST] = 0, [RESIDENCY_NO_ADVICE] = 1, [RESIDENCY_CARD] = 2};
    int by_advice = order[one->advice % 3] - order[other->advice % 3];
    return by_advice ? by_advice > 0 : heat_ns(one) > heat_ns(other);
}

void residency_note_use(struct residency_use *use, uint64_t now_ns)
{
    if (use->used_ns && now_ns - use->used_ns < RESIDENCY_USE_NS)
        return;
    use->used_ns = now_ns;
    if (use->uses < UINT32_MAX)
        use->uses++;
}

void residency_note_move(struct residency_use *use, uint64_t now_ns)
{
    use->moved_ns = now_ns;
    use->uses = 0;
}

void residency_show(struct residency_pick *pick, const struct residency_range *range)
{
    if (range->resident_bytes &&
        (!pick->coldest.range || is_hotter(&pick->coldest.use, &range->use)))
        pick->coldest = *range;
    if (range->spilled_bytes &&
        (!pick->hottest.range || is_hotter(&range->use, &pick->hottest.use)))
        pick->hottest = *range;
}

/* ---- time ---- */

void residency_spend(struct residency *residency, uint64_t ns)
{
    uint64_t of_saved = min_of(ns, residency->saved_ns);
    residency->saved_ns -= of_saved;
    residency->owed_ns += ns - of_saved;
}

/* Gives what passed since, first to what is owed. */
static bool has_time(struct residency *residency, uint64_t now_ns)
{
    uint64_t passed_ns = residency->from_ns ? now_ns - residency->from_ns : 0;
    bool first = !residency->from_ns;
    uint64_t given_ns = passed_ns * RESIDENCY_PERCENT / 100;
    if (!first && !given_ns)
        return residency->saved_ns > 0;
    residency->from_ns = now_ns;
    if (first)
        given_ns = RESIDENCY_SAVED_NS;
    uint64_t paid_ns = min_of(given_ns, residency->owed_ns);
    residency->owed_ns -= paid_ns;
    residency->saved_ns = min_of(residency->saved_ns + given_ns - paid_ns, RESIDENCY_SAVED_NS);
    return residency->saved_ns > 0;
}

/* ---- moves ---- */

static bool stays(const struct residency_use *use, uint64_t now_ns)
{
    return use->moved_ns && now_ns - use->moved_ns < RESIDENCY_STAY_NS;
}

/* Without advice, by what was seen: age alone moves nothing that is placed. */
static bool change_pays(
    const struct residency_use *hot, const struct residency_use *cold, uint64_t now_ns)
{
    if (stays(hot, now_ns) || stays(cold, now_ns))
        return false;
    if (hot->advice != cold->advice)
        return is_hotter(hot, cold);
    return hot->uses >= RESIDENCY_PAYS_USES && heat_ns(cold) < hot->used_ns &&
           hot->used_ns - heat_ns(cold) >= RESIDENCY_STAY_NS;
}

struct residency_move residency_next(struct residency *residency, const struct residency_pick *pick,
    uint64_t over_bytes, uint64_t room_bytes, bool awaited, uint64_t now_ns)
{
    const struct residency_range *cold = &pick->coldest, *hot = &pick->hottest;
    bool may = has_time(residency, now_ns) || awaited;
    if (over_bytes && cold->range)
        return (struct residency_move){.range = cold->range,
            .to_host = true,
            .bytes = min_of(over_bytes, cold->resident_bytes)};
    if (!may || over_bytes || !hot->range)
        return (struct residency_move){.range = NULL};
    if (room_bytes && hot->use.advice != RESIDENCY_HOST)
        return (struct residency_move){
            .range = hot->range, .bytes = min_of(room_bytes, hot->spilled_bytes)};
    if (!room_bytes && cold->range && cold->range != hot->range &&
        change_pays(&hot->use, &cold->use, now_ns))
        return (struct residency_move){.range = cold->range,
            .to_host = true,
            .bytes = min_of(cold->resident_bytes, hot->spilled_bytes)};
    return (struct residency_move){.range = NULL};
}
