/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of one process over one account, and peers that are refused at the same time: what
 * test/model/account.pml leaves out, and what it found. Also run under sanitizers. */
#include "account/account.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/sleep.h"
#include "check.h"
#include "peers.h"
#include "region/slot.h"

#include <pthread.h>

#define LIMIT "1000m"
#define THREADS 8
#define ROUNDS 300
#ifdef __SANITIZE_THREAD__ /* each process has a thread of the sanitizer's, and starts slowly */
#define HOLDERS 15
#define STEPS 40
#else
#define HOLDERS 150
#define STEPS 400 /* two for each death */
#endif

static unsigned device;
static int stop, wrongly_refused, served;

static int reserve(uint64_t mib)
{
    return account_reserve(device, mib * PEERS_MIB, ACCOUNT_BUFFER);
}

static void give_back(uint64_t mib)
{
    account_commit(device, mib * PEERS_MIB);
    account_release(device, mib * PEERS_MIB, ACCOUNT_BUFFER);
}

static void run_threads(void *(*body)(void *), int count)
{
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < count; i++)
        REQUIRE(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static void *charge_and_look(void *number)
{
    static struct account_process processes[THREADS][ACCOUNT_PROCESSES_MAX];
    int thread = (int)(intptr_t)number;
    struct account_view view;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t mib = 1 + (uint64_t)(thread + i) % 7;
        CHECK_EQ(reserve(mib), 0);
        CHECK_EQ(account_check(device, PEERS_MIB), 0);
        account_add(device, 1, ACCOUNT_CONTEXT);
        account_view(device, &view);
        CHECK(view.used_bytes >= mib * PEERS_MIB);
        CHECK(account_processes(device, processes[thread]) >= 1);
        CHECK(account_own_bytes(device, ACCOUNT_BUFFER) >= mib * PEERS_MIB);
        account_release(device, 1, ACCOUNT_CONTEXT);
        give_back(mib);
    }
    return NULL;
}

TEST("eight threads charge, look and give back, and nothing is left")
{
    peers_begin();
    device = peers_join(LIMIT);
    run_threads(charge_and_look, THREADS);
    CHECK_EQ(account_own_bytes(device, ACCOUNT_KINDS), 0);
    CHECK_EQ(peers_used(device), 0);
}

static void hold_500(void)
{
    device = peers_join(LIMIT);
    REQUIRE(reserve(500) == 0);
    account_commit(device, 500 * PEERS_MIB);
    peers_step(1);
    peers_wait(2);
}

/* The first asks for what its process may hold, but not beside the peer. */
static void *ask_for_600_or_400(void *number)
{
    if (number) {
        while (!load_acquire(&stop))
            CHECK_EQ(reserve(600), -ENOMEM);
        return NULL;
    }
    for (int i = 0; i < 20 * ROUNDS; i++) {
        if (account_check(device, 400 * PEERS_MIB) != 0)
            add_seq_cst(&wrongly_refused, 1);
        if (reserve(400) == 0)
            give_back(400);
        else
            add_seq_cst(&wrongly_refused, 1);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    return NULL;
}

TEST("what one thread is refused is not in the way of what another asks for")
{
    peers_begin();
    pid_t pid = peers_fork(hold_500);
    peers_wait(1);
    device = peers_join(LIMIT);
    run_threads(ask_for_600_or_400, 2);
    CHECK_EQ(wrongly_refused, 0);
    CHECK_EQ(peers_used(device), 500 * PEERS_MIB);
    peers_step(2);
    CHECK_EQ(peers_reap(pid), 0);
}

/* What a peer does that takes us for dead. */
static void take_slot_away(struct region *seen)
{
    int slot = peers_slot_of(seen, getpid());
    if (slot < 0)
        return;
    uint64_t *state = &seen->shared->slots[slot].state, word = load_acquire(state);
    (void)swap_seq_cst(state, word, word & ~(uint64_t)0xffffffff);
}

static void *charge_and_keep(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        REQUIRE(reserve(1) == 0);
        give_back(1);
        account_add(device, 1, ACCOUNT_MODULE);
    }
    add_seq_cst(&served, 1);
    return NULL;
}

static void *take_away_until_served(void *seen)
{
    while (load_acquire(&served) < THREADS) {
        take_slot_away(seen);
        sleep_ns(100000);
    }
    return NULL;
}

TEST("a slot that is taken away again and again is filled again with all that is held")
{
    pthread_t taker;
    peers_begin();
    device = peers_join(LIMIT);
    static struct region seen;
    peers_look(&seen);
    REQUIRE(pthread_create(&taker, NULL, take_away_until_served, &seen) == 0);
    run_threads(charge_and_keep, THREADS);
    pthread_join(taker, NULL);
    account_add(device, 1, ACCOUNT_MODULE);
    CHECK_EQ(account_own_bytes(device, ACCOUNT_KINDS), THREADS * ROUNDS + 1);
    CHECK_EQ(peers_used(device), THREADS * ROUNDS + 1);
}

static void hold_1(void)
{
    device = peers_join(LIMIT);
    REQUIRE(reserve(1) == 0);
    account_commit(device, PEERS_MIB);
    add_seq_cst(&peers->number[2], 1);
    for (;;)
        sleep_ns(1000000000);
}

static void hold_850(void)
{
    device = peers_join(LIMIT);
    REQUIRE(reserve(850) == 0);
    account_commit(device, 850 * PEERS_MIB);
    peers_step((int)peers->number[0] + 1);
    for (;;)
        sleep_ns(1000000000);
}

/* Each time that the holder has been killed, all ask at once for what it held. */
static void ask_after_each_death(void)
{
    device = peers_join(LIMIT);
    for (int round = 2; round <= STEPS; round += 2) {
        peers_wait(round);
        if (CHECK_EQ(reserve(100), 0))
            give_back(100);
        add_seq_cst(&peers->number[1], 1);
    }
}

/* The living that are looked at first give the askers time to overtake each other. */
TEST("what a dead process held is given to all who ask for it at once, whoever finds it dead")
{
    pid_t holders[HOLDERS], askers[4];
    peers_begin();
    for (int i = 0; i < HOLDERS; i++) { /* in turn: many at once outwait the file's lock */
        holders[i] = peers_fork(hold_1);
        while (load_acquire(&peers->number[2]) <= i && !check_shared->failures)
            sleep_ns(100000);
    }
    for (int i = 0; i < 4; i++)
        askers[i] = peers_fork(ask_after_each_death);
    for (int round = 0; round < STEPS; round += 2) {
        peers->number[0] = round;
        pid_t dying = peers_fork(hold_850);
        peers_wait(round + 1);
        peers_kill(dying);
        peers_step(round + 2);
        while (load_acquire(&peers->number[1]) < 2 * (round + 2) && !check_shared->failures)
            sleep_ns(100000);
    }
    for (int i = 0; i < 4; i++)
        CHECK_EQ(peers_reap(askers[i]), 0);
    for (int i = 0; i < HOLDERS; i++)
        peers_kill(holders[i]);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
