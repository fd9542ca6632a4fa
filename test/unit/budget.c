/* SPDX-License-Identifier: Apache-2.0 */
/* The budget's rules on a simulated clock: what is granted, saved, owed and shared, and that
 * threads and processes that race on the words lose and invent nothing. */
#include "compute/budget.h"

#include "base/atomic.h"
#include "check.h"

#include <pthread.h>

#define MS 1000000ll
#define SECOND (1000 * MS)
#define START 5000000000000ull /* so long the machine was up */
#define THREADS 4

static struct vgpu_compute words;

/* The share of 100 ms, and of a second what is beyond the share. */
static int64_t burst_of(unsigned percent)
{
    return (int64_t)(percent < 91 ? percent : 10 * (100 - percent)) * MS;
}

/* The words of a container that ran before, with nothing saved and nothing owed. */
static void begin(unsigned percent)
{
    words = (struct vgpu_compute){0};
    (void)budget_refill(&words, percent, START);
    budget_charge(&words, budget_balance(&words));
}

/* ---- refill ---- */

TEST("a container that never ran has its burst saved")
{
    words = (struct vgpu_compute){0};
    CHECK_EQ(budget_refill(&words, 40, START), burst_of(40));
}

TEST(
    "of a high limit's burst a container that never ran has what is used up in a tenth of a second")
{
    words = (struct vgpu_compute){0};
    CHECK_EQ(budget_refill(&words, 95, START), burst_of(5));
}

TEST("a limit grants its share of the time that passed")
{
    for (unsigned percent = 1; percent < 100; percent++) {
        begin(percent);
        CHECK_EQ(budget_refill(&words, percent, START + 10 * MS), (int64_t)percent * MS / 10);
        CHECK_EQ(budget_balance(&words), (int64_t)percent * MS / 10);
    }
}

TEST("many short looks grant what one long look does")
{
    begin(33);
    budget_charge(&words, 10 * SECOND / 4);
    for (uint64_t t = 0; t <= (uint64_t)SECOND; t += 7001)
        (void)budget_refill(&words, 33, START + t);
    (void)budget_refill(&words, 33, START + SECOND + MS);
    int64_t granted = budget_balance(&words) + 10 * SECOND / 4;
    CHECK(granted <= 1001 * MS * 33 / 100);
    CHECK(granted > 1001 * MS * 33 / 100 - 20000);
}

TEST("no more than the burst is saved, however long nothing ran")
{
    for (unsigned percent = 1; percent < 100; percent += 7) {
        begin(percent);
        for (int second = 1; second < 100; second++)
            CHECK(budget_refill(&words, percent, START + second * SECOND) <= burst_of(percent));
        CHECK_EQ(budget_balance(&words), burst_of(percent));
    }
}

TEST("what is overdrawn is carried and paid back at the limit's rate")
{
    begin(50);
    budget_charge(&words, 400 * MS);
    CHECK_EQ(budget_refill(&words, 50, START + 600 * MS), -100 * MS);
    CHECK_EQ(budget_refill(&words, 50, START + 900 * MS), 50 * MS);
}

TEST("what is owed is bounded")
{
    begin(1);
    budget_charge(&words, 1000 * SECOND);
    int64_t balance = budget_refill(&words, 1, START + MS);
    CHECK(balance >= -(int64_t)BUDGET_DEBT_NS && balance <= -(int64_t)BUDGET_DEBT_NS + MS / 100);
    CHECK_EQ(budget_balance(&words), balance);
}

TEST("what is given back can be used")
{
    begin(50);
    budget_charge(&words, 30 * MS);
    budget_charge(&words, -20 * MS);
    CHECK_EQ(budget_balance(&words), -10 * MS);
    CHECK_EQ(budget_refill(&words, 50, START + 22 * MS), MS);
}

TEST("a limit that is lowered takes away what was saved above its own burst")
{
    begin(90);
    (void)budget_refill(&words, 90, START + SECOND);
    CHECK_EQ(budget_refill(&words, 10, START + SECOND + MS), burst_of(10));
}

TEST("a limit that is raised grants at its own rate from then on, debts stay")
{
    begin(10);
    budget_charge(&words, 100 * MS);
    CHECK_EQ(budget_refill(&words, 10, START + 100 * MS), -90 * MS);
    CHECK_EQ(budget_refill(&words, 80, START + 200 * MS), -10 * MS);
}

/* ---- clocks ---- */

TEST("a clock that went back grants nothing, and goes on granting from there")
{
    begin(50);
    budget_charge(&words, 100 * MS);
    CHECK_EQ(budget_refill(&words, 50, START - 3600 * SECOND), -100 * MS);
    (void)budget_refill(&words, 50, START - 3600 * SECOND + 10 * MS);
    CHECK_EQ(budget_refill(&words, 50, START - 3600 * SECOND + 20 * MS), -90 * MS);
}

TEST("a clock that began anew at zero grants from there")
{
    begin(50);
    budget_charge(&words, 100 * MS);
    (void)budget_refill(&words, 50, 5 * MS);
    (void)budget_refill(&words, 50, 15 * MS);
    CHECK_EQ(budget_refill(&words, 50, 25 * MS), -90 * MS);
}

TEST("a clock that jumps ahead grants what may be saved at most")
{
    begin(20);
    budget_charge(&words, 2 * SECOND);
    CHECK(budget_refill(&words, 20, START + 3600 * SECOND) <= burst_of(20));
    CHECK(budget_refill(&words, 20, INT64_MAX) <= burst_of(20));
}

TEST("a container that nobody looked at pays back all the same")
{
    begin(50);
    budget_charge(&words, 2 * SECOND);
    CHECK_EQ(budget_refill(&words, 50, START + 3 * SECOND), -SECOND / 2);
    CHECK_EQ(budget_refill(&words, 50, START + 10 * SECOND), burst_of(50));
}

TEST("a process that comes late with its time does not grant that time again")
{
    begin(50);
    budget_charge(&words, SECOND);
    for (uint64_t t = 10; t <= 1000; t += 10) {
        (void)budget_refill(&words, 50, START + t * MS);
        (void)budget_refill(&words, 50, START + (t - 9) * MS);
    }
    CHECK_EQ(budget_refill(&words, 50, START + 1000 * MS), -500 * MS);
}

/* ---- races ---- */

static struct race {
    struct vgpu_compute words;
    uint64_t clock_ns;
    uint64_t taken;
    uint32_t ready;
} * race;

static void race_begin(void)
{
    race = mmap(NULL, sizeof(*race), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(race != MAP_FAILED);
    race->words.refilled_ns = race->clock_ns = START;
}

static void race_start(void)
{
    (void)add_seq_cst(&race->ready, 1u);
    while (load_acquire(&race->ready) % THREADS)
        ;
}

static void run_threads(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void run_processes(void *(*body)(void *))
{
    pid_t children[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) {
        children[i] = fork();
        REQUIRE(children[i] >= 0);
        if (children[i] == 0) {
            (void)body((void *)i);
            _exit(0);
        }
    }
    for (int i = 0; i < THREADS; i++) {
        int status;
        CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
    }
}

static void *look_often(void *number)
{
    (void)number;
    race_start();
    for (int i = 0; i < 50000; i++)
        (void)budget_refill(&race->words, 50, add_seq_cst(&race->clock_ns, 5000));
    return NULL;
}

static void check_granted(void)
{
    const int64_t passed = THREADS * 50000ll * 5000;
    (void)budget_refill(&race->words, 50, START + (uint64_t)passed + MS);
    int64_t granted = budget_balance(&race->words) + SECOND;
    CHECK(granted <= (passed + MS) / 2);
    CHECK(granted >= (passed + MS) / 2 - THREADS * 50000);
}

TEST("threads that look at once are granted the time that passed, once")
{
    race_begin();
    budget_charge(&race->words, SECOND);
    run_threads(look_often);
    check_granted();
}

TEST("processes that look at once are granted the time that passed, once")
{
    race_begin();
    budget_charge(&race->words, SECOND);
    run_processes(look_often);
    check_granted();
}

static void *charge_often(void *number)
{
    race_start();
    for (int i = 0; i < 100000; i++) {
        budget_charge(&race->words, 1000 + (intptr_t)number);
        if (i % 2)
            budget_charge(&race->words, -500);
    }
    return NULL;
}

TEST("charges of threads at once are all taken")
{
    race_begin();
    run_threads(charge_often);
    CHECK_EQ(budget_balance(&race->words), -(THREADS * 75000000ll + 6 * 100000));
}

TEST("with charges and looks at once the saved time stays within the burst and a step")
{
    race_begin();
    for (int i = 0; i < 20000; i++) {
        int64_t balance = budget_refill(&race->words, 50, START + (uint64_t)i * 60000);
        CHECK(balance <= burst_of(50));
    }
    run_threads(look_often);
    CHECK(budget_balance(&race->words) <= burst_of(50) + THREADS * 50000 * 5000ll / 2);
    CHECK(budget_refill(&race->words, 50, load_relaxed(&race->clock_ns) + 3 * SECOND) <=
          burst_of(50));
}

/* Each thread enters each span of a ring's half, in an order of its own. */
static void *occupy_ring(void *number)
{
    const unsigned spans = VGPU_COMPUTE_SPANS / 2, step = 2 * (unsigned)(intptr_t)number + 3;
    uint64_t taken = 0;
    race_start();
    for (unsigned i = 0; i < spans; i++) {
        uint64_t from = (uint64_t)(i * step % spans) * VGPU_COMPUTE_SPAN_NS;
        taken += budget_occupy(&race->words, from, from + VGPU_COMPUTE_SPAN_NS, 20000);
    }
    (void)add_seq_cst(&race->taken, taken);
    return NULL;
}

TEST("threads that were busy at once are told, together, the time that they were busy")
{
    race_begin();
    run_threads(occupy_ring);
    CHECK_EQ(race->taken, VGPU_COMPUTE_SPANS / 2 * (uint64_t)VGPU_COMPUTE_SPAN_NS);
    CHECK_EQ(race->words.busy_ns, race->taken);
}

TEST("processes that were busy at once are told, together, the time that they were busy")
{
    race_begin();
    run_processes(occupy_ring);
    CHECK_EQ(race->taken, VGPU_COMPUTE_SPANS / 2 * (uint64_t)VGPU_COMPUTE_SPAN_NS);
    CHECK_EQ(race->words.busy_ns, race->taken);
}

/* ---- hostile words ---- */

static const int64_t hostile[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX};
#define HOSTILE (sizeof(hostile) / sizeof(hostile[0]))

TEST("words of any value are brought within the bounds by two looks")
{
    for (unsigned i = 0; i < HOSTILE * HOSTILE * HOSTILE; i++) {
        words = (struct vgpu_compute){.granted_ns = (uint64_t)hostile[i % HOSTILE],
            .charged_ns = (uint64_t)hostile[i / HOSTILE % HOSTILE],
            .refilled_ns = (uint64_t)hostile[i / HOSTILE / HOSTILE]};
        (void)budget_refill(&words, 50, START);
        int64_t balance = budget_refill(&words, 50, START + MS);
        CHECK(balance <= burst_of(50));
        CHECK(balance >= -(int64_t)BUDGET_DEBT_NS);
        CHECK_EQ(balance, budget_balance(&words));
    }
}

TEST("who waits for each launch is looked at less and less while it has plenty")
{
    const int64_t saved = budget_burst_ns(50);
    uint32_t quantum = budget_quantum_ns(saved, 50, 1, true, 0);
    CHECK_EQ(quantum, BUDGET_QUANTUM_PLENTY_NS);
    for (int i = 0; i < 8; i++)
        quantum = budget_quantum_ns(saved, 50, 1, true, quantum);
    CHECK_EQ(quantum, BUDGET_QUANTUM_IDLE_NS);
    CHECK_EQ(budget_quantum_ns(saved, 50, 1, false, quantum), BUDGET_QUANTUM_PLENTY_NS);
    CHECK_EQ(budget_quantum_ns(saved / 2, 50, 1, true, quantum), BUDGET_QUANTUM_NS);
    /* Ten processes may take half of what is saved by estimate, together. */
    CHECK_EQ(budget_quantum_ns(saved, 50, 10, true, quantum), saved / 20);
    CHECK_EQ(budget_quantum_ns(INT64_MAX, 50, 0, true, UINT32_MAX), BUDGET_QUANTUM_IDLE_NS);
    CHECK_EQ(budget_quantum_ns(INT64_MIN, 50, 1, true, quantum), BUDGET_QUANTUM_NS);
}

TEST("a balance of any value makes a wait and an answer")
{
    const struct budget_share share = {.balance_ns = INT64_MIN, .waits = true};
    for (unsigned i = 0; i < HOSTILE; i++) {
        bool open = hostile[i] > 0;
        CHECK_EQ(budget_wait_ns(hostile[i], 50) == 0, open);
        CHECK_EQ(budget_admits(hostile[i], 50, &share, 1, 0), open);
        CHECK_EQ(budget_admits(hostile[i], 50, &share, 2, 0), hostile[i] > BUDGET_SURPLUS_NS);
    }
}

/* ---- waits ---- */

TEST("after its wait a closed gate has GPU time")
{
    for (unsigned percent = 1; percent < 100; percent++) {
        begin(percent);
        budget_charge(&words, 123 * MS);
        uint64_t wait = budget_wait_ns(budget_balance(&words), percent);
        CHECK(wait > 0);
        for (uint64_t t = 0; t + SECOND / 2 < wait; t += SECOND / 4)
            CHECK(budget_refill(&words, percent, START + t) <= 0);
        int64_t balance = budget_refill(&words, percent, START + wait);
        /* What cannot be saved is not waited for. */
        int64_t open = BUDGET_OPEN_NS < burst_of(percent) ? BUDGET_OPEN_NS : burst_of(percent);
        CHECK(balance > 0 && balance <= open);
        CHECK(balance >= open - 1000);
    }
}

TEST("several streams wait for more, but for no more than can be saved")
{
    for (unsigned percent = 1; percent < 100; percent++) {
        int64_t open = budget_open_streams_ns(percent);
        CHECK(open <= burst_of(percent) / 2);
        CHECK(open == BUDGET_OPEN_STREAMS_NS || percent < 8);
        CHECK_EQ(budget_fill_ns(open, open, percent), 0);
        uint64_t wait = budget_fill_ns(open - 10 * MS, open, percent);
        CHECK_EQ(wait, 1000 * MS / percent);
    }
}

TEST("without a limit nothing waits")
{
    CHECK_EQ(budget_fill_ns(-SECOND, BUDGET_OPEN_STREAMS_NS, 0), 0);
    CHECK_EQ(budget_wait_ns(-SECOND, 0), 0);
    CHECK_EQ(budget_wait_ns(-SECOND, 100), 0);
    CHECK_EQ(budget_wait_ns(1, 50), 0);
}

/* ---- shares ---- */

/* What all processes took since the last look. */
static void take_parts(struct budget_share *share, int64_t gpu_ns, unsigned active)
{
    words.parts_ns += (uint64_t)gpu_ns;
    budget_share_refill(share, &words, 60, active);
}

TEST("an equal part is an equal part of what all took, debts are carried")
{
    struct budget_share share = {0};
    words = (struct vgpu_compute){.parts_ns = 77 * SECOND};
    take_parts(&share, 5 * SECOND, 3);
    CHECK_EQ(share.balance_ns, 0);
    share.balance_ns = -10 * MS;
    take_parts(&share, 30 * MS, 3);
    CHECK_EQ(share.balance_ns, 0);
    take_parts(&share, 6 * MS, 0);
    CHECK_EQ(share.balance_ns, 6 * MS);
    take_parts(&share, -4 * MS, 2);
    CHECK_EQ(share.balance_ns, 4 * MS);
}

TEST("among all that ask, what one takes is less for it and more for the others")
{
    struct budget_share one = {0}, other = {0};
    words = (struct vgpu_compute){0};
    budget_share_refill(&one, &words, 60, 2);
    budget_share_refill(&other, &words, 60, 2);
    budget_share_charge(&one, &words, 60, 8 * MS);
    const struct budget_done longer = {.busy_ns = 12 * MS, .new_ns = 12 * MS, .work_ns = 8 * MS};
    budget_share_settle(&one, &words, 1, &longer);
    budget_share_refill(&one, &words, 60, 2);
    budget_share_refill(&other, &words, 60, 2);
    CHECK_EQ(one.balance_ns, -6 * MS);
    CHECK_EQ(other.balance_ns, 6 * MS);
}

TEST("what a process took by one long kernel it waits for while others ask")
{
    struct budget_share share = {0};
    words = (struct vgpu_compute){0};
    take_parts(&share, 0, 2);
    share.balance_ns = -500 * MS;
    for (unsigned t = 1; t <= 100; t++)
        take_parts(&share, 5 * MS, 2);
    CHECK_EQ(share.balance_ns, -250 * MS);
    CHECK(!budget_admits(BUDGET_SURPLUS_NS, 50, &share, 2, 0));
}

TEST("a part that was to be had and is not taken goes to the others, one that was not is kept")
{
    struct budget_share share = {0};
    words = (struct vgpu_compute){.granted_ns = 5 * MS};
    take_parts(&share, 0, 2);
    take_parts(&share, 80 * MS, 2);
    CHECK_EQ(share.balance_ns, 30 * MS);
    CHECK_EQ(words.parts_ns, 90 * MS);
    words.charged_ns = 5 * MS;
    take_parts(&share, 80 * MS, 2);
    CHECK_EQ(words.parts_ns, 170 * MS);
}

TEST("words that were made anew take no more from a part than a burst")
{
    struct budget_share share = {0};
    words = (struct vgpu_compute){.parts_ns = 3600 * SECOND};
    take_parts(&share, 0, 1);
    words.parts_ns = 0;
    take_parts(&share, 0, 1);
    CHECK_EQ(share.balance_ns, -60 * MS);
    take_parts(&share, 70 * MS, 1);
    CHECK_EQ(share.balance_ns, 10 * MS);
}

TEST("alone, a process may take all of its container's time")
{
    const struct budget_share share = {.balance_ns = -SECOND, .waits = true};
    CHECK(budget_admits(1, 50, &share, 0, SECOND));
    CHECK(budget_admits(1, 50, &share, 1, SECOND));
    CHECK(!budget_admits(0, 50, &share, 1, 0));
}

TEST("beside others, who is ahead of them goes on for a while, then waits until it is behind")
{
    struct budget_share share = {0};
    words = (struct vgpu_compute){0};
    take_parts(&share, 0, 2);
    budget_share_charge(&share, &words, 60, BUDGET_AHEAD_NS - MS);
    CHECK(budget_admits(1, 60, &share, 2, MS));
    budget_share_charge(&share, &words, 60, MS);
    CHECK(!budget_admits(1, 60, &share, 2, MS));
    words.parts_ns = share.parts_ns;
    take_parts(&share, 2 * BUDGET_AHEAD_NS, 2);
    CHECK_EQ(share.balance_ns, 0);
    CHECK(!budget_admits(1, 60, &share, 2, MS));
    take_parts(&share, 2, 2);
    CHECK(budget_admits(1, 60, &share, 2, MS));
}

TEST("who waits for the others takes what is left over")
{
    const struct budget_share spent = {.waits = true}, held = {.waits = false};
    CHECK(budget_admits(1, 50, &held, 2, SECOND));
    CHECK(!budget_admits(0, 50, &held, 2, 0));
    CHECK(!budget_admits(BUDGET_SURPLUS_NS, 50, &spent, 2, 0));
    CHECK(budget_admits(BUDGET_SURPLUS_NS + 1, 50, &spent, 2, 0));
    CHECK(!budget_admits(BUDGET_SURPLUS_NS + MS, 50, &spent, 2, MS));
    CHECK(budget_admits(BUDGET_SURPLUS_NS + MS + 1, 50, &spent, 2, MS));
}

TEST("what takes longer than may be saved is admitted from what nobody else wants")
{
    const struct budget_share spent = {.balance_ns = -SECOND, .waits = true};
    for (unsigned percent = 1; percent < 100; percent++) {
        CHECK(budget_admits(burst_of(percent), percent, &spent, 2, 3 * SECOND));
        CHECK(!budget_admits(burst_of(percent) / 2, percent, &spent, 2, 3 * SECOND));
        CHECK(budget_admits(burst_of(percent), percent, &spent, 2, 0));
    }
}

TEST("of what is left over, no more than a burst is held against its taker")
{
    struct budget_share share = {.balance_ns = MS};
    budget_share_charge(&share, &words, 50, 60 * MS);
    CHECK_EQ(share.balance_ns, -59 * MS);
    budget_share_charge(&share, &words, 50, 30 * MS);
    CHECK_EQ(share.balance_ns, -59 * MS);
    share.balance_ns = 0;
    budget_share_charge(&share, &words, 50, 60 * MS);
    CHECK_EQ(share.balance_ns, -50 * MS);
    budget_share_charge(&share, &words, 50, -5 * MS);
    CHECK_EQ(share.balance_ns, -45 * MS);
}

TEST("what was saved can be given up, and what is owed cannot")
{
    words = (struct vgpu_compute){.granted_ns = 70 * MS, .charged_ns = 30 * MS};
    budget_forfeit(&words);
    CHECK_EQ(budget_balance(&words), 0);
    CHECK_EQ(words.charged_ns, 30 * MS); /* what it took is what it took */
    budget_charge(&words, 5 * MS);
    budget_forfeit(&words);
    CHECK_EQ(budget_balance(&words), -5 * MS);
}

static int64_t settled(bool believes, unsigned active, struct budget_done done)
{
    struct budget_share share = {.balance_ns = -(int64_t)done.work_ns, .believes = believes};
    words.parts_ns = done.work_ns;
    budget_share_settle(&share, &words, active, &done);
    CHECK_EQ(words.parts_ns, (uint64_t)-share.balance_ns);
    return -share.balance_ns;
}

TEST("a part pays what its work took, which among several is between an equal part and all of it")
{
    CHECK_EQ(settled(false, 1, (struct budget_done){10, 10, 3}), 10);
    CHECK_EQ(settled(false, 1, (struct budget_done){10, 10, 30}), 10);
    CHECK_EQ(settled(false, 2, (struct budget_done){10, 0, 7}), 7);
    CHECK_EQ(settled(false, 2, (struct budget_done){10, 10, 7}), 7);
    CHECK_EQ(settled(false, 2, (struct budget_done){10, 10, 30}), 10);
    CHECK_EQ(settled(false, 2, (struct budget_done){10, 10, 1}), 10);
    CHECK_EQ(settled(false, 2, (struct budget_done){10, 0, 1}), 5);
}

TEST("among several an estimate is believed while all together make up for what was measured")
{
    CHECK_EQ(settled(true, 2, (struct budget_done){10, 10, 1}), 1);
    CHECK_EQ(settled(true, 2, (struct budget_done){10, 10, 30}), 10);
    CHECK_EQ(settled(true, 1, (struct budget_done){10, 10, 1}), 10);
    CHECK_EQ(settled(true, 2, (struct budget_done){10, 0, 0}), 5);
    struct budget_share share = {0};
    words = (struct vgpu_compute){0};
    for (unsigned percent = 50; percent < 100; percent += 10) {
        words.busy_ns += 100 * MS;
        take_parts(&share, percent * MS, 2);
        CHECK_EQ(share.believes, percent > 66);
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
