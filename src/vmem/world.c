/* SPDX-License-Identifier: Apache-2.0 */
/* The gate, the calls on their way, and the work of contexts. Two counters that only grow tell how
 * many calls are on their way: those that entered less those that left, in stripes, so that threads
 * seldom share a line. */
#include "vmem/world.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/sleep.h"
#include "base/word.h"
#include "config/config_oversubscription.h"
#include "container/container.h"
#include "driver/cuda.h"
#include "driver/own_thread.h"
#include "pace/halt.h"
#include "pace/pace.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>

#define STRIPES 32u
#define CONTEXTS_MAX 512
/* Nanoseconds between two looks whether calls have returned, at first and at most. */
#define LOOK_NS 20000ull
#define LOOK_MOST_NS 1000000ull
/* Nanoseconds that the end of the process waits for the thread that has stopped the world. */
#define END_NS 1000000000ull

enum gate { OPEN, CLOSED };
enum drain { DRAIN_NONE, DRAIN_WORKS, DRAIN_DONE, DRAIN_LEFT };

bool world_is_counted;

static struct {
    struct stripe {
        uint64_t entered, left;
    } __attribute__((aligned(64))) stripes[STRIPES];
    void (*before[WORLD_ASKERS])(void);
    uint32_t gate;    /* slept on */
    uint32_t stopped; /* likewise */
    uint32_t drain;   /* likewise */
    int drained;      /* what came of it */
    unsigned threads;
    int captures; /* of the program, that go on */
    bool finished;
} world;

static struct lock contexts_lock; /* a leaf */
static struct {
    uint64_t handles[CONTEXTS_MAX];
    unsigned count;
    bool too_many;
} contexts GUARDED_BY(contexts_lock);

static _Thread_local struct {
    unsigned depth, stripe; /* from 1; 0: none yet */
    bool has_stream;        /* the one that it is about to give work to */
    CUstream stream;
    enum stream_zero zero;
} thread __attribute__((tls_model("initial-exec")));

void world_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&contexts_lock);
    memset(&contexts, 0, sizeof(contexts));
    memset(&world, 0, sizeof(world));
    thread.depth = 0;
    world_is_counted = config_oversubscribes(container_config());
}

/* ---- calls ---- */

static struct stripe *own_stripe(void)
{
    if (!thread.stripe)
        thread.stripe = 1 + add_seq_cst(&world.threads, 1u) % STRIPES;
    return &world.stripes[thread.stripe - 1];
}

static bool may_pass(void)
{
    return load_seq_cst(&world.gate) == OPEN;
}

/* Which may block: no call of the driver is on its way meanwhile. */
static void ask_before(void)
{
    unsigned depth = halt_suspend();
    for (unsigned i = 0; i < WORLD_ASKERS; i++) {
        void (*before)(void) = load_acquire(&world.before[i]);
        if (before && !load_acquire(&world.finished))
            before();
    }
    halt_resume(depth);
}

/* The count is raised before the gate is looked at: a thread that closes the gate then sees the
 * call, or the call sees the gate. */
static void enter(bool gives_work)
{
    container_enter(); /* a forked child has its parent's gate */
    if (thread.depth++)
        return;
    struct stripe *stripe = own_stripe();
    for (;;) {
        if (gives_work)
            ask_before();
        (void)add_seq_cst(&stripe->entered, (uint64_t)1);
        if (may_pass())
            return;
        (void)add_seq_cst(&stripe->left, (uint64_t)1);
        unsigned depth = halt_suspend();
        word_wait(&world.gate, CLOSED);
        halt_resume(depth);
    }
}

void world_enter_slow(void)
{
    enter(true);
}

void world_enter_to_ask_slow(void)
{
    enter(false);
}

void world_wait_slow(CUstream stream, enum stream_zero zero)
{
    container_enter();
    if (thread.depth)
        return;
    thread.has_stream = true;
    thread.stream = stream;
    thread.zero = zero;
    ask_before();
}

void world_note_wait(void)
{
    if (thread.has_stream)
        pace_note_other(thread.stream, thread.zero);
}

void world_leave_slow(void)
{
    if (!thread.depth || --thread.depth)
        return;
    thread.has_stream = false;
    (void)add_seq_cst(&own_stripe()->left, (uint64_t)1);
}

/* Those that left are read first: a call in between counts as on its way. */
static bool has_calls(void)
{
    uint64_t left = 0, entered = 0;
    for (unsigned i = 0; i < STRIPES; i++)
        left += load_seq_cst(&world.stripes[i].left);
    for (unsigned i = 0; i < STRIPES; i++)
        entered += load_seq_cst(&world.stripes[i].entered);
    return entered != left;
}

uint64_t world_entries(void)
{
    uint64_t entered = 0;
    for (unsigned i = 0; i < STRIPES; i++)
        entered += load_relaxed(&world.stripes[i].entered);
    return entered;
}

void world_ask_before(enum world_asker asker, void (*before)(void))
{
    store_release(&world.before[asker], before);
}

/* ---- contexts ---- */

void world_add_context(uint64_t context)
{
    LOCKED_TO_END(contexts_lock);
    unsigned i = 0;
    while (i < contexts.count && contexts.handles[i] != context)
        i++;
    if (!context || i < contexts.count)
        return;
    contexts.too_many |= i == CONTEXTS_MAX;
    if (i < CONTEXTS_MAX)
        contexts.handles[contexts.count++] = context;
}

CUresult world_context_changed_slow(CUresult result)
{
    CUcontext current = NULL;
    if (result == CUDA_SUCCESS && cuda.cuCtxGetCurrent(&current) == CUDA_SUCCESS)
        world_add_context((uintptr_t)current);
    return result;
}

void world_remove_context(uint64_t context)
{
    LOCKED_TO_END(contexts_lock);
    for (unsigned i = 0; i < contexts.count; i++) {
        if (contexts.handles[i] == context)
            contexts.handles[i--] = contexts.handles[--contexts.count];
    }
}

static uint64_t context_at(unsigned number)
{
    LOCKED_TO_END(contexts_lock);
    return number < contexts.count ? contexts.handles[number] : 0;
}

static bool knows_contexts(void)
{
    LOCKED_TO_END(contexts_lock);
    return !contexts.too_many;
}

/* ---- their work ---- */

/* A context that is gone, or that an error has ended, runs nothing. */
static int wait_for_contexts(void)
{
    uint64_t context;
    int error = 0;
    for (unsigned i = 0; (context = context_at(i)) != 0; i++) {
        CUcontext popped;
        if (cuda.cuCtxPushCurrent_v2((CUcontext)(uintptr_t)context) != CUDA_SUCCESS)
            continue;
        CUresult result = cuda.cuCtxSynchronize();
        if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            error = -EBUSY;
        (void)cuda.cuCtxPopCurrent_v2(&popped);
    }
    return error;
}

static void *drain(void *argument)
{
    (void)argument;
    (void)prctl(PR_SET_NAME, "vgpu-drain");
    struct capture_relaxed former = capture_relax();
    store_relaxed(&world.drained, wait_for_contexts());
    capture_restore(&former);
    if (!swap_seq_cst(&world.drain, (uint32_t)DRAIN_WORKS, (uint32_t)DRAIN_DONE))
        store_release(&world.drain, (uint32_t)DRAIN_NONE);
    word_wake(&world.drain);
    return NULL;
}

static uint64_t left_of(uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns();
    return now < deadline_ns ? deadline_ns - now : 0;
}

static int wait_for_work(uint64_t deadline_ns)
{
    uint64_t left;
    store_release(&world.drain, (uint32_t)DRAIN_WORKS);
    if (!own_thread_start(drain)) {
        store_release(&world.drain, (uint32_t)DRAIN_NONE);
        return -ETIMEDOUT;
    }
    while (load_acquire(&world.drain) == DRAIN_WORKS && (left = left_of(deadline_ns)) != 0 &&
           !load_acquire(&world.finished))
        word_wait_for(&world.drain, DRAIN_WORKS, left < END_NS / 10 ? left : END_NS / 10);
    if (swap_seq_cst(&world.drain, (uint32_t)DRAIN_WORKS, (uint32_t)DRAIN_LEFT))
        return -ETIMEDOUT;
    store_release(&world.drain, (uint32_t)DRAIN_NONE);
    return load_relaxed(&world.drained);
}

static int wait_for_calls(uint64_t deadline_ns)
{
    uint64_t pause_ns = LOOK_NS;
    while (has_calls()) {
        if (!left_of(deadline_ns))
            return -ETIMEDOUT;
        if (load_acquire(&world.finished))
            return -ESHUTDOWN;
        sleep_ns(pause_ns);
        pause_ns = 2 * pause_ns < LOOK_MOST_NS ? 2 * pause_ns : LOOK_MOST_NS;
    }
    return 0;
}

/* ---- the stop ---- */

void world_note_capture(int by)
{
    (void)add_seq_cst(&world.captures, by);
}

bool world_captures(void)
{
    return load_seq_cst(&world.captures) > 0;
}

static void open_gate(void)
{
    store_release(&world.gate, (uint32_t)OPEN);
    word_wake(&world.gate);
}

static int come_to_rest(uint64_t deadline_ns)
{
    int error = wait_for_calls(deadline_ns);
    if (!error && (world_captures() || !knows_contexts()))
        error = -EBUSY;
    if (!error)
        error = wait_for_work(deadline_ns);
    return !error && load_acquire(&world.finished) ? -ESHUTDOWN : error;
}

/* The thread of an earlier stop may still wait for what ended only now. */
static bool drainer_is_free(uint64_t deadline_ns)
{
    uint32_t drain;
    while ((drain = load_acquire(&world.drain)) != DRAIN_NONE && !load_acquire(&world.finished)) {
        uint64_t left = left_of(deadline_ns);
        if (!left)
            return false;
        word_wait_for(&world.drain, drain, left < END_NS / 10 ? left : END_NS / 10);
    }
    return true;
}

int world_stop(uint64_t timeout_ns)
{
    uint64_t deadline_ns = clock_now_ns() + timeout_ns;
    if (load_acquire(&world.finished))
        return -ESHUTDOWN;
    if (world_captures() || !swap_seq_cst(&world.stopped, (uint32_t)0, (uint32_t)1))
        return -EBUSY;
    int error = drainer_is_free(deadline_ns) ? 0 : -ETIMEDOUT;
    if (!error) {
        store_seq_cst(&world.gate, (uint32_t)CLOSED);
        error = come_to_rest(deadline_ns);
    }
    if (error)
        world_start();
    return error;
}

void world_start(void)
{
    open_gate();
    store_release(&world.stopped, (uint32_t)0);
    word_wake(&world.stopped);
}

bool world_is_stopped(void)
{
    return load_acquire(&world.gate) == CLOSED;
}

bool world_is_finished(void)
{
    return load_acquire(&world.finished);
}

void world_finish(void)
{
    uint64_t deadline = clock_now_ns() + END_NS, left;
    store_seq_cst(&world.finished, true);
    while (load_acquire(&world.stopped) && (left = left_of(deadline)) != 0)
        word_wait_for(&world.stopped, 1, left);
    open_gate();
}
