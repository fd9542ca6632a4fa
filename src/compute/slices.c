/* SPDX-License-Identifier: Apache-2.0 */
/* Time slices, parts, and which tenant gives way. */
#include "compute/slices.h"

/* Microseconds: the driver's own time slice and a change of group (H200, driver 580.159.04). */
#define PLAIN_SLICE_US 2300u
/* Microseconds of a change alone, in which no kernel runs (the same machine). */
#define CHANGE_US 185u

static unsigned weight_of(unsigned percent)
{
    return percent && percent < 100 ? percent : 100;
}

static unsigned rate_of(uint64_t busy_ns, uint64_t former_ns, uint64_t passed_ns)
{
    uint64_t busy = busy_ns - former_ns;
    return busy < 2 * passed_ns ? (unsigned)(busy * 1000 / passed_ns) : 0;
}

/* The others that work while this container does: not those whose windows are in other slots. */
static struct registry_view beside_us(const struct slices *slices, const struct registry_view *view)
{
    struct registry_view beside = *view;
    if (!slices->divided)
        return beside;
    beside.active -= view->divided.count;
    beside.active_limit_sum -= view->divided.limit_sum;
    beside.saturating -= view->divided.saturating;
    beside.saturating_limit_sum -= view->divided.saturating_limit_sum;
    beside.busy_ns -= view->divided.busy_ns;
    return beside;
}

/* A time slice of each of the others. They take long ones among themselves without this container,
 * too. */
static uint64_t others_us(
    const struct slices *slices, const struct registry_view *view, unsigned own)
{
    uint64_t plain = (uint64_t)(view->active - view->saturating) * PLAIN_SLICE_US;
    uint64_t least = (uint64_t)view->saturating * PLAIN_SLICE_US, rest = 0;
    if (slices->saturating)
        rest = (uint64_t)SLICES_ROUND_US * view->saturating_limit_sum /
               (own + view->saturating_limit_sum);
    else if (view->saturating > 1)
        rest = SLICES_ROUND_US;
    return plain + (rest > least ? rest : least);
}

/* The part of a tenant that uses up the driver's own time slices. */
static unsigned plain_permille(const struct slices *slices, const struct registry_view *view)
{
    uint64_t others = others_us(slices, view, 100);
    return (unsigned)(1000ull * SLICES_MIN_US / (SLICES_MIN_US + others));
}

static bool is_saturating(
    const struct slices *slices, const struct registry_view *view, unsigned permille)
{
    unsigned most = plain_permille(slices, view) * SLICES_USED_UP_PERMILLE / 1000;
    return permille > (most < SLICES_SATURATING_PERMILLE ? most : SLICES_SATURATING_PERMILLE);
}

/* If a tenant came or went, or reported a long time at once, the rate stays. */
static void rate_others(struct slices *slices, uint64_t others_ns, uint64_t passed_ns)
{
    uint64_t busy = others_ns - slices->rated_others_ns;
    slices->rates += slices->rates < SLICES_RATES_KNOWN;
    if (busy >= 2 * passed_ns)
        return;
    unsigned rate = (unsigned)(busy * 1000 / passed_ns), former = slices->others_permille;
    slices->others_permille = (former * 3 + rate) / 4;
}

void slices_rate(
    struct slices *slices, uint64_t busy_ns, const struct registry_view *view, uint64_t now_ns)
{
    uint64_t others_ns = beside_us(slices, view).busy_ns;
    uint64_t passed = now_ns - slices->rated_ns;
    if (passed < SLICES_RATE_NS)
        return;
    bool known = slices->rated_ns != 0;
    unsigned own = known ? rate_of(busy_ns, slices->rated_busy_ns, passed) : 0;
    slices->light = is_saturating(slices, view, own) ? 0 : slices->light + 1;
    slices->saturating =
        known && (!slices->light || (slices->saturating && slices->light < SLICES_LIGHT_RATES));
    if (known)
        rate_others(slices, others_ns, passed);
    slices->rated_ns = now_ns;
    slices->rated_busy_ns = busy_ns;
    slices->rated_others_ns = others_ns;
}

uint64_t slices_length_us(
    const struct slices *slices, const struct registry_view *view, unsigned percent)
{
    if (!slices->saturating || !view->saturating)
        return 0;
    unsigned own = weight_of(percent);
    uint64_t slice = (uint64_t)SLICES_ROUND_US * own / (own + view->saturating_limit_sum);
    return slice < SLICES_MIN_US ? SLICES_MIN_US : slice > SLICES_MAX_US ? SLICES_MAX_US : slice;
}

/* If many extend their slices at once, each waits for all of them. */
static uint64_t extended_pause_ns(const struct registry_view *view)
{
    return SLICES_EXTENDED_PAUSE_NS * (1 + view->active / SLICES_EXTENDED_OTHERS);
}

bool slices_are_extended(struct slices *slices, const struct registry_view *view,
    const struct slices_cut *cut, uint64_t now_ns)
{
    uint32_t blurred = cut->blurred - slices->extended_blurred;
    if (slices->extended_to_ns) {
        if (view->active && now_ns < slices->extended_to_ns && cut->known < SLICES_EXTENDED_KNOWN &&
            blurred < SLICES_EXTENDED_KERNELS)
            return true;
        slices->extended_to_ns = 0;
        slices->extended_next_ns = now_ns + extended_pause_ns(view);
        slices->extended_blurred = cut->blurred;
    } else if (now_ns >= slices->extended_next_ns) {
        /* A kernel that was cut before all others left is not cut now. */
        slices->extended_to_ns = view->active && blurred ? now_ns + SLICES_EXTENDED_NS : 0;
        slices->extended_blurred = cut->blurred;
    }
    return slices->extended_to_ns != 0;
}

/* What a round of time slices loses to the changes. No slice is shorter than the least that is
 * given. */
static unsigned lost_permille(const struct registry_view *view)
{
    const unsigned most = 1000 * CHANGE_US / (SLICES_MIN_US + CHANGE_US);
    unsigned lost = (unsigned)(1000ull * CHANGE_US * (1 + view->active) / SLICES_ROUND_US);
    return lost < most ? lost : most;
}

/* What the others likely took, and the changes to and from their time slices: none if they took
 * none. */
static unsigned taken_permille(const struct slices *slices, unsigned lost)
{
    unsigned most = slices->others_permille * 2 * CHANGE_US / SLICES_MIN_US;
    return slices->others_permille + (lost < most ? lost : most);
}

struct slices_part slices_part(
    const struct slices *slices, const struct registry_view *view, unsigned percent)
{
    const struct registry_view beside = beside_us(slices, view);
    unsigned own = weight_of(percent), lost = 0;
    if (!beside.active)
        return (struct slices_part){.permille = 1000, .likely = 1000};
    struct slices_part part = {.others_us = others_us(slices, &beside, own)};
    uint64_t plain_us = SLICES_MIN_US + CHANGE_US + (uint64_t)beside.active * PLAIN_SLICE_US;
    part.permille = (unsigned)(1000ull * SLICES_MIN_US / plain_us);
    if (slices_length_us(slices, &beside, percent) && beside.saturating == beside.active) {
        lost = lost_permille(&beside);
        part.permille = (1000 - lost) * own / (own + beside.saturating_limit_sum);
    }
    unsigned taken = taken_permille(slices, lost);
    bool known = beside.active <= SLICES_MANY || slices->rates >= SLICES_RATES_KNOWN;
    unsigned left = known && taken < 1000 ? 1000 - taken : 0;
    part.likely = left > part.permille ? left : part.permille;
    return part;
}

bool slices_alone(struct slices *slices, const struct registry_view *view, uint64_t now_ns)
{
    uint64_t heard_ns = view->heard_ns < now_ns ? view->heard_ns : now_ns;
    /* The end of a process that was killed may take longer: its slot is locked until the driver has
     * freed what it had (a device's channels; H200, driver 580.159.04: more than 50 ms). */
    bool silent = heard_ns && now_ns >= view->silent_ns;
    if (view->active && !silent) {
        slices->alone_since_ns = 0;
        uint64_t latest = now_ns + REGISTRY_SILENT_WINDOWS_NS;
        slices->alone_at_ns = view->silent_ns < latest ? view->silent_ns : latest;
        return false;
    }
    if (!slices->alone_since_ns)
        slices->alone_since_ns = heard_ns ? heard_ns : now_ns;
    slices->alone_at_ns = slices->alone_since_ns + SLICES_ALONE_NS;
    return now_ns >= slices->alone_at_ns;
}

bool slices_give_way(struct slices *slices, const struct registry_view *view, uint64_t now_ns)
{
    uint64_t round = SLICES_GIVES_WAY_NS + SLICES_WORKS_NS;
    if (!view->higher) {
        slices->way_since_ns = 0;
        return false;
    }
    if (!slices->way_since_ns || slices->way_since_ns > now_ns)
        slices->way_since_ns = now_ns;
    return now_ns - slices->way_since_ns < SLICES_GIVES_WAY_NS || now_ns % round >= SLICES_WORKS_NS;
}
