/* SPDX-License-Identifier: Apache-2.0 */
/* What is in force where threads read it at the same time. The region's words are the test's own.
 */
#include "pace/policy.h"

#include "base/atomic.h"
#include "base/sleep.h"
#include "check.h"
#include "pace/pace.h"
#include "container/container.h"
#include "pace/governor.h"
#include "account/account.h"

#include <pthread.h>

static struct account_control words;
static uint64_t readings;
static void *(*delayed_until)(void *); /* that other thread has ended */
static bool other_is_through;

const struct config *container_config(void)
{
    static const struct config none;
    return &none;
}

void account_control_wait(uint32_t seen, uint64_t timeout_ns)
{
    (void)seen;
    sleep_ns(timeout_ns);
}

bool account_control_stands(uint32_t seen)
{
    return seen == words.epoch;
}

static bool governed;

bool governor_is_awake(void)
{
    return governed;
}

void account_note_activity(void)
{
}

static void *read_later(void *unused)
{
    uint32_t epoch;
    (void)unused;
    words.paused = false;
    (void)policy_read(2, &epoch);
    store_release(&other_is_through, true);
    return NULL;
}

static void *look_later(void *unused)
{
    (void)unused;
    store_release(&other_is_through, policy_look(1000 * POLICY_LOOK_NS));
    return NULL;
}

/* The first reader is kept from running until another thread has read, too. */
bool account_control(struct account_control *ret_control)
{
    pthread_t other;
    void *(*run)(void *) = delayed_until;
    *ret_control = words;
    ret_control->number = ++readings;
    if (!run)
        return words.paused;
    delayed_until = NULL;
    REQUIRE(pthread_create(&other, NULL, run, NULL) == 0);
    pthread_join(other, NULL);
    return ret_control->paused;
}

TEST("what a delayed thread has read does not take the place of what was read later")
{
    uint32_t epoch;
    words.paused = true;
    delayed_until = read_later;
    (void)policy_read(1, &epoch);
    CHECK(load_acquire(&other_is_through));
    CHECK(!policy_pause());
    CHECK(!load_relaxed(&policy_limited));
}

TEST("a thread that looks before the first reading is taken in finds the limit, too")
{
    policy_reset();
    words = (struct account_control){.paused = true};
    delayed_until = look_later;
    other_is_through = false;
    CHECK(policy_look(1000 * POLICY_LOOK_NS));
    CHECK(load_acquire(&other_is_through));
}

TEST("what is read is in force")
{
    uint32_t epoch;
    for (int i = 0; i < 4; i++) {
        words.paused = i % 2 == 0;
        words.percent[3] = (unsigned char)(10 + i);
        CHECK_EQ(policy_read(1, &epoch), words.paused);
        CHECK_EQ(policy_pause(), words.paused);
        CHECK_EQ(policy_percent(3), 10 + i);
    }
}

#define MS 1000000ull

TEST("where nothing is in force it is read anew after 25 ms, or when the epoch was raised")
{
    uint32_t epoch;
    uint64_t now = 1000 * MS;
    words = (struct account_control){.epoch = 7};
    CHECK(!policy_read(now, &epoch));
    CHECK(!policy_look(now += 5 * MS)); /* says that the program works, and reads for that */
    uint64_t before = readings;
    for (unsigned i = 0; i < 24; i++)
        CHECK(!policy_look(now += MS));
    CHECK_EQ(readings, before);
    CHECK(!policy_look(now += 6 * MS));
    CHECK_EQ(readings, before + 1);
    words = (struct account_control){.epoch = 8, .percent[3] = 20, .paused = true};
    CHECK(!policy_look(now += 4 * MS));
    CHECK(policy_look(now += MS));
    CHECK_EQ(policy_percent(3), 20);
}

TEST("a governor who sleeps on the epoch is believed to read what comes, for so long")
{
    uint32_t epoch;
    uint64_t now = 1500 * MS;
    words = (struct account_control){.epoch = 7};
    CHECK(!policy_read(now, &epoch));
    CHECK(!policy_look(now += 500 * MS));
    uint64_t before = readings;
    words = (struct account_control){.epoch = 8, .percent[3] = 20, .paused = true};
    governed = true;
    CHECK(!policy_look(now += 24 * MS));
    CHECK_EQ(readings, before);
    CHECK(policy_look(now += 5 * MS));
    CHECK_EQ(readings, before + 1);
    governed = false;
}

TEST("and where something is, each 5 ms")
{
    uint32_t epoch;
    uint64_t now = 2000 * MS;
    words = (struct account_control){.epoch = 8, .paused = true};
    CHECK(policy_read(now, &epoch));
    uint64_t before = readings;
    for (unsigned i = 0; i < 25; i++)
        CHECK(policy_look(now += MS));
    CHECK_EQ(readings, before + 5);
    words.paused = false; /* HAMi's monitor raises no epoch */
    CHECK(!policy_look(now += 5 * MS));
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
