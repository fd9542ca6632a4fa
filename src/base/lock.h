/* SPDX-License-Identifier: Apache-2.0 */
/* A lock between the threads of one process: a futex word, no libc symbol, zero is unlocked.
 * Whose thread holds it already has it at once, and gives it back once more: a signal's handler may
 * come in the midst of anything, and call exit, or CUDA. Nothing else is to rely on that. A thread
 * that holds one is not cancelled before it gave it back. After a fork the child resets each lock
 * it inherited (see base/fork.h). */
#ifndef VGPU_BASE_LOCK_H
#define VGPU_BASE_LOCK_H

#include "base/thread_safety.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CAPABILITY("lock") lock {
    uint32_t word;  /* 0 free, else a number of the thread's, and whether it is waited for */
    uint32_t again; /* how often more its thread took it */
};

#define LOCK_INIT                                                                                  \
    {                                                                                              \
        0                                                                                          \
    }

void lock_take(struct lock *lock) ACQUIRE(*lock);
/* Takes it where it is free: not where this very thread holds it. */
bool lock_try(struct lock *lock) TRY_ACQUIRE(*lock);
void lock_release(struct lock *lock) RELEASE(*lock);

/* A lock held for one statement: LOCKED(account_lock) { ... }. The lock is released however the
 * statement is left: at its end, by break or continue (which belong to the LOCKED), or by return.
 * LOCKED_TO_END(account_lock); holds it from there to the end of the function, and stands only in a
 * function's outermost block (scripts/check-layers). Both cost what a pair of lock_take and
 * lock_release costs. The argument has no side effects and names the same lock all the time.
 *
 * Clang 14 does not follow cleanup attributes. So the analysis is told that the lock is held
 * (ASSERT_HELD, which permits a return), and by the loop's step that it is no longer held. It
 * reports accesses outside the statement and a lock that is taken twice (test/build_errors.sh). */
#define LOCKED(held) LOCKED_AS(held, LOCK_JOIN(lock_scope_, __COUNTER__))
#define LOCKED_TO_END(held)                                                                        \
    struct lock *LOCK_JOIN(lock_scope_, __COUNTER__)                                               \
        __attribute__((cleanup(lock_scope_end), unused)) = lock_scope_begin_to_end(&(held))

/* clang-format off */
#define LOCKED_AS(held, scope)                                                                     \
    for (struct lock *scope __attribute__((cleanup(lock_scope_end))) = lock_scope_begin(&(held));  \
         scope && lock_scope_is_entered(&(held)); scope = lock_scope_leave(scope, &(held)))
/* clang-format on */
#define LOCK_JOIN(a, b) LOCK_JOIN_(a, b)
#define LOCK_JOIN_(a, b) a##b

/* What LOCKED and LOCKED_TO_END are made of. */
static inline struct lock *lock_scope_begin(struct lock *lock)
    EXCLUDES(*lock) NO_THREAD_SAFETY_ANALYSIS
{
    lock_take(lock);
    return lock;
}

static inline struct lock *lock_scope_begin_to_end(struct lock *lock) EXCLUDES(*lock)
    ASSERT_HELD(*lock) NO_THREAD_SAFETY_ANALYSIS
{
    lock_take(lock);
    return lock;
}

static inline bool lock_scope_is_entered(struct lock *lock) ASSERT_HELD(*lock)
{
    (void)lock;
    return true;
}

static inline struct lock *lock_scope_leave(struct lock *held, struct lock *lock)
    RELEASE(*lock) NO_THREAD_SAFETY_ANALYSIS
{
    (void)lock;
    lock_release(held);
    return NULL;
}

static inline void lock_scope_end(struct lock **scope) NO_THREAD_SAFETY_ANALYSIS
{
    if (*scope)
        lock_release(*scope);
}

/* Lets others have it for about `ns`, and takes it again. False, and nothing done, from `until_ns`
 * of CLOCK_MONOTONIC on, and where this thread held it before: it is in a signal's handler, what
 * that interrupted keeps the lock, and nothing that others do under it can be waited for. */
bool lock_rest(struct lock *lock, uint64_t ns, uint64_t until_ns) REQUIRES(*lock);

/* Between the two the thread is not cancelled, as while it holds a lock. */
void lock_hold_cancel(void);
void lock_let_cancel(void);

/* The process ends in this thread: whatever it holds, in what a signal's handler that called exit
 * has interrupted, will not go on, and others that hold more may wait for it. Called by our own
 * handlers at exit: one of the program's, or of the driver's, that comes before them has to do
 * without. */
void lock_release_all(void);

/* Only for a forked child, in which no other thread exists. */
void lock_reset(struct lock *lock);

#endif
