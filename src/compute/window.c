/* SPDX-License-Identifier: Apache-2.0 */
/* The length of windows. */
#include "compute/window.h"

#include "compute/budget.h"

/* Nanoseconds between two looks in a window, at least: a look costs 20 us of a core, 4 % of
 * this. */
#define LOOK_MIN_NS 500000

/* Nanoseconds that must be available when a slot begins: less would be lost to the switches (0.93
 * ms). */
#define SLOT_OPEN_NS 1000000

/* What a window uses up, beyond what is refilled meanwhile: enough for its length. */
static int64_t window_balance(unsigned percent)
{
    int64_t open = WINDOW_PERIOD_MIN_NS / 100 * (int64_t)percent;
    if (open < WINDOW_OPEN_MIN_NS)
        open = WINDOW_OPEN_MIN_NS;
    return open * (100 - (int64_t)percent) / 100;
}

/* What must be available when a window opens: not more than can be saved. */
static int64_t opening_balance(unsigned percent)
{
    const int64_t saved = budget_burst_ns(percent), used = window_balance(percent);
    return used < saved ? used : saved;
}

static uint64_t slots_period_ns(unsigned count, unsigned least_percent)
{
    uint64_t period = WINDOW_OPEN_MIN_NS * 100ull / least_percent;
    if (period < WINDOW_SLOTS_MIN_NS)
        period = WINDOW_SLOTS_MIN_NS;
    if (period > WINDOW_SLOTS_LONG_NS)
        period = WINDOW_SLOTS_LONG_NS;
    const uint64_t switches = (uint64_t)count * WINDOW_SLOTS_EACH_NS;
    return period < switches ? switches : period;
}

struct window_slot window_slot(unsigned percent, const struct window_others *others)
{
    const unsigned all = percent + others->percent;
    unsigned least = others->least_percent < percent ? others->least_percent : percent;
    if (!budget_is_limited(percent) || !others->percent || all > 100 || !least)
        return (struct window_slot){0};
    uint64_t period = slots_period_ns(1 + others->count, least);
    return (struct window_slot){.period_ns = period,
        .from_ns = period * others->before_percent / all,
        .to_ns = period * (others->before_percent + percent) / all};
}

/* What a period brings and cannot be saved up may be overdrawn in the slot instead. */
static int64_t slot_owed_ns(const struct window_view *view)
{
    int64_t comes = (int64_t)(view->slot.period_ns / 100 * view->percent);
    int64_t owed = comes - budget_burst_ns(view->percent);
    return owed > 0 ? owed : 0;
}

static bool is_within(const struct window_view *view)
{
    uint64_t at = view->now_ns % view->slot.period_ns;
    return at >= view->slot.from_ns && at < view->slot.to_ns;
}

/* Until the container's next slot begins for which there is enough budget. */
static uint64_t slot_close_ns(const struct window_view *view)
{
    const struct window_slot *slot = &view->slot;
    const int64_t left = view->balance_ns + slot_owed_ns(view);
    if (is_within(view) && left > 0)
        return 0;
    int64_t missing = SLOT_OPEN_NS - left;
    uint64_t fill = missing > 0 ? budget_fill_ns(0, missing, view->percent) : 0;
    uint64_t at = view->now_ns % slot->period_ns;
    uint64_t next = (slot->from_ns > at ? 0 : slot->period_ns) + slot->from_ns - at;
    while (next < fill && next < WINDOW_CLOSED_MAX_NS)
        next += slot->period_ns;
    return next < WINDOW_CLOSED_MAX_NS ? next : WINDOW_CLOSED_MAX_NS;
}

static int64_t closing_balance(const struct window_view *view)
{
    if (view->slot.period_ns)
        return -slot_owed_ns(view);
    if (!view->in_windows)
        return -WINDOW_OVERDRAWN_NS;
    return opening_balance(view->percent) - window_balance(view->percent);
}

uint64_t window_close_ns(const struct window_view *view)
{
    if (!budget_is_limited(view->percent) || !view->runs_on)
        return 0;
    if (view->slot.period_ns)
        return slot_close_ns(view);
    if (view->balance_ns > closing_balance(view))
        return 0;
    const uint64_t most = (uint64_t)(WINDOW_CLOSED_MAX_NS / 100) * view->percent;
    uint64_t missing = (uint64_t)opening_balance(view->percent) - (uint64_t)view->balance_ns;
    return missing < most ? missing * 100 / view->percent : WINDOW_CLOSED_MAX_NS;
}

uint64_t window_open_ns(const struct window_view *view)
{
    if (!budget_is_limited(view->percent) || !view->runs_on)
        return UINT64_MAX;
    int64_t left = view->balance_ns - closing_balance(view);
    uint64_t open = left > 0 ? (uint64_t)left * 100 / (100 - view->percent) : 0;
    if (view->slot.period_ns && is_within(view)) {
        uint64_t rest = view->slot.to_ns - view->now_ns % view->slot.period_ns;
        open = rest < open ? rest : open;
    }
    return open > LOOK_MIN_NS ? open : LOOK_MIN_NS;
}
