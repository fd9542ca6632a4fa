/* SPDX-License-Identifier: Apache-2.0 */
/* First entry into a process and into a forked child; locks between threads. Built three times:
 * over this kernel, over one without MADV_WIPEONFORK (MADVISE_REFUSES), and over an emulator that
 * takes any advice and does nothing (MADVISE_SWALLOWS). */
#include "base/fork.h"

#include "base/atomic.h"
#include "base/lock.h"
#include "base/sleep.h"
#include "check.h"

#include <pthread.h>
#include <sched.h>

#define THREADS 16

#if defined(MADVISE_REFUSES) || defined(MADVISE_SWALLOWS)
#define BY_PID 1
static int advised;

/* In the C library's place. */
int madvise(void *start, size_t bytes, int advice)
{
    (void)start;
    (void)bytes;
    (void)advice;
    __atomic_fetch_add(&advised, 1, __ATOMIC_SEQ_CST);
#ifdef MADVISE_SWALLOWS
    return 0;
#else
    errno = EINVAL;
    return -1;
#endif
}
#else
#define BY_PID 0
#endif

static int resets, entered_early;
static bool reset_done;

static void reset_slowly(void)
{
    __atomic_fetch_add(&resets, 1, __ATOMIC_SEQ_CST);
    sleep_ns(5000000);
    store_release(&reset_done, true);
}

static void *enter_and_look(void *barrier)
{
    pthread_barrier_wait(barrier);
    for (int i = 0; i < 1000; i++) {
        fork_enter(reset_slowly);
        if (!load_acquire(&reset_done))
            __atomic_fetch_add(&entered_early, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static void race_to_enter(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    resets = entered_early = 0;
    reset_done = false;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, enter_and_look, &barrier) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

static void wait_for(pid_t pid)
{
    int status = -1;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
}

TEST("sixteen threads that enter at once see one reset, and it is done")
{
    race_to_enter();
    CHECK_EQ(resets, 1);
    CHECK_EQ(entered_early, 0);
}

TEST("a forked child resets once more, its own forked child again")
{
    fork_enter(reset_slowly);
    CHECK_EQ(resets, 1);
    pid_t pid = fork();
    if (pid == 0) {
        race_to_enter();
        CHECK_EQ(resets, 1);
        CHECK_EQ(entered_early, 0);
        pid = fork();
        if (pid == 0) {
            race_to_enter();
            CHECK_EQ(resets, 1);
            _exit(0);
        }
        wait_for(pid);
        _exit(0);
    }
    wait_for(pid);
    fork_enter(reset_slowly);
    CHECK_EQ(resets, 1);
}

static void *enter_alone(void *unused)
{
    (void)unused;
    fork_enter(reset_slowly);
    return NULL;
}

TEST("a child that was forked while a thread was entering is not stuck")
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, enter_alone, NULL) == 0);
    while (!load_acquire(&resets))
        sched_yield();
    pid_t pid = fork();
    if (pid == 0) {
        fork_enter(reset_slowly);
        CHECK_EQ(resets, 2);
        _exit(0);
    }
    wait_for(pid);
    pthread_join(thread, NULL);
    CHECK_EQ(resets, 1);
}

TEST("a vforked child counts as its parent")
{
    if (BY_PID)
        SKIP("process ids tell it from its parent");
    fork_enter(reset_slowly);
    pid_t pid = vfork();
    if (pid == 0) {
        fork_enter(reset_slowly);
        _exit(0);
    }
    wait_for(pid);
    CHECK_EQ(resets, 1);
}

TEST("a parent is not reset again after a vforked child, nor after a forked one that entered")
{
    fork_enter(reset_slowly);
    pid_t pid = vfork();
    if (pid == 0)
        _exit(0);
    wait_for(pid);
    pid = fork();
    if (pid == 0) {
        fork_enter(reset_slowly);
        _exit(resets != 2);
    }
    wait_for(pid);
    race_to_enter();
    CHECK_EQ(resets, 0);
}

#if BY_PID
TEST("an old kernel is asked once, not at each entry")
{
    for (int i = 0; i < 100; i++)
        fork_enter(reset_slowly);
    CHECK_EQ(resets, 1);
    CHECK(advised >= 1);
    CHECK(advised <= 2);
}
#endif

TEST("entering keeps errno")
{
    errno = 4242;
    fork_enter(reset_slowly);
    CHECK_EQ(errno, 4242);
}

static struct lock counter_lock;
static long counter;

static void *count_up(void *unused)
{
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        lock_take(&counter_lock);
        counter++;
        lock_release(&counter_lock);
    }
    return NULL;
}

TEST("a lock lets one thread in at a time and wakes who waits")
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, count_up, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(counter, 20000 * THREADS);
    CHECK_EQ(counter_lock.word, 0);
}

/* In the child: the parent holds the lock still, whose copy here is reset. */
static void take_inherited(void)
{
    lock_reset(&counter_lock);
    errno = 4242;
    lock_take(&counter_lock);
    lock_release(&counter_lock);
    sleep_ns(1000);
    CHECK_EQ(errno, 4242);
}

TEST("a lock keeps errno, and a child takes an inherited one after its reset")
{
    lock_take(&counter_lock);
    pid_t pid = fork();
    if (pid == 0) {
        take_inherited();
        _exit(0);
    }
    wait_for(pid);
    lock_release(&counter_lock);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
