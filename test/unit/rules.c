/* SPDX-License-Identifier: Apache-2.0 */
/* What is in force where threads read it at the same time. The region's words are the test's own.
 */
#include "hook/pace_rules.h"

#include "base/atomic.h"
#include "base/lock.h"
#include "check.h"
#include "hook/pace.h"
#include "limit/container.h"
#include "region/account.h"

#include <pthread.h>

static struct account_orders words;
static uint64_t readings;
static bool delayed, other_is_through;

const struct config *container_config(void)
{
    static const struct config none;
    return &none;
}

void account_wait_orders(uint32_t seen, uint64_t timeout_ns)
{
    (void)seen;
    sleep_ns(timeout_ns);
}

void account_note_activity(void)
{
}

static void *read_later(void *unused)
{
    uint32_t epoch;
    (void)unused;
    words.paused = false;
    (void)rules_read(2, &epoch);
    store_release(&other_is_through, true);
    return NULL;
}

/* The first reader is kept from running until another thread has read something else. */
bool account_orders(struct account_orders *ret_orders)
{
    pthread_t other;
    *ret_orders = words;
    ret_orders->number = ++readings;
    if (!delayed)
        return words.paused;
    delayed = false;
    REQUIRE(pthread_create(&other, NULL, read_later, NULL) == 0);
    pthread_join(other, NULL);
    return ret_orders->paused;
}

TEST("what a delayed thread has read does not take the place of what was read later")
{
    uint32_t epoch;
    words.paused = true;
    delayed = true;
    (void)rules_read(1, &epoch);
    CHECK(load_acquire(&other_is_through));
    CHECK(!rules_pause());
    CHECK(!load_relaxed(&pace_limited));
}

TEST("what is read is in force")
{
    uint32_t epoch;
    for (int i = 0; i < 4; i++) {
        words.paused = i % 2 == 0;
        words.percent[3] = (unsigned char)(10 + i);
        CHECK_EQ(rules_read(1, &epoch), words.paused);
        CHECK_EQ(rules_pause(), words.paused);
        CHECK_EQ(rules_percent(3), 10 + i);
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
