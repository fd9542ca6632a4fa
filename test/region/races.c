/* SPDX-License-Identifier: Apache-2.0 */
/* Many processes and threads against one limit, and processes killed at random instants. */
#include "base/atomic.h"
#include "base/clock.h"
#include "base/sleep.h"
#include "check.h"
#include "peers.h"
#include "region/mapping.h"

#include <pthread.h>

#define LIMIT_MIB 1000
#define PROCESSES 16
#define THREADS 8
#define RACE_NS 2000000000ull
#define KILLS 400

enum { GRANTED, OVER_LIMIT, SUCCESSES };

static unsigned device;

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Mixed sizes: mostly small, now and then a third of the limit. */
static uint64_t random_bytes(uint64_t *state)
{
    uint64_t draw = random_next(state);
    uint64_t mib = draw % 16 == 0 ? 100 + draw / 16 % 240 : draw % 4 == 0 ? 20 : 1;
    return mib * PEERS_MIB + draw % 4096;
}

/* What was granted is summed apart from the region: raised after a grant, lowered before it is
 * given back, so it never shows more than is charged. */
static void note_grant(uint64_t bytes)
{
    if (add_seq_cst(&peers->number[GRANTED], (int64_t)bytes) > LIMIT_MIB * (int64_t)PEERS_MIB)
        add_seq_cst(&peers->number[OVER_LIMIT], 1);
    add_seq_cst(&peers->number[SUCCESSES], 1);
}

static void *race_thread(void *number)
{
    uint64_t state = (uint64_t)getpid() << 20 | ((uintptr_t)number + 1);
    uint64_t start = clock_now_ns();
    while (clock_now_ns() - start < RACE_NS) {
        uint64_t bytes = random_bytes(&state);
        if (account_reserve(device, bytes, ACCOUNT_BUFFER) != 0)
            continue;
        note_grant(bytes);
        if (random_next(&state) % 4 == 0)
            sleep_ns(random_next(&state) % 300000);
        account_commit(device, bytes);
        if (random_next(&state) % 2)
            sleep_ns(random_next(&state) % 300000);
        sub_seq_cst(&peers->number[GRANTED], (int64_t)bytes);
        account_release(device, bytes, ACCOUNT_BUFFER);
    }
    return NULL;
}

static void race_process(void)
{
    pthread_t threads[THREADS];
    device = peers_join("1000m");
    for (uintptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, race_thread, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(account_own_bytes(device, ACCOUNT_KINDS), 0);
}

TEST("sixteen processes of eight threads never pass the limit, and nothing is left over")
{
    pid_t pids[PROCESSES];
    peers_begin();
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = peers_fork(race_process);
    for (int i = 0; i < PROCESSES; i++)
        CHECK_EQ(peers_reap(pids[i]), 0);
    CHECK_EQ(peers->number[OVER_LIMIT], 0);
    CHECK_EQ(peers->number[GRANTED], 0);
    CHECK(peers->number[SUCCESSES] > 1000);
    dprintf(1, "# %lld grants\n", (long long)peers->number[SUCCESSES]);
    device = peers_join("1000m");
    CHECK_EQ(peers_used(device), 0);
}

/* Fills up with requests of 7 MiB until it is refused three times running. */
static void fill_process(void)
{
    device = peers_join("1000m");
    for (int refusals = 0; refusals < 3;) {
        if (account_reserve(device, 7 * PEERS_MIB, ACCOUNT_BUFFER) != 0) {
            refusals++;
            continue;
        }
        refusals = 0;
        account_commit(device, 7 * PEERS_MIB);
        note_grant(7 * PEERS_MIB);
    }
    add_seq_cst(&peers->number[3], 1);
    peers_wait(1);
}

TEST("sixteen processes that race to the last byte end within one request of the limit")
{
    pid_t pids[PROCESSES];
    peers_begin();
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = peers_fork(fill_process);
    while (load_acquire(&peers->number[3]) < PROCESSES)
        sleep_ns(1000000);
    device = peers_join("1000m");
    uint64_t used = peers_used(device);
    CHECK(used <= LIMIT_MIB * PEERS_MIB);
    CHECK(used > (LIMIT_MIB - 7) * PEERS_MIB);
    CHECK_EQ(peers->number[OVER_LIMIT], 0);
    CHECK_EQ(used, peers->number[GRANTED]);
    peers_step(1);
    for (int i = 0; i < PROCESSES; i++)
        CHECK_EQ(peers_reap(pids[i]), 0);
    CHECK_EQ(peers_used(device), 0);
}

static void allocate_until_killed(void)
{
    uint64_t state = (uint64_t)getpid() * 7919 + 1;
    device = peers_join("1000m");
    for (;;) {
        uint64_t bytes = random_bytes(&state);
        if (account_reserve(device, bytes, ACCOUNT_BUFFER) != 0)
            continue;
        account_commit(device, bytes);
        account_release(device, bytes, ACCOUNT_BUFFER);
    }
}

/* Half of a fork and attach at first, later deep in the charges: the instants are random. */
static void kill_at_random(uint64_t *state)
{
    pid_t pids[4];
    for (int i = 0; i < 4; i++)
        pids[i] = peers_fork(allocate_until_killed);
    for (int i = 0; i < 4; i++) {
        sleep_ns(random_next(state) % 4000000);
        peers_kill(pids[i]);
    }
}

static void hold_50(void)
{
    device = peers_join("1000m");
    REQUIRE(account_reserve(device, 50 * PEERS_MIB, ACCOUNT_MODULE) == 0);
    account_commit(device, 50 * PEERS_MIB);
    peers_step(1);
    peers_wait(2);
    CHECK_EQ(account_own_bytes(device, ACCOUNT_KINDS), 50 * PEERS_MIB);
}

TEST("after 400 kills at random instants the account equals what the living hold")
{
    uint64_t state = 4711;
    peers_begin();
    pid_t holder = peers_fork(hold_50);
    peers_wait(1);
    for (int i = 0; i < KILLS / 4; i++)
        kill_at_random(&state);
    device = peers_join("1000m");
    CHECK_EQ(peers_used(device), 50 * PEERS_MIB);
    CHECK_EQ(account_reserve(device, 951 * PEERS_MIB, ACCOUNT_BUFFER), -ENOMEM);
    CHECK_EQ(account_reserve(device, 950 * PEERS_MIB, ACCOUNT_BUFFER), 0);
    /* Dead processes' slots are used again, so that hundreds of them do not pile up. */
    CHECK(mapping_slot_bound(&peers_region) < 50);
    peers_step(2);
    CHECK_EQ(peers_reap(holder), 0);
}

static void charge_and_end(void)
{
    device = peers_join("1000m");
    CHECK_EQ(account_reserve(device, PEERS_MIB, ACCOUNT_BUFFER), 0);
    account_commit(device, PEERS_MIB);
}

TEST("200 processes that start at once are all served")
{
    pid_t pids[200];
    peers_begin();
    uint64_t start = clock_now_ns();
    for (int i = 0; i < 200; i++)
        pids[i] = peers_fork(charge_and_end);
    for (int i = 0; i < 200; i++)
        CHECK_EQ(peers_reap(pids[i]), 0);
    CHECK((clock_now_ns() - start) / 1000000 < 5000);
    device = peers_join("1000m");
    CHECK_EQ(peers_used(device), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
