/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a time the channel gate was closed for. */
#include "compute/closed.h"

#include "compute/budget.h"

#include "check.h"

static struct closed_times times;

static void close_from(uint64_t from, uint64_t to)
{
    closed_begin(&times, from);
    closed_end(&times, to);
}

TEST("a gate that was never closed was open all the time")
{
    CHECK_EQ(closed_between(NULL, 1, 1000), 0);
    CHECK_EQ(closed_between(&times, 1, 1000), 0);
}

TEST("what lies within the time asked for counts, whole or in part")
{
    close_from(100, 200);
    close_from(300, 450);
    CHECK_EQ(closed_between(&times, 0, 1000), 250);
    CHECK_EQ(closed_between(&times, 150, 350), 100);
    CHECK_EQ(closed_between(&times, 310, 320), 10);
    CHECK_EQ(closed_between(&times, 200, 300), 0);
    CHECK_EQ(closed_between(&times, 450, 1000), 0);
    CHECK_EQ(closed_between(&times, 0, 100), 0);
    CHECK_EQ(closed_between(&times, 350, 150), 0);
}

TEST("a closure that goes on counts up to the end of what is asked for")
{
    closed_begin(&times, 100);
    CHECK_EQ(closed_between(&times, 50, 170), 70);
    closed_begin(&times, 150); /* closed already */
    CHECK_EQ(closed_between(&times, 50, 170), 70);
    closed_end(&times, 200);
    closed_end(&times, 500); /* open already */
    CHECK_EQ(closed_between(&times, 0, 1000), 100);
}

TEST("the latest closures are kept, older ones forgotten")
{
    for (uint64_t i = 0; i < 3 * CLOSED_KEPT; i++)
        close_from(100 * i, 100 * i + 10);
    CHECK_EQ(closed_between(&times, 0, 1000000), 10 * CLOSED_KEPT);
    CHECK_EQ(closed_between(&times, 100 * (3 * CLOSED_KEPT - 5), 1000000), 50);
}

TEST("whether one goes on is known without a lock")
{
    CHECK(!closed_is_running(&times));
    closed_begin(&times, 100);
    CHECK(closed_is_running(&times));
    closed_end(&times, 200);
    CHECK(!closed_is_running(&times));
}

TEST("a reset forgets all, a running closure too")
{
    closed_begin(&times, 100);
    closed_reset(&times);
    CHECK_EQ(closed_between(&times, 0, 1000), 0);
}

/* ---- what is busy beside closures ---- */

/* Spans, within which order is not told. */
#define SPAN ((uint64_t)VGPU_COMPUTE_SPAN_NS)
#define START (30000 * SPAN)

static struct vgpu_compute words;

/* Open for 30 of each 300 spans, four times from START on. */
static void close_often(void)
{
    closed_reset(&times);
    words = (struct vgpu_compute){.busy_ns = 0};
    for (uint64_t i = 0; i < 4; i++)
        close_from(START + (i * 300 + 30) * SPAN, START + (i + 1) * 300 * SPAN);
}

static uint64_t occupied(uint64_t from, uint64_t to, uint64_t busy)
{
    return closed_occupy(&words, &times, START + from * SPAN, START + to * SPAN, busy * SPAN) /
           SPAN;
}

TEST("work of several streams that was stopped together kept the device busy once")
{
    close_often();
    CHECK_EQ(occupied(0, 930, 120), 120);
    CHECK_EQ(occupied(0, 930, 120), 0);
    CHECK_EQ(occupied(15, 900, 75), 0);
    CHECK_EQ(words.busy_ns, 120 * SPAN);
}

TEST("so did what ran for a part of the open time")
{
    close_often();
    CHECK_EQ(occupied(0, 930, 60), 60);
    CHECK_EQ(occupied(0, 930, 120), 60);
}

TEST("nothing is lost where no closure is, or nothing but a closure, or one goes on")
{
    close_often();
    CHECK_EQ(closed_occupy(&words, NULL, START, START + 5 * SPAN, 5 * SPAN), 5 * SPAN);
    CHECK_EQ(occupied(300, 321, 21), 21);
    CHECK_EQ(occupied(40, 70, 7), 7);
    CHECK_EQ(occupied(50, 50, 1), 0);
    closed_begin(&times, START + 1300 * SPAN);
    CHECK_EQ(occupied(1250, 1400, 50), 50);
    CHECK_EQ(occupied(1250, 1300, 50), 0);
}

TEST("any times of any closures are taken in whole, and once")
{
    uint64_t chance = 1;
    closed_reset(&times);
    for (uint64_t at = 0; at < 1500;) {
        chance = chance * 6364136223846793005ull + 1442695040888963407ull;
        uint64_t open = 1 + (chance >> 33) % 20, closed = 1 + (chance >> 43) % 20;
        close_from(START + (at + open) * SPAN, START + (at + open + closed) * SPAN);
        at += open + closed;
    }
    for (unsigned i = 0; i < 1000; i++) {
        chance = chance * 6364136223846793005ull + 1442695040888963407ull;
        uint64_t from = (chance >> 33) % 1400, to = from + 1 + (chance >> 45) % 600;
        words = (struct vgpu_compute){.busy_ns = 0};
        uint64_t closed = closed_between(&times, START + from * SPAN, START + to * SPAN) / SPAN;
        if (closed == to - from)
            continue;
        bool whole = CHECK_EQ(occupied(from, to, to - from - closed), to - from - closed);
        if (!whole || !CHECK_EQ(occupied(from, to, to - from - closed), 0))
            return;
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
