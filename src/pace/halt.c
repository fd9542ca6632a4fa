/* SPDX-License-Identifier: Apache-2.0 */
#include "pace/halt.h"

#include "base/clock.h"
#include "base/sleep.h"
#include "base/word.h"
#include "config/config_oversubscription.h"
#include "container/container.h"

/* Nanoseconds between two looks whether calls have returned. */
#define LOOK_NS 100000ull
/* Nanoseconds in which a call that is not counted, and looked just before the halt, is in the
 * driver. */
#define GRACE_NS 10000000ull

bool halt_is_counted;
uint32_t halt_lasts; /* slept on */
static uint32_t inside;
static bool finished;
static _Thread_local unsigned thread_depth __attribute__((tls_model("initial-exec")));

void halt_reset(void)
{
    halt_lasts = 0;
    inside = 0;
    finished = false;
    thread_depth = 0;
    halt_is_counted = config_oversubscribes(container_config());
}

/* A forked child has its parent's halt until it enters. */
void halt_wait_slow(void)
{
    container_enter();
    while (load_acquire(&halt_lasts))
        word_wait(&halt_lasts, 1);
}

static void count_out(void)
{
    (void)add_seq_cst(&inside, ~0u);
}

/* Counted before the look: a halt that begins sees the call, or the call sees the halt. */
static bool count_in(void)
{
    (void)add_seq_cst(&inside, 1u);
    if (!load_seq_cst(&halt_lasts))
        return true;
    count_out();
    return false;
}

static void come_in(void)
{
    while (!count_in())
        halt_wait_slow();
}

void halt_enter_slow(void)
{
    container_enter();
    if (!thread_depth)
        come_in();
    thread_depth++;
}

bool halt_try_enter_slow(void)
{
    if (!thread_depth && !count_in())
        return false;
    thread_depth++;
    return true;
}

/* A forked child has left what its parent's thread was in. */
void halt_leave_slow(void)
{
    if (thread_depth && --thread_depth == 0)
        count_out();
}

unsigned halt_suspend_slow(void)
{
    unsigned depth = thread_depth;
    if (depth)
        count_out();
    thread_depth = 0;
    return depth;
}

void halt_resume_slow(unsigned depth)
{
    if (!thread_depth)
        come_in();
    thread_depth = depth;
}

void halt_end(void)
{
    store_seq_cst(&halt_lasts, 0u);
    word_wake(&halt_lasts);
}

static bool is_quiet(void)
{
    return !load_seq_cst(&inside) && !load_seq_cst(&finished);
}

bool halt_begin(uint64_t timeout_ns)
{
    uint64_t deadline_ns = clock_now_ns() + timeout_ns;
    store_seq_cst(&halt_lasts, 1u);
    while (load_seq_cst(&inside) && !load_seq_cst(&finished) && clock_now_ns() < deadline_ns)
        sleep_ns(LOOK_NS);
    if (is_quiet())
        sleep_ns(GRACE_NS);
    if (is_quiet())
        return true;
    halt_end();
    return false;
}

void halt_finish(void)
{
    store_seq_cst(&finished, true);
    halt_end();
}
