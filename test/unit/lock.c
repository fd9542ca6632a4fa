/* SPDX-License-Identifier: Apache-2.0 */
/* Locks between threads, and one that a signal's handler finds held by its own thread. */
#include "base/lock.h"

#include "base/atomic.h"
#include "base/sleep.h"
#include "check.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 20000

static struct lock lock;
static uint64_t sum;

/* As often as one likes, which the compiler's analysis does not follow. */
static void take_it(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_take(&lock);
}

static void give_it_back(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_release(&lock);
}

static bool is_to_be_had(void)
{
    bool taken = lock_try(&lock);
    if (taken)
        lock_release(&lock);
    return taken;
}

static void *add_many(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        lock_take(&lock);
        sum = sum + 1;
        lock_release(&lock);
    }
    return NULL;
}

static void add_by_threads(void)
{
    pthread_t threads[THREADS];
    sum = 0;
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, add_many, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(sum, THREADS * ROUNDS);
}

TEST("one thread at a time has a lock")
{
    add_by_threads();
    take_it();
    CHECK(!is_to_be_had());
    give_it_back();
    CHECK(is_to_be_had());
    add_by_threads();
}

enum way { TO_THE_END, BY_BREAK, BY_CONTINUE, BY_RETURN };

static int leave_locked(enum way way)
{
    for (int i = 0; i < 2; i++) {
        LOCKED(lock) {
            CHECK(!is_to_be_had());
            if (way == BY_BREAK)
                break;
            if (way == BY_CONTINUE)
                continue;
            if (way == BY_RETURN)
                return 1;
            sum = sum + 1;
        }
        CHECK(is_to_be_had());
    }
    return 0;
}

static int leave_locked_to_end(enum way way)
{
    LOCKED_TO_END(lock);
    CHECK(!is_to_be_had());
    if (way == BY_RETURN)
        return 1;
    sum = sum + 1;
    return 0;
}

TEST("a lock held for a statement or a function is released however that is left")
{
    sum = 0;
    for (int way = TO_THE_END; way <= BY_RETURN; way++) {
        CHECK_EQ(leave_locked((enum way)way), way == BY_RETURN);
        CHECK(is_to_be_had());
    }
    CHECK_EQ(sum, 2);
    CHECK_EQ(leave_locked_to_end(BY_RETURN), 1);
    CHECK(is_to_be_had());
    CHECK_EQ(leave_locked_to_end(TO_THE_END), 0);
    CHECK(is_to_be_had());
    CHECK_EQ(sum, 3);
}

static bool has_it;

static void *take(void *unused)
{
    (void)unused;
    errno = EDOM;
    CHECK(!is_to_be_had());
    lock_take(&lock);
    CHECK_EQ(errno, EDOM);
    store_release(&has_it, true);
    lock_release(&lock);
    return NULL;
}

TEST("whose thread has it already has it at once, and others after its last release")
{
    pthread_t thread;
    take_it();
    take_it();
    take_it();
    REQUIRE(pthread_create(&thread, NULL, take, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        usleep(20000);
        CHECK(!load_acquire(&has_it));
        give_it_back();
    }
    pthread_join(thread, NULL);
    CHECK(load_acquire(&has_it));
    CHECK(is_to_be_had());
}

static unsigned handled;

static void add_in_handler(int number)
{
    (void)number;
    lock_take(&lock);
    sum = sum + 1;
    lock_release(&lock);
    handled++;
}

/* Signals come between any two instructions of the one thread that handles them. */
TEST("a signal's handler has the lock that its thread was about to take, had or gave back")
{
    const struct itimerval often = {.it_interval = {0, 50}, .it_value = {0, 50}};
    const struct itimerval never = {.it_value = {0, 0}};
    signal(SIGALRM, add_in_handler);
    REQUIRE(setitimer(ITIMER_REAL, &often, NULL) == 0);
    uint64_t taken = 0;
    while (handled < 2000) {
        lock_take(&lock);
        lock_release(&lock);
        taken++;
    }
    REQUIRE(setitimer(ITIMER_REAL, &never, NULL) == 0);
    int state;
    CHECK(taken > 0);
    CHECK(is_to_be_had());
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0);
    CHECK_EQ(state, PTHREAD_CANCEL_ENABLE);
    add_by_threads();
}

static bool is_cancelled, went_on, ended;

static void *wait_locked(void *unused)
{
    (void)unused;
    lock_take(&lock);
    store_release(&has_it, true);
    while (!load_acquire(&is_cancelled))
        usleep(1000);
    CHECK(!is_to_be_had());
    pthread_testcancel();
    went_on = true;
    lock_release(&lock);
    pthread_testcancel();
    ended = true;
    return NULL;
}

TEST("a thread is not cancelled at a call it makes under a lock, but afterwards")
{
    pthread_t thread;
    void *result;
    has_it = false;
    REQUIRE(pthread_create(&thread, NULL, wait_locked, NULL) == 0);
    while (!load_acquire(&has_it))
        usleep(1000);
    CHECK_EQ(pthread_cancel(thread), 0);
    store_release(&is_cancelled, true);
    pthread_join(thread, &result);
    CHECK(result == PTHREAD_CANCELED && went_on && !ended);
    CHECK(is_to_be_had());
}

static void end_here(int number)
{
    (void)number;
    lock_release_all();
    for (;;)
        pause();
}

static void set_user_signal(int how)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(how, &signals, NULL);
}

/* The handler may stop the thread for good, but only while it takes or has the lock: where a thread
 * starts or ends it can be within an allocator's lock, which others need. */
static void *wait_for_lock(void *unused)
{
    set_user_signal(SIG_UNBLOCK);
    take_it();
    give_it_back();
    set_user_signal(SIG_BLOCK);
    store_release(&has_it, true);
    return unused;
}

__attribute__((noreturn)) static void *wait_for_lock_and_stay(void *unused)
{
    (void)wait_for_lock(unused);
    for (;;)
        pause(); /* the signal may still come, for which the thread must be there */
}

/* The thread that waits first is woken, and interrupted before it has the lock. */
TEST("who ends the process in a signal's handler, just woken for a lock, leaves it to the next")
{
    set_user_signal(SIG_BLOCK);
    signal(SIGUSR1, end_here);
    for (int i = 0; i < 20; i++) {
        pthread_t first, second;
        store_release(&has_it, false);
        take_it();
        REQUIRE(pthread_create(&first, NULL, wait_for_lock_and_stay, NULL) == 0);
        usleep(5000);
        REQUIRE(pthread_create(&second, NULL, wait_for_lock, NULL) == 0);
        usleep(5000);
        give_it_back();
        CHECK_EQ(pthread_kill(first, SIGUSR1), 0);
        for (int ms = 0; ms < 10000 && !load_acquire(&has_it); ms++)
            usleep(1000);
        if (!CHECK(load_acquire(&has_it)))
            break;
        pthread_join(second, NULL);
        CHECK(is_to_be_had());
    }
}

/* False where no filter can be set. Not glibc's own ways to wait, which it cannot be without. */
static bool refuse_private_waits(unsigned error)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_WAIT_PRIVATE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {sizeof(program) / sizeof(program[0]), program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

static void *wait_for_it(void *unused)
{
    struct timespec used;
    (void)unused;
    lock_take(&lock);
    lock_release(&lock);
    REQUIRE(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0);
    sum = (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
    return NULL;
}

TEST("where a system-call filter lets nobody wait on a word, who waits for a lock gets it, and "
     "sleeps")
{
    static const unsigned errors[] = {EPERM, EACCES, ENOSYS};
    pthread_t thread;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (!refuse_private_waits(errors[i]))
            SKIP("no system-call filter can be set here");
        lock_take(&lock);
        REQUIRE(pthread_create(&thread, NULL, wait_for_it, NULL) == 0);
        sleep_ns(500000000);
        lock_release(&lock);
        pthread_join(thread, NULL);
        CHECK(sum < 250000000); /* of 500 ms, all of which one that does not sleep would use */
    }
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
