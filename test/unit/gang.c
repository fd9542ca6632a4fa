/* SPDX-License-Identifier: Apache-2.0 */
/* Whether kernels wait for other devices': by the time after which they are over. */
#include "compute/gang.h"

#include "check.h"

#define US 1000ull
#define MS 1000000ull
#define START (5000000 * MS)
#define KEY 77u

static struct gang gang;
static uint64_t now_ns = START;

static bool judge(uint64_t key, uint64_t after_ns)
{
    now_ns += 5 * MS;
    return gang_judge(&gang, key, after_ns, now_ns);
}

/* How many ends in a row it takes to be certain. */
static unsigned judge_until_certain(uint64_t after_ns)
{
    for (unsigned i = 1; i <= 100; i++) {
        if (judge(KEY, after_ns + i % 3 * 20 * US))
            return i;
    }
    return 0;
}

TEST("what is over the same time after others were admitted is a gang, and found so again sooner")
{
    unsigned first = judge_until_certain(940 * US);
    CHECK(first >= 8 && first <= 32);
    now_ns += GANG_HOLDS_NS;
    unsigned again = judge_until_certain(940 * US);
    CHECK(again >= 2 && again < first);
}

TEST("what took the same time long ago is looked at anew")
{
    unsigned first = judge_until_certain(940 * US);
    now_ns += 10 * GANG_HOLDS_NS;
    CHECK_EQ(judge_until_certain(940 * US), first);
}

TEST("what is over at any time is not, however long one looks")
{
    uint32_t random = 1;
    for (unsigned i = 0; i < 1000000; i++) {
        random = random * 1664525u + 1013904223u;
        if (!CHECK(!judge(KEY, (random >> 8) % MS)))
            break;
    }
}

TEST("other kernels in between do not count")
{
    unsigned ends = 0;
    for (unsigned i = 0; i < 100 && !ends; i++) {
        CHECK(!i || !judge(KEY + 1, 3 * MS + i * MS));
        if (judge(KEY, 940 * US))
            ends = i;
    }
    CHECK(ends > 0 && ends < 32);
}

TEST("but another kernel is looked at where the former one no longer runs")
{
    (void)judge(KEY + 1, 3 * MS);
    (void)judge(KEY + 1, 3 * MS);
    now_ns += 60000 * MS;
    CHECK(judge_until_certain(940 * US) > 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
