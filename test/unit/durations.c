/* SPDX-License-Identifier: Apache-2.0 */
/* The table of learnt durations: means, kernels that meet in one place, and threads. */
#include "compute/durations.h"

#include "check.h"

#include <pthread.h>

#define THREADS 4

/* Keys that share both places of the table, and differ. */
static uint64_t key_at(uint64_t place, uint64_t which)
{
    return which << DURATION_BITS | place;
}

TEST("a kernel that was never measured has no duration")
{
    CHECK_EQ(duration_of(duration_key(0x1000, 7)), 0);
    CHECK_EQ(duration_of(0), 0);
    CHECK_EQ(duration_of(UINT64_MAX), 0);
}

TEST("what was measured first is the duration")
{
    uint64_t key = duration_key(0x7f0012345678, 4099);
    duration_learn(key, 1234567);
    CHECK_EQ(duration_of(key), 1234567);
    CHECK_EQ(duration_of(duration_key(0x7f0012345678, 4100)), 0);
}

TEST("one measurement is no estimate yet, several are, whatever they were")
{
    uint64_t key = duration_key(0x7f0012345678, 4099);
    CHECK_EQ(duration_settled(key), 0);
    duration_learn(key, 7000); /* far off */
    CHECK_EQ(duration_settled(key), 0);
    for (unsigned i = 1; i < DURATION_SETTLED; i++)
        duration_learn(key, 21000);
    CHECK_EQ(duration_settled(key), duration_of(key));
    CHECK(duration_of(key) > 15000 && duration_of(key) < 21000);
    for (int i = 0; i < 20; i++)
        duration_learn(key, 21000);
    CHECK(duration_of(key) > 20500);
}

TEST("a duration is steady while measurements agree with it")
{
    uint64_t key = duration_key(0x7f0012345678, 4099);
    for (unsigned i = 0; i < 7; i++) {
        CHECK(!duration_is_steady(key));
        duration_learn(key, i ? 100000 : 130000);
    }
    CHECK(duration_is_steady(key));
    duration_learn(key, duration_of(key) + duration_of(key) / 20);
    CHECK(duration_is_steady(key));
    duration_learn(key, duration_of(key) / 4 * 5);
    CHECK(!duration_is_steady(key));
    CHECK(duration_settled(key) > 0);
    duration_learn(key, duration_of(key));
    CHECK(!duration_is_steady(key));
    duration_learn(key, duration_of(key));
    CHECK(duration_is_steady(key));
    duration_shorten(key, 60000);
    CHECK(!duration_is_steady(key));
    for (unsigned i = 0; i < 10; i++)
        duration_confirm(key);
    CHECK(!duration_is_steady(key));
}

TEST("what takes many times as long as is known is measured anew, and what it takes then is known "
     "at once")
{
    uint64_t key = duration_key(0x7f0012345678, 4099);
    for (unsigned i = 0; i < 20; i++)
        duration_learn(key, 10000);
    duration_learn(key, 1000000);
    CHECK_EQ(duration_settled(key), 0);
    for (unsigned i = 0; i < DURATION_SETTLED; i++)
        duration_learn(key, 1000000);
    CHECK_EQ(duration_settled(key), 1000000);
    for (unsigned i = 0; i < 7; i++)
        duration_exceeded(key, 9000000);
    CHECK_EQ(duration_settled(key), 0);
    CHECK_EQ(duration_of(key), 1000000);
    duration_exceeded(key, 8000000);
    CHECK_EQ(duration_settled(key), 8000000);
}

TEST("what is measured without teaching anything settles what is known, and nothing else")
{
    uint64_t key = duration_key(0x7f0012345678, 4099), other = duration_key(0x1000, 7);
    duration_learn(key, 5000);
    for (unsigned i = 1; i < DURATION_SETTLED; i++) {
        duration_confirm(key);
        duration_confirm(other);
    }
    CHECK_EQ(duration_settled(key), 5000);
    CHECK_EQ(duration_of(other), 0);
}

TEST("the duration follows what is measured, up and down, and one outlier moves it little")
{
    uint64_t key = key_at(5, 9);
    duration_learn(key, 100000);
    for (int i = 0; i < 100; i++)
        duration_learn(key, 500000);
    CHECK(duration_of(key) > 495000 && duration_of(key) <= 500000);
    for (int i = 0; i < 100; i++)
        duration_learn(key, 20000);
    CHECK(duration_of(key) >= 20000 && duration_of(key) < 20020);
    duration_learn(key, 820000);
    CHECK(duration_of(key) < 130000);
}

TEST("measured in time slices, the duration lies between, near the mean")
{
    uint64_t key = key_at(5, 9);
    for (int i = 0; i < 200; i++)
        duration_learn(key, i % 2 ? 1000 : 3000);
    CHECK(duration_of(key) > 1700 && duration_of(key) < 2300);
}

TEST("nothing measured is a nanosecond, and the longest is bounded")
{
    duration_learn(key_at(1, 1), 0);
    CHECK_EQ(duration_of(key_at(1, 1)), 1);
    duration_learn(key_at(2, 1), UINT64_MAX);
    CHECK_EQ(duration_of(key_at(2, 1)), DURATION_MAX_NS);
    duration_learn(key_at(2, 1), UINT64_MAX);
    CHECK_EQ(duration_of(key_at(2, 1)), DURATION_MAX_NS);
    for (int i = 0; i < 1000; i++)
        duration_learn(key_at(2, 1), 0);
    CHECK(duration_of(key_at(2, 1)) < 10);
}

TEST("two kernels of one place are both known")
{
    duration_learn(key_at(40, 1), 111);
    duration_learn(key_at(40, 2), 222);
    CHECK_EQ(duration_of(key_at(40, 1)), 111);
    CHECK_EQ(duration_of(key_at(40, 2)), 222);
}

TEST("a third kernel takes the place of one, never its duration")
{
    for (uint64_t which = 1; which <= 50; which++) {
        duration_learn(key_at(40, which), 1000 * which);
        CHECK_EQ(duration_of(key_at(40, which)), (long long)(1000 * which));
        unsigned known = 0;
        for (uint64_t other = 1; other <= which; other++) {
            uint64_t got = duration_of(key_at(40, other));
            CHECK(got == 0 || got == 1000 * other);
            known += got != 0;
        }
        CHECK(known >= 1 && known <= 2);
    }
}

TEST("a thousand kernels of a program, in some shapes each, are nearly all known at once")
{
    unsigned known = 0;
    for (uint64_t handle = 0; handle < 250; handle++)
        for (uint64_t shape = 0; shape < 4; shape++)
            duration_learn(duration_key(0x55550000 + handle * 0x180, shape * 4099 + 256), 5000);
    for (uint64_t handle = 0; handle < 250; handle++)
        for (uint64_t shape = 0; shape < 4; shape++)
            known += duration_of(duration_key(0x55550000 + handle * 0x180, shape * 4099 + 256)) > 0;
    CHECK(known > 950);
}

TEST("of what was not cut in time slices the least of a few is taken as if measured alone")
{
    uint64_t key = duration_key(0x7f0012345678, 4099);
    static const uint64_t took_us[] = {33000, 20100, 87000, 20000};
    duration_learn(key, 39000000);
    for (unsigned i = 0; i < 4; i++) {
        CHECK(!duration_is_alone(key));
        duration_learn_extended(key, took_us[i] * 1000);
        CHECK(duration_of(key) <= took_us[i] * 1000);
    }
    CHECK_EQ(duration_of(key), 20000000);
    CHECK(duration_is_alone(key));
    CHECK_EQ(duration_settled(key), duration_of(key));
}

TEST("what was measured alone and takes longer beside others each time was not, and no less")
{
    uint64_t key = duration_key(0x7f0012345678, 4099);
    duration_learn_alone(key, 20000000);
    for (unsigned i = 0; i < 40; i++) {
        duration_distrust(key, i % 8 != 7);
        CHECK(duration_is_alone(key));
    }
    for (unsigned i = 0; i < 8; i++) {
        CHECK(duration_is_alone(key));
        duration_distrust(key, true);
    }
    CHECK(!duration_is_alone(key));
    CHECK_EQ(duration_of(key), 20000000);
}

TEST("after a reset nothing is known")
{
    duration_learn(key_at(3, 3), 5);
    durations_reset();
    CHECK_EQ(duration_of(key_at(3, 3)), 0);
}

/* A key's durations are told by its number: who reads another's would see it. */
static void *learn_and_read(void *number)
{
    uint64_t which = (uint64_t)(intptr_t)number + 1;
    for (int i = 0; i < 200000; i++) {
        duration_learn(key_at(77, which), 1000 * which);
        for (uint64_t other = 1; other <= THREADS; other++) {
            uint64_t got = duration_of(key_at(77, other));
            if (got != 0 && got != 1000 * other && !CHECK_EQ(got, (long long)(1000 * other)))
                return NULL;
        }
    }
    return NULL;
}

TEST("threads that fight for one place read no kernel's duration for another's")
{
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, learn_and_read, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
