/* SPDX-License-Identifier: Apache-2.0 */
/* The governor's thread: made at first need, asleep when idle. */
#include "pace/governor.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/word.h"
#include "driver/own_thread.h"

#include <stddef.h>
#include <sys/prctl.h>

/* Nanoseconds without work after which the thread sleeps: shorter pauses between two launches do
 * not make it sleep and wake each time. */
#define LINGER_NS 100000000ull

enum governor_state { ABSENT, STARTING, AWAKE, RESTING, ASLEEP, STOPPED, REFUSED };

static struct {
    uint32_t state;
    uint64_t rest_ns; /* its longest rest until the next look */
    uint64_t (*look)(void);
    governor_rest_function *rest;
} governor;

static bool change(uint32_t from, uint32_t to)
{
    return swap_seq_cst(&governor.state, from, to);
}

static void sleep_for_good(void)
{
    while (load_acquire(&governor.state) == ASLEEP)
        word_wait(&governor.state, ASLEEP);
}

/* Announces how long it rests if nothing works, before it does. */
static uint64_t take_look(void)
{
    uint64_t pause = governor.look();
    uint64_t rest_ns = pause == GOVERNOR_NOTHING ? LINGER_NS / 5 : pause & ~GOVERNOR_IDLE;
    store_relaxed(&governor.rest_ns, rest_ns);
    return pause;
}

static void rest_idle(void)
{
    governor.rest(load_relaxed(&governor.rest_ns), &governor.state, RESTING);
}

static void *run(void *argument)
{
    (void)argument;
    (void)prctl(PR_SET_NAME, "vgpu-governor");
    (void)change(STARTING, AWAKE); /* its maker may not get to run for long */
    uint64_t seen_ns = clock_now_ns();
    while (load_acquire(&governor.state) != STOPPED) {
        uint64_t pause = take_look();
        uint64_t now = clock_now_ns();
        if (pause != GOVERNOR_NOTHING)
            seen_ns = now;
        if (!(pause & GOVERNOR_IDLE)) {
            (void)(change(RESTING, AWAKE) || change(ASLEEP, AWAKE));
            governor.rest(pause, NULL, 0);
        } else if (change(AWAKE, RESTING)) {
            continue; /* what came before that woke it in vain */
        } else if (now - seen_ns < LINGER_NS) {
            if (change(ASLEEP, RESTING))
                continue; /* the look before its sleep saw something; as above */
            rest_idle();
        } else if (change(RESTING, ASLEEP)) {
            continue; /* likewise */
        } else {
            sleep_for_good();
            seen_ns = clock_now_ns();
        }
    }
    return NULL;
}

void governor_wake(uint64_t (*look)(void), governor_rest_function *rest)
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
    if (own_thread_start(run))
        return;
    log_warning("no thread can be made that watches over GPU time; it is measured at launches "
                "only");
    (void)change(STARTING, REFUSED);
}

void governor_rouse(void)
{
    /* A write, so that either the note is seen, or the rest is. */
    uint32_t state = add_seq_cst(&governor.state, 0u);
    if ((state == RESTING || state == ASLEEP) && change(state, AWAKE))
        word_wake(&governor.state);
}

void governor_stir(void)
{
    uint32_t state = add_seq_cst(&governor.state, 0u); /* as in governor_rouse */
    if (state == ASLEEP && change(ASLEEP, AWAKE))
        word_wake(&governor.state);
}

bool governor_works(void)
{
    uint32_t state = load_acquire(&governor.state);
    return state >= STARTING && state <= ASLEEP;
}

bool governor_is_awake(void)
{
    uint32_t state = load_acquire(&governor.state);
    return state == STARTING || state == AWAKE;
}

bool governor_sleeps(void)
{
    uint32_t state = load_relaxed(&governor.state);
    return state == RESTING || state == ASLEEP;
}

bool governor_looks_within(uint64_t ns)
{
    uint32_t state = load_relaxed(&governor.state);
    return state == AWAKE || (state == RESTING && load_relaxed(&governor.rest_ns) <= ns);
}

void governor_reset(void)
{
    store_release(&governor.state, (uint32_t)ABSENT);
}

void governor_stop(void)
{
    uint32_t former = exchange_acq_rel(&governor.state, (uint32_t)STOPPED);
    if (former == RESTING || former == ASLEEP)
        word_wake(&governor.state);
}
