/* SPDX-License-Identifier: Apache-2.0 */
/* Waits with a deadline, on virtual time: file descriptors, signals, semaphores, mutexes, condition
 * variables, futexes by syscall(). A condition variable is this file's own throughout, because a
 * thread in libc's cannot be woken at a virtual deadline. */
#include "thread.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYS_WAITV 449
#define SIGNAL_SET_BYTES 8

/* ---- file descriptors ---- */

static int poll_fds(
    struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask)
{
    return (int)raw_call(
        SYS_ppoll, (long)fds, (long)count, (long)time, (long)mask, SIGNAL_SET_BYTES, 0);
}

REPLACES int ppoll(
    struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask)
{
    if (!time || !ns_of(time)) {
        struct timespec copy = time ? *time : (struct timespec){0};
        return (int)call_result(poll_fds(fds, count, time ? &copy : NULL, mask));
    }
    const struct vtime_steps steps = vtime_steps_begin(vtime_after(ns_of(time)));
    int result, error;
    do {
        struct timespec none = {0};
        result = poll_fds(fds, count, &none, mask);
    } while (!result && vtime_step(&steps, &error));
    return (int)call_result(result ? result : error == -EINTR ? error : 0);
}

REPLACES int poll(struct pollfd *fds, nfds_t count, int ms)
{
    const struct timespec time = timespec_of(ms < 0 ? 0 : (uint64_t)ms * 1000000u);
    return ppoll(fds, count, ms < 0 ? NULL : &time, NULL);
}

REPLACES int pselect(int count, fd_set *reads, fd_set *writes, fd_set *others,
    const struct timespec *time, const sigset_t *mask)
{
    fd_set none, *sets[3] = {reads, writes, others}, kept[3];
    const struct {
        const sigset_t *mask;
        size_t bytes;
    } masked = {mask, SIGNAL_SET_BYTES};
    bool is_timed = time && ns_of(time);
    FD_ZERO(&none);
    for (int i = 0; i < 3; i++)
        kept[i] = sets[i] ? *sets[i] : none;
    const struct vtime_steps steps =
        is_timed ? vtime_steps_begin(vtime_after(ns_of(time))) : (struct vtime_steps){0};
    int result, error = 0;
    do {
        struct timespec copy = time && !is_timed ? *time : (struct timespec){0};
        for (int i = 0; i < 3; i++) {
            if (sets[i])
                *sets[i] = kept[i];
        }
        result = (int)raw_call(SYS_pselect6, count, (long)reads, (long)writes, (long)others,
            (long)(time ? &copy : NULL), (long)&masked);
    } while (is_timed && !result && vtime_step(&steps, &error));
    return (int)call_result(result ? result : error == -EINTR ? error : 0);
}

REPLACES int select(
    int count, fd_set *reads, fd_set *writes, fd_set *others, struct timeval *timeout)
{
    const struct timespec time = {
        timeout ? timeout->tv_sec : 0, timeout ? timeout->tv_usec * 1000 : 0};
    return pselect(count, reads, writes, others, timeout ? &time : NULL, NULL);
}

REPLACES int epoll_pwait(
    int epoll, struct epoll_event *events, int most, int ms, const sigset_t *mask)
{
    bool is_timed = ms > 0;
    const struct vtime_steps steps = is_timed
                                         ? vtime_steps_begin(vtime_after((uint64_t)ms * 1000000u))
                                         : (struct vtime_steps){0};
    int result, error = 0;
    do {
        result = (int)raw_call(SYS_epoll_pwait, epoll, (long)events, most, is_timed ? 0 : ms,
            (long)mask, SIGNAL_SET_BYTES);
    } while (is_timed && !result && vtime_step(&steps, &error));
    return (int)call_result(result ? result : error == -EINTR ? error : 0);
}

REPLACES int epoll_wait(int epoll, struct epoll_event *events, int most, int ms)
{
    return epoll_pwait(epoll, events, most, ms, NULL);
}

REPLACES int sigtimedwait(const sigset_t *set, siginfo_t *ret_info, const struct timespec *time)
{
    bool is_timed = time && ns_of(time);
    const struct vtime_steps steps =
        is_timed ? vtime_steps_begin(vtime_after(ns_of(time))) : (struct vtime_steps){0};
    const struct timespec none = {0};
    long result;
    int error = -EAGAIN;
    do {
        result = raw_call(SYS_rt_sigtimedwait, (long)set, (long)ret_info,
            (long)(is_timed ? &none : time), SIGNAL_SET_BYTES, 0, 0);
    } while (is_timed && result == -EAGAIN && vtime_step(&steps, &error));
    return (int)call_result(is_timed && result == -EAGAIN && error == -EINTR ? error : result);
}

/* ---- mutexes and semaphores ---- */

REPLACES int pthread_mutex_clocklock(
    pthread_mutex_t *mutex, clockid_t clock, const struct timespec *time)
{
    int result = pthread_mutex_trylock(mutex), error;
    if (result != EBUSY)
        return result;
    const struct vtime_steps steps = vtime_steps_begin(vtime_deadline(clock, time));
    while (result == EBUSY) {
        bool goes_on = vtime_step(&steps, &error) || error == -EINTR;
        result = pthread_mutex_trylock(mutex);
        if (result == EBUSY && !goes_on)
            return ETIMEDOUT;
    }
    return result;
}

REPLACES int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *time)
{
    return pthread_mutex_clocklock(mutex, CLOCK_REALTIME, time);
}

REPLACES int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *time)
{
    int result = sem_trywait(semaphore), error = 0;
    const struct vtime_steps steps = vtime_steps_begin(vtime_deadline(clock, time));
    while (result != 0 && errno == EAGAIN && vtime_step(&steps, &error))
        result = sem_trywait(semaphore);
    return result == 0 || !error ? result : (int)call_result(error);
}

REPLACES int sem_timedwait(sem_t *semaphore, const struct timespec *time)
{
    return sem_clockwait(semaphore, CLOCK_REALTIME, time);
}

/* ---- condition variables ---- */

struct condition {
    uint32_t signals; /* counts them; waited on */
    clockid_t clock;
    int shared; /* between processes */
};
_Static_assert(sizeof(struct condition) <= sizeof(pthread_cond_t), "fits");

static struct condition *condition_of(pthread_cond_t *cond)
{
    return (struct condition *)(void *)cond;
}

REPLACES int pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attributes)
{
    clockid_t clock = CLOCK_REALTIME;
    int shared = PTHREAD_PROCESS_PRIVATE;
    if (attributes) {
        (void)pthread_condattr_getclock(attributes, &clock);
        (void)pthread_condattr_getpshared(attributes, &shared);
    }
    *condition_of(cond) =
        (struct condition){.clock = clock, .shared = shared == PTHREAD_PROCESS_SHARED};
    return 0;
}

REPLACES int pthread_cond_destroy(pthread_cond_t *cond)
{
    (void)cond;
    return 0;
}

static int condition_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ns)
{
    struct condition *condition = condition_of(cond);
    uint32_t seen = __atomic_load_n(&condition->signals, __ATOMIC_SEQ_CST);
    int unlocked = pthread_mutex_unlock(mutex);
    if (unlocked)
        return unlocked;
    long result = vtime_wait_word(&condition->signals, seen, condition->shared, until_ns);
    int locked = pthread_mutex_lock(mutex);
    return locked ? locked : result == -ETIMEDOUT ? ETIMEDOUT : 0;
}

REPLACES int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    return condition_wait(cond, mutex, NEVER);
}

REPLACES int pthread_cond_clockwait(
    pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *time)
{
    return condition_wait(cond, mutex, vtime_deadline(clock, time));
}

REPLACES int pthread_cond_timedwait(
    pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *time)
{
    return pthread_cond_clockwait(cond, mutex, condition_of(cond)->clock, time);
}

static int condition_wake(pthread_cond_t *cond, long waiters)
{
    struct condition *condition = condition_of(cond);
    __atomic_add_fetch(&condition->signals, 1, __ATOMIC_SEQ_CST);
    (void)vtime_wake_word(&condition->signals, waiters, condition->shared);
    return 0;
}

REPLACES int pthread_cond_signal(pthread_cond_t *cond)
{
    return condition_wake(cond, 1);
}

REPLACES int pthread_cond_broadcast(pthread_cond_t *cond)
{
    return condition_wake(cond, INT_MAX);
}

/* ---- signals, which may wake a sleeper ---- */

REPLACES int kill(pid_t pid, int number)
{
    vtime_note_signal();
    return (int)call_result(raw_call(SYS_kill, pid, number, 0, 0, 0, 0));
}

/* ---- syscall() ---- */

static long futex(const long arguments[6])
{
    int operation = (int)arguments[1], command = operation & FUTEX_CMD_MASK;
    bool shared = !(operation & FUTEX_PRIVATE_FLAG);
    const struct timespec *time = (const struct timespec *)arguments[3];
    if (command != FUTEX_WAIT && command != FUTEX_WAIT_BITSET) {
        vtime_note_wake(shared);
        return raw_call(SYS_futex, arguments[0], arguments[1], arguments[2], arguments[3],
            arguments[4], arguments[5]);
    }
    clockid_t clock = operation & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    uint64_t until = NEVER;
    if (time)
        until = command == FUTEX_WAIT ? vtime_after(ns_of(time)) : vtime_deadline(clock, time);
    return vtime_wait_word((uint32_t *)arguments[0], (uint32_t)arguments[2], shared, until);
}

static long waitv(const long arguments[6])
{
    const struct timespec *time = (const struct timespec *)arguments[3];
    if (!time || arguments[1] > VTIME_WORDS_MAX)
        return raw_call(
            SYS_WAITV, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], 0);
    return vtime_wait_words((const struct futex_waitv_word *)arguments[0], (unsigned)arguments[1],
        vtime_deadline((clockid_t)arguments[4], time));
}

static long sleep_call(const long arguments[6])
{
    return -clock_nanosleep((clockid_t)arguments[0], (int)arguments[1],
        (const struct timespec *)arguments[2], (struct timespec *)arguments[3]);
}

REPLACES long syscall(long number, ...)
{
    long arguments[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        arguments[i] = va_arg(list, long);
    va_end(list);
    switch (number) {
    case SYS_futex:
        return call_result(futex(arguments));
    case SYS_WAITV:
        return call_result(waitv(arguments));
    case SYS_nanosleep:
        return nanosleep((const struct timespec *)arguments[0], (struct timespec *)arguments[1]);
    case SYS_clock_nanosleep:
        return call_result(sleep_call(arguments));
    case SYS_clock_gettime:
        return clock_gettime((clockid_t)arguments[0], (struct timespec *)arguments[1]);
    case SYS_kill:
    case SYS_tgkill:
    case SYS_tkill:
        vtime_note_signal();
        break;
    default:
        break;
    }
    return call_result(raw_call(number, arguments[0], arguments[1], arguments[2], arguments[3],
        arguments[4], arguments[5]));
}
