/* SPDX-License-Identifier: Apache-2.0 */
/* Futex waits and wakes by system call. */
#include "base/word.h"

#include "base/clock.h"
#include "base/sleep.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Between looks at a word on which the kernel lets no thread sleep. */
#define WORD_PAUSE_NS 1000000ull

static struct timespec timespec_of_ns(uint64_t ns)
{
    return (struct timespec){
        .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
}

/* False where the kernel refuses the call. */
static bool sleep_on(uint32_t *word, uint32_t value, bool shared, const struct timespec *time)
{
    int operation = shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE;
    int errno_kept = errno;
    bool slept = syscall(SYS_futex, word, operation, value, time, NULL, 0) == 0 ||
                 errno == EAGAIN || errno == EINTR || errno == ETIMEDOUT;
    errno = errno_kept;
    return slept;
}

bool word_try_wait(uint32_t *word, uint32_t value)
{
    return sleep_on(word, value, false, NULL);
}

void word_wait(uint32_t *word, uint32_t value)
{
    if (!sleep_on(word, value, false, NULL))
        sleep_ns(WORD_PAUSE_NS);
}

void word_wait_for(uint32_t *word, uint32_t value, uint64_t ns)
{
    const struct timespec time = timespec_of_ns(ns);
    if (!sleep_on(word, value, false, &time))
        sleep_ns(ns < WORD_PAUSE_NS ? ns : WORD_PAUSE_NS);
}

bool word_wait_shared(uint32_t *word, uint32_t value, uint64_t ns)
{
    const struct timespec time = timespec_of_ns(ns);
    return sleep_on(word, value, true, &time);
}

/* As in linux/futex.h, which older headers do not have. */
#define SYS_WAITV 449
#define WORD_IS_32_BIT 2u

struct waited {
    uint64_t value, address;
    uint32_t flags, reserved;
};

bool word_wait_any(const struct word_awaited *words, unsigned count, uint64_t ns)
{
    struct waited waited[WORD_AWAITED_MAX];
    if (!count || count > WORD_AWAITED_MAX)
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

static void wake(uint32_t *word, int sleepers)
{
    int errno_kept = errno;
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, sleepers, NULL, NULL, 0);
    errno = errno_kept;
}

void word_wake(uint32_t *word)
{
    wake(word, INT_MAX);
}

void word_wake_one(uint32_t *word)
{
    wake(word, 1);
}
