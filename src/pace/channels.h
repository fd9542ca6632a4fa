/* SPDX-License-Identifier: Apache-2.0 */
/* The container's channels, as this process takes them off the GPU and lets them on again
 * (rm/rm_channels.h), and when it did: for the meter. The governor closes them; any thread that
 * finds them closed for too long opens them.
 *
 * While they are closed nothing here calls libcuda, or takes a lock under which it is called: a
 * thread of the program may hold the driver's locks and wait for the GPU. */
#ifndef VGPU_PACE_CHANNELS_H
#define VGPU_PACE_CHANNELS_H

#include "base/atomic.h"
#include "compute/closed.h"

#include <stdbool.h>
#include <stdint.h>

/* When closed channels must be open again at the latest, or when what holds them closed was last
 * seen; 0: none is closed. */
extern uint64_t channels_due_ns;

static inline bool channels_are_due(void)
{
    return load_relaxed(&channels_due_ns) != 0;
}

/* For the governor: closes what is open until `due_ns`; launches wait as well. `bound`: no device
 * at or above it has work. */
void channels_close_all(uint64_t due_ns, unsigned bound);
void channels_open_all(void);
/* A thread held them open when they were last to be closed. */
bool channels_are_held(void);
/* Says in the log, once, whether the device's channels can be closed. */
void channels_tell(unsigned device);

/* Whether the device's channels are closed now. */
bool channels_are_closed(unsigned device);

/* When they were closed. */
struct closed_times *channels_closed_times(unsigned device);

/* Which gate keeps the process to a limit on the device (enum vgpu_gate): shown beside its use, for
 * tools. */
uint64_t channels_gate(unsigned device);

/* Around a call that waits for the GPU inside the driver: a context ends or is reset. Closed
 * channels are opened and stay open; afterwards the governor closes them again, if that is still
 * due. At most until 0.5 s of GPU time is overdrawn, or for 1 s of a pause. */
void channels_hold_open(void);
void channels_let_close(void);

/* A launch waits because the container is held. The thread that holds it back calls this every few
 * milliseconds; without it the hold is overdue from then on. */
void channels_note_held(void);

/* Opens channels that were due 100 ms ago, unless the container is paused. Keeps errno. */
void channels_open_overdue(void);

/* In each hooked call: the governor may not get to run. */
static inline void channels_look_after(void)
{
    if (__builtin_expect(channels_are_due(), 0))
        channels_open_overdue();
}

/* The process ends: all channels are opened for good. */
void channels_finish(void);

/* In a forked child. */
void channels_reset(void);

#endif
