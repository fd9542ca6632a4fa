/* SPDX-License-Identifier: Apache-2.0 */
/* The world stop: while the world is stopped no call of this process submits work to a GPU, and
 * what it submitted before is done, so that the library may move its memory. Only where
 * oversubscription is asked for: else nothing is counted, and no call waits.
 *
 * Calls that submit work enter before and leave after the driver's call. Any thread; nested calls
 * of a thread count as one and never wait. */
#ifndef VGPU_VMEM_WORLD_H
#define VGPU_VMEM_WORLD_H

#include "abi/cuda.h"
#include "base/atomic.h"
#include "pace/capture.h"

#include <stdbool.h>
#include <stdint.h>

/* Oversubscription is asked for. Written by this module alone. */
extern bool world_is_counted;

/* Blocks while the world is stopped; at the end of the process, never. Keeps errno. */
void world_enter_slow(void);
void world_enter_to_ask_slow(void);
void world_leave_slow(void);

/* True: world_leave(true) is to be called. */
static inline bool world_enter(void)
{
    bool counts = __builtin_expect(load_relaxed(&world_is_counted), false);
    if (counts)
        world_enter_slow();
    return counts;
}

/* The same for a call that asks of memory and gives the GPU no work: it waits while memory moves,
 * and for nothing else. */
static inline bool world_enter_to_ask(void)
{
    bool counts = __builtin_expect(load_relaxed(&world_is_counted), false);
    if (counts)
        world_enter_to_ask_slow();
    return counts;
}

static inline void world_leave(bool entered)
{
    if (__builtin_expect(entered, false))
        world_leave_slow();
}

/* Waits as world_enter does (world_ask_before), and enters nothing: before work is admitted to the
 * stream, because this wait is no GPU time. */
void world_wait_slow(CUstream stream, enum stream_zero zero);

static inline void world_wait(CUstream stream, enum stream_zero zero)
{
    if (__builtin_expect(load_relaxed(&world_is_counted), false))
        world_wait_slow(stream, zero);
}

/* To be called by a `before` (world_ask_before) that is about to block: the stream's meter does not
 * take the wait for GPU time. */
void world_note_wait(void);

static inline CUresult world_left(bool entered, CUresult result)
{
    world_leave(entered);
    return result;
}

/* Stops it: closes the gate, waits for calls that are on their way, then for the work of all
 * contexts of the process. Returns 0, or with the world going on as before:
 *   -EBUSY      another thread has stopped it, or a stream captures
 *   -ETIMEDOUT  a call did not return, or work (a kernel that waits for the host, or that never
 *               ends) is still running after `timeout_ns`
 *   -ESHUTDOWN  the process ends
 * The work is waited for by a thread of its own, which a kernel without end keeps: a later call
 * first waits for that to be over, within its time, while the world goes on. Not by a thread that
 * has entered. */
int world_stop(uint64_t timeout_ns) __attribute__((warn_unused_result));

/* Lets it go on. By the thread that stopped it. */
void world_start(void);

bool world_is_stopped(void);

/* The process ends: a thread that has stopped the world must let it go on soon. */
bool world_is_finished(void);

/* How many calls have entered so far: where it stays, nothing was submitted. */
uint64_t world_entries(void);

/* The parts of the library that may have threads wait before they enter. */
enum world_asker { WORLD_FREEZE, WORLD_TURN, WORLD_ASKERS };

/* While asked to, each thread calls `before` before it enters, which may block (for memory to come
 * back, for a turn): a thread that does is not one that has entered. NULL: no longer. */
void world_ask_before(enum world_asker asker, void (*before)(void));

/* A context of the process came to be, or is about to end: its work is waited for in between. */
void world_add_context(uint64_t context);
void world_remove_context(uint64_t context);

/* After a call by which the thread's current context may be another one: adds it. Returns
 * `result`. */
CUresult world_context_changed_slow(CUresult result);

static inline CUresult world_context_changed(CUresult result)
{
    return __builtin_expect(load_relaxed(&world_is_counted), false)
               ? world_context_changed_slow(result)
               : result;
}

/* A capture began (1) or ended (-1); whether one goes on. */
void world_note_capture(int by);
bool world_captures(void);

/* The process ends: no thread is held any more, and the world is not stopped again. Waits 1 s at
 * most for the thread that has stopped it. */
void world_finish(void);

/* The start of a process or of a forked child. */
void world_reset(void);

#endif
