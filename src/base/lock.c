/* SPDX-License-Identifier: Apache-2.0 */
/* Futex lock. */
#include "base/lock.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/sleep.h"
#include "base/word.h"

#include <pthread.h>
#include <stddef.h>

/* Between looks at a lock on which the kernel lets no thread sleep: a lock is held for a moment. */
#define LOCK_PAUSE_NS 50000ull

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
        !word_try_wait(&lock->word, word | WAITED_FOR))
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
    while (!take_or_wait(lock, own))
        continue;
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
        word_wake_one(&lock->word);
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
            word_wake_one(&lock->word);
        held.locks[i] = NULL;
    }
}

void lock_reset(struct lock *lock)
{
    store_relaxed(&lock->word, 0u);
    lock->again = 0;
}
