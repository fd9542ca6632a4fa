/* SPDX-License-Identifier: Apache-2.0 */
/* The length of windows. */
#include "limit/window.h"

#include "limit/budget.h"

/* A look costs some 20 us of a core. */
#define LOOK_MIN_NS 500000

/* What is to be there when a window opens: enough for its length, and not more than can be saved.
 */
static int64_t opening_balance(unsigned percent)
{
    const int64_t saved = budget_burst_ns(percent);
    int64_t open = WINDOW_PERIOD_MIN_NS / 100 * (int64_t)percent;
    if (open < WINDOW_OPEN_MIN_NS)
        open = WINDOW_OPEN_MIN_NS;
    open = open * (100 - (int64_t)percent) / 100;
    return open < saved ? open : saved;
}

static int64_t closing_balance(const struct window_view *view)
{
    return view->in_windows ? 0 : -WINDOW_OVERDRAWN_NS;
}

uint64_t window_close_ns(const struct window_view *view)
{
    if (!budget_is_limited(view->percent) || !view->runs_on ||
        view->balance_ns > closing_balance(view))
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
    return open > LOOK_MIN_NS ? open : LOOK_MIN_NS;
}
