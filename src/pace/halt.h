/* SPDX-License-Identifier: Apache-2.0 */
/* The halt: while it lasts no thread of the process begins a call of the driver, because another
 * process checkpoints it (vmem/park.h). The driver crashes a process that asks or waits for the GPU
 * meanwhile (docs/decisions/0023-checkpoint-calls.md).
 *
 * Calls that give the GPU work are held by the world's gate (vmem/world.h). Calls that ask or wait,
 * and the library's own threads, are counted in and out: a halt begins when none is on its way. All
 * other calls look once as they begin; one that had looked before is in the driver within the
 * halt's HALT_GRACE_NS, and the driver's lock waits for it.
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

/* Blocks while the halt lasts; at the end of the process, never. Keeps errno. */
static inline void halt_look(void)
{
    if (__builtin_expect(load_relaxed(&halt_lasts), 0))
        halt_wait_slow();
}

/* The same, and counts the thread in; halt_leave is to follow. */
static inline void halt_enter(void)
{
    if (__builtin_expect(load_relaxed(&halt_is_counted), false))
        halt_enter_slow();
}

/* False, at once, while the halt lasts. */
static inline bool halt_try_enter(void)
{
    return !__builtin_expect(load_relaxed(&halt_is_counted), false) || halt_try_enter_slow();
}

static inline void halt_leave(void)
{
    if (__builtin_expect(load_relaxed(&halt_is_counted), false))
        halt_leave_slow();
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
