/* SPDX-License-Identifier: Apache-2.0 */
/* Turns, parts, and who gives way. */
#include "compute/turns.h"

/* The driver's own turn and a change of group (H200, driver 580.159.04). */
#define PLAIN_TURN_US 2300u
/* A change alone, in which nobody's kernels run. */
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

/* The others that work while we do: not those whose windows are in other spans. */
static struct board_view beside_us(const struct turns *turns, const struct board_view *view)
{
    struct board_view beside = *view;
    if (!turns->spans)
        return beside;
    beside.active -= view->spans.count;
    beside.active_limit_sum -= view->spans.limit_sum;
    beside.heavy -= view->spans.heavy;
    beside.heavy_limit_sum -= view->spans.heavy_limit_sum;
    beside.busy_ns -= view->spans.busy_ns;
    return beside;
}

/* A turn of each of the others. Among themselves they take long ones without us, too. */
static uint64_t others_us(const struct turns *turns, const struct board_view *view, unsigned own)
{
    uint64_t plain = (uint64_t)(view->active - view->heavy) * PLAIN_TURN_US;
    uint64_t least = (uint64_t)view->heavy * PLAIN_TURN_US, rest = 0;
    if (turns->heavy)
        rest = (uint64_t)TURNS_ROUND_US * view->heavy_limit_sum / (own + view->heavy_limit_sum);
    else if (view->heavy > 1)
        rest = TURNS_ROUND_US;
    return plain + (rest > least ? rest : least);
}

/* What one has who keeps to the driver's turns, if he uses them up. */
static unsigned plain_permille(const struct turns *turns, const struct board_view *view)
{
    uint64_t others = others_us(turns, view, 100);
    return (unsigned)(1000ull * TURNS_MIN_US / (TURNS_MIN_US + others));
}

static bool is_heavy(const struct turns *turns, const struct board_view *view, unsigned permille)
{
    unsigned most = plain_permille(turns, view) * TURNS_USED_UP_PERMILLE / 1000;
    return permille > (most < TURNS_HEAVY_PERMILLE ? most : TURNS_HEAVY_PERMILLE);
}

/* Where somebody came or went, or told of a long time at once, it is as it was. */
static void rate_others(struct turns *turns, uint64_t others_ns, uint64_t passed_ns)
{
    uint64_t busy = others_ns - turns->rated_others_ns;
    turns->rates += turns->rates < TURNS_RATES_KNOWN;
    if (busy >= 2 * passed_ns)
        return;
    unsigned rate = (unsigned)(busy * 1000 / passed_ns), former = turns->others_permille;
    turns->others_permille = (former * 3 + rate) / 4;
}

void turns_rate(
    struct turns *turns, uint64_t busy_ns, const struct board_view *view, uint64_t now_ns)
{
    uint64_t others_ns = beside_us(turns, view).busy_ns;
    uint64_t passed = now_ns - turns->rated_ns;
    if (passed < TURNS_RATE_NS)
        return;
    bool known = turns->rated_ns != 0;
    unsigned own = known ? rate_of(busy_ns, turns->rated_busy_ns, passed) : 0;
    turns->light = is_heavy(turns, view, own) ? 0 : turns->light + 1;
    turns->heavy = known && (!turns->light || (turns->heavy && turns->light < TURNS_LIGHT_RATES));
    if (known)
        rate_others(turns, others_ns, passed);
    turns->rated_ns = now_ns;
    turns->rated_busy_ns = busy_ns;
    turns->rated_others_ns = others_ns;
}

uint64_t turns_slice_us(const struct turns *turns, const struct board_view *view, unsigned percent)
{
    if (!turns->heavy || !view->heavy)
        return 0;
    unsigned own = weight_of(percent);
    uint64_t turn = (uint64_t)TURNS_ROUND_US * own / (own + view->heavy_limit_sum);
    return turn < TURNS_MIN_US ? TURNS_MIN_US : turn > TURNS_MAX_US ? TURNS_MAX_US : turn;
}

/* Where many do so at once, each waits for all of them. */
static uint64_t whole_pause_ns(const struct board_view *view)
{
    return TURNS_WHOLE_PAUSE_NS * (1 + view->active / TURNS_WHOLE_OTHERS);
}

bool turns_are_whole(struct turns *turns, const struct board_view *view,
    const struct turns_cut *cut, uint64_t now_ns)
{
    uint32_t blurred = cut->blurred - turns->whole_blurred;
    if (turns->whole_to_ns) {
        if (view->active && now_ns < turns->whole_to_ns && cut->known < TURNS_WHOLE_KNOWN &&
            blurred < TURNS_WHOLE_KERNELS)
            return true;
        turns->whole_to_ns = 0;
        turns->whole_next_ns = now_ns + whole_pause_ns(view);
        turns->whole_blurred = cut->blurred;
    } else if (now_ns >= turns->whole_next_ns) {
        /* What was cut before everybody left is not cut now. */
        turns->whole_to_ns = view->active && blurred ? now_ns + TURNS_WHOLE_NS : 0;
        turns->whole_blurred = cut->blurred;
    }
    return turns->whole_to_ns != 0;
}

/* Of each round of turns so much goes to the changes. Nobody's turn is shorter than the least that
 * one is given. */
static unsigned lost_permille(const struct board_view *view)
{
    const unsigned most = 1000 * CHANGE_US / (TURNS_MIN_US + CHANGE_US);
    unsigned lost = (unsigned)(1000ull * CHANGE_US * (1 + view->active) / TURNS_ROUND_US);
    return lost < most ? lost : most;
}

/* What others likely took, and the changes to and from their turns: none where they took none. */
static unsigned taken_permille(const struct turns *turns, unsigned lost)
{
    unsigned most = turns->others_permille * 2 * CHANGE_US / TURNS_MIN_US;
    return turns->others_permille + (lost < most ? lost : most);
}

struct turns_part turns_part(
    const struct turns *turns, const struct board_view *view, unsigned percent)
{
    const struct board_view beside = beside_us(turns, view);
    unsigned own = weight_of(percent), lost = 0;
    if (!beside.active)
        return (struct turns_part){.permille = 1000, .likely = 1000};
    struct turns_part part = {.others_us = others_us(turns, &beside, own)};
    uint64_t plain_us = TURNS_MIN_US + CHANGE_US + (uint64_t)beside.active * PLAIN_TURN_US;
    part.permille = (unsigned)(1000ull * TURNS_MIN_US / plain_us);
    if (turns_slice_us(turns, &beside, percent) && beside.heavy == beside.active) {
        lost = lost_permille(&beside);
        part.permille = (1000 - lost) * own / (own + beside.heavy_limit_sum);
    }
    unsigned taken = taken_permille(turns, lost);
    bool known = beside.active <= TURNS_MANY || turns->rates >= TURNS_RATES_KNOWN;
    unsigned left = known && taken < 1000 ? 1000 - taken : 0;
    part.likely = left > part.permille ? left : part.permille;
    return part;
}

bool turns_are_alone(struct turns *turns, const struct board_view *view, uint64_t now_ns)
{
    uint64_t heard_ns = view->heard_ns < now_ns ? view->heard_ns : now_ns;
    /* The end of a process that was killed may take longer: its slot is locked until the driver has
     * freed what it had (a device's channels; H200, driver 580.159.04: more than 50 ms). */
    bool silent = heard_ns && now_ns >= view->silent_ns;
    if (view->active && !silent) {
        turns->alone_since_ns = 0;
        uint64_t latest = now_ns + BOARD_SILENT_WINDOWS_NS;
        turns->alone_at_ns = view->silent_ns < latest ? view->silent_ns : latest;
        return false;
    }
    if (!turns->alone_since_ns)
        turns->alone_since_ns = heard_ns ? heard_ns : now_ns;
    turns->alone_at_ns = turns->alone_since_ns + TURNS_ALONE_NS;
    return now_ns >= turns->alone_at_ns;
}

bool turns_give_way(struct turns *turns, const struct board_view *view, uint64_t now_ns)
{
    uint64_t round = TURNS_GIVES_WAY_NS + TURNS_WORKS_NS;
    if (!view->higher) {
        turns->way_since_ns = 0;
        return false;
    }
    if (!turns->way_since_ns || turns->way_since_ns > now_ns)
        turns->way_since_ns = now_ns;
    return now_ns - turns->way_since_ns < TURNS_GIVES_WAY_NS || now_ns % round >= TURNS_WORKS_NS;
}
