/* SPDX-License-Identifier: Apache-2.0 */
/* Futex lock, waits and sleeps by system call. */
#include "base/lock.h"

#include "base/atomic.h"
#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct timespec timespec_of_ns(uint64_t ns)
{
    return (struct timespec){
        .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
}

static void futex_wake(uint32_t *word, int waiters)
{
    int errno_kept = errno;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, waiters, NULL, NULL, 0);
    errno = errno_kept;
}

/* Between looks at a word on which the kernel lets nobody sleep: at a lock, which is held for a
 * moment, and at others. */
#define LOCK_PAUSE_NS 50000ull
#define WORD_PAUSE_NS 1000000ull

static bool sleep_on(uint32_t *word, uint32_t value, bool shared, const struct timespec *time)
{
    int operation = shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE;
    return syscall(SYS_futex, word, operation, value, time, NULL, 0) == 0 || errno == EAGAIN ||
           errno == EINTR || errno == ETIMEDOUT;
}

void word_wait(uint32_t *word, uint32_t value)
{
    int errno_kept = errno;
    if (!sleep_on(word, value, false, NULL))
        sleep_ns(WORD_PAUSE_NS);
    errno = errno_kept;
}

void word_wait_for(uint32_t *word, uint32_t value, uint64_t ns)
{
    int errno_kept = errno;
    const struct timespec time = timespec_of_ns(ns);
    if (!sleep_on(word, value, false, &time))
        sleep_ns(ns < WORD_PAUSE_NS ? ns : WORD_PAUSE_NS);
    errno = errno_kept;
}

bool word_wait_shared(uint32_t *word, uint32_t value, uint64_t ns)
{
    int errno_kept = errno;
    const struct timespec time = timespec_of_ns(ns);
    bool slept = sleep_on(word, value, true, &time);
    errno = errno_kept;
    return slept;
}

/* As in linux/futex.h, which older headers do not have. */
#define SYS_WAITV 449
#define WORD_IS_32_BIT 2u

struct waited {
    uint64_t value, address;
    uint32_t flags, reserved;
};

bool words_wait(const struct word_awaited *words, unsigned count, uint64_t ns)
{
    struct waited waited[WORDS_AWAITED_MAX];
    if (!count || count > WORDS_AWAITED_MAX)
        return false;
    for (unsigned i = 0; i < count; i++)
        waited[i] = (struct waited){.value = words[i].value,
            .address = (uint64_t)(uintptr_t)words[i].word,
            .flags = WORD_IS_32_BIT | (words[i].shared ? 0u : (uint32_t)FUTEX_PRIVATE_FLAG)};
    int errno_kept = errno;
    const struct timespec until = timespec_of_ns(clock_now_ns() + ns);
    bool slept = syscall(SYS_WAITV, waited, count, 0, &until, CLOCK_MONOTONIC) >= 0 ||
                 errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT;
    errno = errno_kept;
    return slept;
}

void word_wake(uint32_t *word)
{
    futex_wake(word, INT_MAX);
}

#define WAITED_FOR 0x80000000u

static uint32_t last_number;
static _Thread_local uint32_t number __attribute__((tls_model("initial-exec")));

/* By which a lock knows its thread. Not the kernel's: the child of a vfork counts as its parent. */
static uint32_t own_number(void)
{
    while (__builtin_expect(!number, 0))
        number = add_seq_cst(&last_number, 1u) & ~WAITED_FOR;
    return number;
}

/* True where it is ours; else it is slept on until it may be. */
static bool take_or_wait(struct lock *lock, uint32_t own)
{
    uint32_t word = load_acquire(&lock->word);
    if ((word & ~WAITED_FOR) == own) {
        lock->again++;
        return true;
    }
    if (!word)
        return swap_seq_cst(&lock->word, 0u, own | WAITED_FOR);
    if ((word & WAITED_FOR || swap_seq_cst(&lock->word, word, word | WAITED_FOR)) &&
        !sleep_on(&lock->word, word | WAITED_FOR, false, NULL))
        sleep_ns(LOCK_PAUSE_NS);
    return false;
}

/* What this thread holds or is about to: by the number in the lock it is told which. A thread that
 * is cancelled at a call it makes under a lock would keep that for ever. */
#define HELD_MAX 8
static _Thread_local struct {
    struct lock *locks[HELD_MAX];
    unsigned depth;
    int cancel_state; /* before the first */
} held __attribute__((tls_model("initial-exec")));

static void exchange_held(struct lock *from, struct lock *to)
{
    for (int i = 0; i < HELD_MAX; i++) {
        if (held.locks[i] == from) {
            held.locks[i] = to;
            return;
        }
    }
}

void lock_hold_cancel(void)
{
    if (!held.depth++)
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &held.cancel_state);
}

/* A signal's handler that comes once nothing is held any more takes locks of its own. */
void lock_let_cancel(void)
{
    int state = held.cancel_state;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (held.depth && !--held.depth)
        (void)pthread_setcancelstate(state, NULL);
}

static void begin_holding(struct lock *lock)
{
    lock_hold_cancel();
    exchange_held(NULL, lock);
}

static void end_holding(struct lock *lock)
{
    exchange_held(lock, NULL);
    lock_let_cancel();
}

void lock_take(struct lock *lock) NO_THREAD_SAFETY_ANALYSIS
{
    uint32_t own = own_number();
    begin_holding(lock);
    if (swap_seq_cst(&lock->word, 0u, own))
        return;
    int errno_kept = errno;
    while (!take_or_wait(lock, own))
        continue;
    errno = errno_kept;
}

bool lock_try(struct lock *lock) NO_THREAD_SAFETY_ANALYSIS
{
    begin_holding(lock);
    bool taken = swap_seq_cst(&lock->word, 0u, own_number());
    if (!taken)
        end_holding(lock);
    return taken;
}

static void let_go(struct lock *lock)
{
    if (exchange_acq_rel(&lock->word, 0u) & WAITED_FOR)
        futex_wake(&lock->word, 1);
}

void lock_release(struct lock *lock) NO_THREAD_SAFETY_ANALYSIS
{
    if (lock->again)
        lock->again--;
    else
        let_go(lock);
    end_holding(lock);
}

bool lock_rest(struct lock *lock, uint64_t ns, uint64_t until_ns)
{
    if (lock->again || clock_now_ns() >= until_ns)
        return false;
    lock_release(lock);
    sleep_ns(ns);
    lock_take(lock);
    return true;
}

/* What is not ours any more, or not yet, we may have been woken for, or owe a wake: the next one is
 * woken in our place. */
void lock_release_all(void)
{
    for (int i = 0; i < HELD_MAX; i++) {
        struct lock *lock = held.locks[i];
        if (lock && (load_acquire(&lock->word) & ~WAITED_FOR) == own_number()) {
            lock->again = 0;
            (void)exchange_acq_rel(&lock->word, 0u);
        }
        if (lock)
            futex_wake(&lock->word, 1);
        held.locks[i] = NULL;
    }
}

void lock_reset(struct lock *lock)
{
    store_relaxed(&lock->word, 0u);
    lock->again = 0;
}

/* A system-call filter may know only one of the two; where it lets neither pass this is a wait for
 * a word that nobody changes. */
void sleep_ns(uint64_t ns)
{
    int errno_kept = errno;
    const struct timespec time = timespec_of_ns(ns);
    uint32_t nobodys = 0;
    if (syscall(SYS_nanosleep, &time, NULL) != 0 && errno != EINTR &&
        syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL) != 0 && errno != EINTR)
        (void)sleep_on(&nobodys, 0, false, &time);
    errno = errno_kept;
}
