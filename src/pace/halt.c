/* SPDX-License-Identifier: Apache-2.0 */
#include "pace/halt.h"

#include "base/clock.h"
#include "base/sleep.h"
#include "base/word.h"
#include "config/config_oversubscription.h"
#include "container/container.h"

/* Nanoseconds between two looks whether calls have returned. */
#define LOOK_NS 100000ull
/* Nanoseconds in which a call that looked just before the halt is in the driver. */
#define HALT_GRACE_NS 10000000ull

bool halt_is_counted;
uint32_t halt_lasts; /* slept on */
static uint32_t inside;
static bool finished;

void halt_reset(void)
{
    halt_lasts = 0;
    inside = 0;
    finished = false;
    halt_is_counted = config_oversubscribes(container_config());
}

/* A forked child has its parent's halt until it enters. */
void halt_wait_slow(void)
{
    container_enter();
    while (load_acquire(&halt_lasts))
        word_wait(&halt_lasts, 1);
}

/* Counted before the look: a halt that begins sees the call, or the call sees the halt. */
bool halt_try_enter_slow(void)
{
    (void)add_seq_cst(&inside, 1u);
    if (!load_seq_cst(&halt_lasts))
        return true;
    halt_leave_slow();
    return false;
}

void halt_enter_slow(void)
{
    container_enter();
    while (!halt_try_enter_slow())
        halt_wait_slow();
}

void halt_leave_slow(void)
{
    (void)add_seq_cst(&inside, ~0u);
}

void halt_end(void)
{
    store_seq_cst(&halt_lasts, 0u);
    word_wake(&halt_lasts);
}

bool halt_begin(uint64_t timeout_ns)
{
    uint64_t deadline_ns = clock_now_ns() + timeout_ns;
    store_seq_cst(&halt_lasts, 1u);
    while (load_seq_cst(&inside) && !load_seq_cst(&finished) && clock_now_ns() < deadline_ns)
        sleep_ns(LOOK_NS);
    if (load_seq_cst(&inside) || load_seq_cst(&finished)) {
        halt_end();
        return false;
    }
    sleep_ns(HALT_GRACE_NS);
    return true;
}

void halt_finish(void)
{
    store_seq_cst(&finished, true);
    halt_end();
}
