/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks and sleeps of libc, on virtual time. */
#include "thread.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static uint64_t realtime_ns(void)
{
    return vtime_now_ns() + (uint64_t)vtime_page()->realtime_ns;
}

REPLACES int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    if (!vtime_has_clock(clock))
        return (int)call_result(raw_call(SYS_clock_gettime, clock, (long)ret_time, 0, 0, 0, 0));
    bool is_realtime = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    *ret_time = timespec_of(is_realtime ? realtime_ns() : vtime_now_ns());
    return 0;
}

static uint64_t wall_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return ns_of(&now);
}

REPLACES int gettimeofday(struct timeval *ret_time, void *zone)
{
    (void)zone;
    uint64_t us = wall_ns() / 1000;
    *ret_time = (struct timeval){(time_t)(us / 1000000), (suseconds_t)(us % 1000000)};
    return 0;
}

REPLACES time_t time(time_t *ret_time)
{
    time_t now = (time_t)(wall_ns() / 1000000000u);
    if (ret_time)
        *ret_time = now;
    return now;
}

REPLACES int timespec_get(struct timespec *ret_time, int base)
{
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, ret_time) == 0 ? base : 0;
}

static bool is_time(const struct timespec *time)
{
    return time->tv_sec >= 0 && time->tv_nsec >= 0 && time->tv_nsec < 1000000000;
}

/* Returns 0 or an errno's value, as libc's does. */
REPLACES int clock_nanosleep(
    clockid_t clock, int flags, const struct timespec *time, struct timespec *ret_left)
{
    if (!vtime_has_clock(clock))
        return (int)-raw_call(SYS_clock_nanosleep, clock, flags, (long)time, (long)ret_left, 0, 0);
    if (!is_time(time))
        return EINVAL;
    bool is_absolute = flags & TIMER_ABSTIME;
    uint64_t until = is_absolute ? vtime_deadline(clock, time) : vtime_after(ns_of(time));
    int error = vtime_sleep(until);
    if (error && !is_absolute && ret_left) {
        uint64_t now = __atomic_load_n(&vtime_page()->now_ns, __ATOMIC_SEQ_CST);
        *ret_left = timespec_of(until > now ? until - now : 0);
    }
    return -error;
}

REPLACES int nanosleep(const struct timespec *time, struct timespec *ret_left)
{
    return (int)call_result(-clock_nanosleep(CLOCK_MONOTONIC, 0, time, ret_left));
}

REPLACES int usleep(useconds_t us)
{
    const struct timespec time = timespec_of(us * 1000ull);
    return nanosleep(&time, NULL);
}

REPLACES unsigned sleep(unsigned seconds)
{
    struct timespec left = {.tv_sec = seconds};
    return nanosleep(&left, &left) == 0 ? 0 : (unsigned)left.tv_sec + (left.tv_nsec > 0);
}

/* An interval timer stays on the machine's clock: it is for signals at any instruction. */
REPLACES unsigned alarm(unsigned seconds)
{
    uint64_t former = vtime_set_alarm(seconds ? vtime_after(seconds * 1000000000ull) : NEVER);
    uint64_t now = vtime_after(0);
    return former == NEVER ? 0
           : former <= now ? 1
                           : (unsigned)((former - now + 999999999u) / 1000000000u);
}

/* A thread that spins and yields lets time pass. */
REPLACES int sched_yield(void)
{
    vtime_yield();
    return (int)call_result(raw_call(SYS_sched_yield, 0, 0, 0, 0, 0, 0));
}
