/* SPDX-License-Identifier: Apache-2.0 */
/* Futex lock, waits and sleeps by system call. */
#include "base/lock.h"

#include "base/atomic.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
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

void word_wait(uint32_t *word, uint32_t value)
{
    int errno_kept = errno;
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
    errno = errno_kept;
}

void word_wake(uint32_t *word)
{
    futex_wake(word, INT_MAX);
}

void lock_take(struct lock *lock) NO_THREAD_SAFETY_ANALYSIS
{
    if (swap_seq_cst(&lock->word, 0u, 1u))
        return;
    int errno_kept = errno;
    while (exchange_acq_rel(&lock->word, 2u) != 0)
        syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2u, NULL, NULL, 0);
    errno = errno_kept;
}

bool lock_try(struct lock *lock) NO_THREAD_SAFETY_ANALYSIS
{
    return swap_seq_cst(&lock->word, 0u, 1u);
}

void lock_release(struct lock *lock) NO_THREAD_SAFETY_ANALYSIS
{
    if (exchange_acq_rel(&lock->word, 0u) == 2)
        futex_wake(&lock->word, 1);
}

void lock_reset(struct lock *lock)
{
    store_relaxed(&lock->word, 0u);
}

void sleep_ns(uint64_t ns)
{
    int errno_kept = errno;
    struct timespec time = timespec_of_ns(ns);
    syscall(SYS_nanosleep, &time, NULL);
    errno = errno_kept;
}
