/* SPDX-License-Identifier: Apache-2.0 */
/* The container's channels, as this process takes them off the GPU and lets them on again
 * (rm/rm_channels.h), and when they were: for the meter. The governor closes them; whoever finds
 * them closed for longer than they ought to be opens them.
 *
 * While they are closed nothing here calls libcuda, or takes a lock under which it is called: a
 * thread of the program may hold the driver's locks and wait for the GPU. */
#ifndef VGPU_PACE_CHANNELS_H
#define VGPU_PACE_CHANNELS_H

#include "base/atomic.h"
#include "compute/closed.h"

#include <stdbool.h>
#include <stdint.h>

/* When channels that are closed must be open again at the latest, or what holds them closed was
 * last seen; 0: none is closed. */
extern uint64_t channels_due_ns;

static inline bool channels_are_due(void)
{
    return load_relaxed(&channels_due_ns) != 0;
}

/* For the governor: closes what is open, due to be open again at `due_ns`; launches wait as well.
 * `bound`: no device at or above it was worked on. */
void channels_close_all(uint64_t due_ns, unsigned bound);
void channels_open_all(void);
/* Somebody held them open when they were to be closed last. */
bool channels_are_held(void);
/* Says in the log, once, whether the device's can be closed. */
void channels_tell(unsigned device);

/* Whether the device's are closed now. */
bool channels_are_closed(unsigned device);

/* When they were. */
struct closed_times *channels_closed_times(unsigned device);

/* By what the process can be kept to a limit on the device (enum vgpu_gate): said beside its use,
 * for tools. */
uint64_t channels_gate(unsigned device);

/* Around what waits for the GPU inside the driver: a context goes or is reset. Channels that are
 * closed are opened, and stay so; afterwards the governor closes them again, where that is still
 * due. Not for longer than until 0.5 s of GPU time is overdrawn, or for 1 s of a pause. */
void channels_hold_open(void);
void channels_let_close(void);

/* A launch waits because the container may not work. Whoever holds it back says each few
 * milliseconds that it is so still; if not, it is overdue from now on. */
void channels_note_held(void);

/* Opens them where they were due 100 ms ago and the container is not paused. Keeps errno. */
void channels_open_overdue(void);

/* Any hooked call: the governor may be kept from running. */
static inline void channels_look_after(void)
{
    if (__builtin_expect(channels_are_due(), 0))
        channels_open_overdue();
}

/* The process ends: all is opened for good. */
void channels_finish(void);

/* In a forked child. */
void channels_reset(void);

#endif
