/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a time the channel gate was closed for. */
#include "limit/closed.h"

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

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
