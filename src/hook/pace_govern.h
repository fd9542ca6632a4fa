/* SPDX-License-Identifier: Apache-2.0 */
/* What the governor does (limit/governor.h): it harvests marks while the program's threads are
 * elsewhere, says on the boards that we are at work, and takes the container's channels off the GPU
 * and lets them on again: in windows where something runs that the launch gate cannot hold, and for
 * as long as the container is paused or somebody of higher priority works.
 *
 * While channels are closed nothing here calls libcuda, or takes a lock under which it is called: a
 * thread of the program may hold the driver's locks and wait for the GPU. Whoever finds channels
 * closed for longer than they ought to be opens them. */
#ifndef VGPU_HOOK_PACE_GOVERN_H
#define VGPU_HOOK_PACE_GOVERN_H

#include "base/atomic.h"
#include "limit/closed.h"

#include <stdbool.h>
#include <stdint.h>

/* From now on the governor watches; it is made where there is none. One load where it is awake.
 * Without a compute limit there is nothing to measure, but the container may be paused: it then
 * sleeps until it is told something. */
void govern_watch(void);

/* A launch is held back by the limit: a governor that rests looks at once. */
void govern_note_wait(unsigned device, uint64_t now_ns);

/* Work is let go. */
void govern_note_work(unsigned device, uint64_t now_ns);

/* It has gone, and its mark is recorded: a governor that rests because nothing worked looks at
 * once, so that the neighbours hear of it. */
void govern_rouse(void);

/* Somebody else harvested. */
void govern_harvested(uint64_t now_ns);

/* Whether the device's channels are closed now. */
bool govern_is_closed(unsigned device);

/* When they were: for the meter. */
struct closed_times *govern_closed_times(unsigned device);

/* Around what waits for the GPU inside the driver: a context goes or is reset. Channels that are
 * closed are opened, and stay so; afterwards the governor closes them again, where that is still
 * due.
 */
void govern_hold_open(void);
void govern_let_close(void);

/* A launch waits because the container may not work. Whoever holds it back says each few
 * milliseconds that it is so still; if not, it is overdue from now on. */
void govern_note_held(void);

/* When channels that are closed must be open again at the latest, or what holds them closed was
 * last seen; 0: none is closed. */
extern uint64_t govern_due_ns;
/* Opens them where that is 100 ms ago and the container is not paused. Keeps errno. */
void govern_open_overdue(void);

/* Any hooked call: the governor may be kept from running. */
static inline void govern_look_after(void)
{
    if (__builtin_expect(load_relaxed(&govern_due_ns) != 0, 0))
        govern_open_overdue();
}

/* The process ends: all is opened for good. */
void govern_finish(void);

/* In a forked child. */
void govern_reset(void);

#endif
