/* SPDX-License-Identifier: Apache-2.0 */
/* The governor's thread: made at first need, asleep when idle. */
#include "limit/governor.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "driver/library.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>

/* A program that pauses between two launches for less does not put the thread to sleep and wake it
 * each time. */
#define LINGER_NS 100000000ull

enum governor_state { ABSENT, STARTING, AWAKE, ASLEEP, STOPPED, REFUSED };

static struct {
    uint32_t state;
    uint64_t (*look)(void);
    void (*rest)(uint64_t ns);
} governor;

static bool change(uint32_t from, uint32_t to)
{
    return swap_seq_cst(&governor.state, from, to);
}

static void fall_asleep(void)
{
    if (!change(AWAKE, ASLEEP))
        return;
    /* What came between the last look and now woke nobody. */
    if (governor.look() != GOVERNOR_NOTHING && change(ASLEEP, AWAKE))
        return;
    while (load_acquire(&governor.state) == ASLEEP)
        word_wait(&governor.state, ASLEEP);
}

static void *run(void *argument)
{
    (void)argument;
    (void)prctl(PR_SET_NAME, "vgpu-governor");
    uint64_t seen_ns = clock_now_ns();
    while (load_acquire(&governor.state) != STOPPED) {
        uint64_t pause = governor.look();
        uint64_t now = clock_now_ns();
        if (pause != GOVERNOR_NOTHING) {
            seen_ns = now;
            governor.rest(pause);
        } else if (now - seen_ns < LINGER_NS) {
            governor.rest(LINGER_NS / 5);
        } else {
            fall_asleep();
            seen_ns = clock_now_ns();
        }
    }
    return NULL;
}

/* The thread inherits a mask in which everything is blocked: the program's signals are its own.
 * pthread_create is looked up, because linking it would ask for glibc 2.34. */
static bool start_thread(void)
{
    __typeof__(pthread_create) *create =
        (__typeof__(pthread_create) *)library_next_function("pthread_create");
    pthread_attr_t attributes;
    sigset_t all, former;
    pthread_t thread;
    if (!create || pthread_attr_init(&attributes) != 0)
        return false;
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &former);
    int error = create(&thread, &attributes, run, NULL);
    sigprocmask(SIG_SETMASK, &former, NULL);
    return error == 0;
}

void governor_wake(uint64_t (*look)(void), void (*rest)(uint64_t ns))
{
    uint32_t state = load_acquire(&governor.state);
    if (__builtin_expect(state == AWAKE, 1))
        return;
    if (state == ASLEEP && change(ASLEEP, AWAKE))
        word_wake(&governor.state);
    if (state != ABSENT || !change(ABSENT, STARTING))
        return;
    governor.look = look;
    governor.rest = rest;
    bool started = start_thread();
    if (!started)
        log_warning("no thread can be made that watches over GPU time; it is measured at launches "
                    "only");
    (void)change(STARTING, started ? AWAKE : REFUSED);
}

bool governor_works(void)
{
    uint32_t state = load_acquire(&governor.state);
    return state == STARTING || state == AWAKE || state == ASLEEP;
}

bool governor_sleeps(void)
{
    return load_relaxed(&governor.state) == ASLEEP;
}

void governor_reset(void)
{
    store_release(&governor.state, (uint32_t)ABSENT);
}

void governor_stop(void)
{
    if (exchange_acq_rel(&governor.state, (uint32_t)STOPPED) == ASLEEP)
        word_wake(&governor.state);
}
