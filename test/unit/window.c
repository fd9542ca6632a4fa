/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that never ends, held in windows: shares, lengths, and who is left alone. */
#include "compute/window.h"

#include "check.h"
#include "compute/budget.h"

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
            /* However many they are, such windows are few: of what all have together, each takes a
             * good part. */
            CHECK(windows * 9 * MS <= share * 200000);
        }
    }
}

/* ---- slots ---- */

#define TENANTS 4

static struct window_slot slot_of(
    unsigned percent, unsigned before_percent, unsigned others_percent, unsigned least_percent)
{
    const struct window_others others = {.count = others_percent ? 1 : 0,
        .percent = others_percent,
        .before_percent = before_percent,
        .least_percent = least_percent};
    return window_slot(percent, &others);
}

TEST("slots of one period are each as long as its limit says, at least, and none meets another")
{
    const unsigned limits[][TENANTS] = {{30, 60, 0, 0}, {50, 50, 0, 0}, {10, 20, 25, 35},
        {5, 85, 0, 0}, {1, 1, 1, 97}, {25, 25, 25, 25}};
    for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        uint64_t end = 0, period = 0;
        unsigned before = 0, sum = 0, least = 100;
        for (unsigned t = 0; t < TENANTS; t++) {
            sum += limits[i][t];
            least = limits[i][t] && limits[i][t] < least ? limits[i][t] : least;
        }
        for (unsigned t = 0; t < TENANTS && limits[i][t]; t++) {
            unsigned own = limits[i][t];
            struct window_slot slot = slot_of(own, before, sum - own, least);
            period = period ? period : slot.period_ns;
            CHECK_EQ(slot.period_ns, period);
            CHECK_EQ(slot.from_ns, end);
            CHECK(slot.to_ns - slot.from_ns >= period / 100 * own);
            end = slot.to_ns;
            before += own;
        }
        CHECK_EQ(end, period);
        CHECK(period >= WINDOW_SLOTS_MIN_NS && period <= WINDOW_SLOTS_LONG_NS);
    }
}

TEST("nobody keeps to a slot alone, without a limit, or where what others say does not fit")
{
    CHECK_EQ(slot_of(30, 0, 0, 0).period_ns, 0);
    CHECK_EQ(slot_of(30, 0, 71, 71).period_ns, 0);
    CHECK(slot_of(30, 0, 70, 70).period_ns > 0);
    CHECK_EQ(slot_of(0, 0, 50, 50).period_ns, 0);
    CHECK_EQ(slot_of(100, 0, 50, 50).period_ns, 0);
    CHECK_EQ(slot_of(30, 12600, 12600, 100).period_ns, 0);
}

TEST("outside of its slot one is closed until it begins, also one who has time left")
{
    struct window_view view = view_of(30, 5 * MS);
    view.in_windows = true;
    view.slot = slot_of(30, 60, 60, 60); /* the last third of 80 ms */
    view.now_ns = 8000 * MS + 10 * MS;
    CHECK_EQ(window_close_ns(&view), view.slot.from_ns - 10 * MS);
    view.now_ns = 8000 * MS + view.slot.from_ns;
    CHECK_EQ(window_close_ns(&view), 0);
    view.balance_ns = 100 * MS;
    CHECK_EQ(window_open_ns(&view), view.slot.to_ns - view.slot.from_ns);
    view.balance_ns = 0; /* used up in its midst: until the next one */
    view.now_ns += 10 * MS;
    CHECK_EQ(window_close_ns(&view), 70 * MS);
    view.balance_ns = -(int64_t)(30 * MS); /* 31 ms take 103 to come */
    CHECK_EQ(window_close_ns(&view), 150 * MS);
    view.balance_ns = -(int64_t)BUDGET_DEBT_NS;
    CHECK_EQ(window_close_ns(&view), WINDOW_CLOSED_MAX_NS);
    view.runs_on = false;
    CHECK_EQ(window_close_ns(&view), 0);
}

/* Each closes and opens once a period. */
TEST("the more keep to slots the longer is their period, and each can use its whole slot")
{
    for (unsigned count = 2; count <= 50; count++) {
        const unsigned percent = 100 / count;
        struct window_others others = {
            .count = count - 1, .percent = percent * (count - 1), .least_percent = percent};
        struct window_view view = view_of(percent, budget_burst_ns(percent));
        view.in_windows = true;
        view.slot = window_slot(percent, &others);
        uint64_t period = view.slot.period_ns, length = period / 100 * percent;
        CHECK(count * 930000ull <= period / 10);
        /* What comes in a period. */
        int64_t spent = (int64_t)length - (int64_t)(length * percent / 100);
        view.now_ns = 1000 * period + length - 1;
        view.balance_ns = budget_burst_ns(percent) - spent + (int64_t)MS / 2;
        CHECK_EQ(window_close_ns(&view), 0);
        view.balance_ns -= (int64_t)length;
        CHECK(window_close_ns(&view) >= period - length);
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
