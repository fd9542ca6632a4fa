/* SPDX-License-Identifier: Apache-2.0 */
/* Futex lock, waits and sleeps by system call. */
#include "base/lock.h"

#include "base/atomic.h"
#include "base/clock.h"

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

void word_wait_for(uint32_t *word, uint32_t value, uint64_t ns)
{
    int errno_kept = errno;
    const struct timespec time = timespec_of_ns(ns);
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &time, NULL, 0);
    errno = errno_kept;
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
