/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that never ends, held in windows: shares, lengths, and who is left alone. */
#include "limit/window.h"

#include "check.h"
#include "limit/budget.h"

#include <stdio.h>

#define MS 1000000ull
#define LOOK_NS (10 * MS) /* of the governor */

static struct window_view view_of(unsigned percent, int64_t balance_ns)
{
    return (struct window_view){.balance_ns = balance_ns, .percent = percent, .runs_on = true};
}

TEST("who has time left, who runs nothing long and who has no limit is never stopped")
{
    struct window_view view = view_of(50, 1);
    view.in_windows = true;
    CHECK_EQ(window_close_ns(&view), 0);
    view = view_of(50, -WINDOW_OVERDRAWN_NS + 1);
    CHECK_EQ(window_close_ns(&view), 0);
    view = view_of(50, -(int64_t)(1000 * MS));
    view.runs_on = false;
    CHECK_EQ(window_close_ns(&view), 0);
    CHECK_EQ(window_open_ns(&view), UINT64_MAX);
    const unsigned none[] = {0, 100, 200};
    for (unsigned i = 0; i < 3; i++) {
        view = view_of(none[i], -(int64_t)(1000 * MS));
        CHECK_EQ(window_close_ns(&view), 0);
        CHECK_EQ(window_open_ns(&view), UINT64_MAX);
    }
}

TEST("a kernel is stopped once it has overdrawn its budget, and then whenever its time is over")
{
    struct window_view view = view_of(50, -WINDOW_OVERDRAWN_NS);
    CHECK(window_close_ns(&view) > 0);
    view.balance_ns = 0;
    CHECK_EQ(window_close_ns(&view), 0);
    view.in_windows = true;
    CHECK(window_close_ns(&view) > 0);
}

TEST("no closure is longer than a second, however much is owed")
{
    struct window_view view = view_of(10, -(int64_t)BUDGET_DEBT_NS);
    CHECK_EQ(window_close_ns(&view), WINDOW_CLOSED_MAX_NS);
    view.balance_ns = INT64_MIN / 2;
    CHECK_EQ(window_close_ns(&view), WINDOW_CLOSED_MAX_NS);
}

TEST("the next look is when the budget will be used up, and never at once")
{
    struct window_view view = view_of(80, (int64_t)(4 * MS));
    view.in_windows = true;
    CHECK_EQ(window_open_ns(&view), 20 * MS);
    view.balance_ns = 1;
    CHECK(window_open_ns(&view) >= MS / 10);
    view.balance_ns = -5;
    CHECK(window_open_ns(&view) >= MS / 10);
}

/* A persistent kernel under the policy for 20 s; a switch takes `late_ns`, in which it runs. */
static void run(unsigned percent, uint64_t late_ns, uint64_t *ret_share, uint64_t *ret_windows)
{
    static struct vgpu_compute words;
    uint64_t now = 1000 * MS, end = now + 20000 * MS, busy = 0, windows = 0;
    struct window_view view = {.percent = percent, .runs_on = true};
    words = (struct vgpu_compute){0};
    (void)budget_refill(&words, percent, now);
    while (now < end) {
        uint64_t step = window_open_ns(&view);
        step = (step < LOOK_NS ? step : LOOK_NS) + late_ns;
        now += step;
        busy += step;
        budget_charge(&words, (int64_t)step);
        view.balance_ns = budget_refill(&words, percent, now);
        uint64_t closed = window_close_ns(&view);
        if (!closed)
            continue;
        windows++;
        view.in_windows = true;
        now += closed;
        view.balance_ns = budget_refill(&words, percent, now);
    }
    *ret_share = busy * 100000 / (20000 * MS);
    *ret_windows = windows;
}

TEST("a kernel that never ends has its share over time, in windows of a useful length")
{
    const unsigned percents[] = {1, 10, 20, 50, 80, 95, 99};
    for (unsigned i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
        for (uint64_t late = 0; late <= 2 * MS; late += MS / 2) {
            uint64_t share, windows;
            run(percents[i], late, &share, &windows);
            /* The burst of 0.1 s and the first overdraft belong to the 20 s. */
            if (!CHECK(share + 100 >= 1000ull * percents[i]) ||
                !CHECK(share <= 1000ull * percents[i] + 700))
                dprintf(1, "# %llu of 100,000 at %u, late by %llu us, %llu windows\n",
                    (unsigned long long)share, percents[i], (unsigned long long)(late / 1000),
                    (unsigned long long)windows);
            CHECK(windows <= 20000 * MS / WINDOW_PERIOD_MIN_NS);
        }
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
