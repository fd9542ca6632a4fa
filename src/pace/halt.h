/* SPDX-License-Identifier: Apache-2.0 */
/* The halt: while it lasts no thread of the process begins a call of the driver, because another
 * process checkpoints it (vmem/park.h). The driver crashes a process that asks or waits for the GPU
 * meanwhile (docs/decisions/0023-checkpoint-calls.md), and does not restore one that makes host
 * memory.
 *
 * Hooks that call the driver are counted in and out, as are the library's own threads: a halt
 * begins when none is on its way. Where a hook waits for something else than the driver it is
 * counted out meanwhile. Calls that give the GPU work are counted by the world's gate
 * (vmem/world.h). Functions of the driver that are not replaced look as they begin
 * (hook/door/door_hold.h): one that had looked before is in the driver within 10 ms, and the
 * driver's lock waits for it.
 *
 * Only where oversubscription is asked for: else nothing is counted, and no call waits. */
#ifndef VGPU_PACE_HALT_H
#define VGPU_PACE_HALT_H

#include "base/atomic.h"

#include <stdbool.h>
#include <stdint.h>

/* Written by this module alone. */
extern bool halt_is_counted;
extern uint32_t halt_lasts;

void halt_wait_slow(void);
void halt_enter_slow(void);
bool halt_try_enter_slow(void);
void halt_leave_slow(void);
unsigned halt_suspend_slow(void);
void halt_resume_slow(unsigned depth);

/* Blocks while the halt lasts, unless the thread is counted in; at the end of the process, never.
 * Then counts it in. Nested calls of a thread count as one. Keeps errno. True: halt_leave is to
 * follow. */
static inline bool halt_enter(void)
{
    bool counts = __builtin_expect(load_relaxed(&halt_is_counted), false);
    if (counts)
        halt_enter_slow();
    return counts;
}

/* False, at once, while the halt lasts. For the library's own threads; halt_leave(true) is to
 * follow. */
static inline bool halt_try_enter(void)
{
    return !__builtin_expect(load_relaxed(&halt_is_counted), false) || halt_try_enter_slow();
}

static inline void halt_leave(bool entered)
{
    if (__builtin_expect(entered, false) && load_relaxed(&halt_is_counted))
        halt_leave_slow();
}

static inline void halt_guard_end(const bool *entered)
{
    halt_leave(*entered);
}

/* Counts the thread in until the block ends. */
#define HALT_GUARD()                                                                               \
    __attribute__((cleanup(halt_guard_end), unused)) const bool halt_entered = halt_enter()

/* Around a wait for something else than the driver, in which none is called: counts the thread out,
 * and in again as deep as it was. */
static inline unsigned halt_suspend(void)
{
    return __builtin_expect(load_relaxed(&halt_is_counted), false) ? halt_suspend_slow() : 0;
}

static inline void halt_resume(unsigned depth)
{
    if (__builtin_expect(depth != 0, false))
        halt_resume_slow(depth);
}

/* Begins it. False, and it has not begun, where a call that was counted in is still on its way
 * after `timeout_ns`, or the process ends. By a thread that is not counted in; one at a time. */
bool halt_begin(uint64_t timeout_ns) __attribute__((warn_unused_result));
void halt_end(void);

/* The process ends: no thread is held any more. */
void halt_finish(void);

/* The start of a process or of a forked child. */
void halt_reset(void);

#endif
