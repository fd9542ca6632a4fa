/* SPDX-License-Identifier: Apache-2.0 */
/* The governor's spot checks (compute/spot_check.h). */
#ifndef VGPU_PACE_SPOT_CHECK_H
#define VGPU_PACE_SPOT_CHECK_H

#include "pace/events.h"

#include <stdbool.h>
#include <stdint.h>

extern bool spot_check_distrusted[];

/* Whether each launch on the device is measured: what was admitted by estimate took longer than it
 * was charged with. One load. */
static inline bool spot_check_distrusts(unsigned device)
{
    return load_relaxed(&spot_check_distrusted[device]);
}

/* Work on the device was charged, with the number of launches that ended with it. */
void spot_check_charged(unsigned device, const struct meter_charge *charge) REQUIRES(meters_lock);

/* Whether the device has work on its way that was admitted by estimate (pace/thread.h) and has no
 * event. Under meters_lock. */
typedef bool spot_check_works_function(int device);

/* The governor's own, this and what follows. Whether it asks at this look; once it has polled, it
 * does. */
bool spot_check_is_due(unsigned device, uint64_t now_ns);
void spot_check_take(unsigned device, uint64_t now_ns, spot_check_works_function *estimated_works)
    REQUIRES(meters_lock);

/* The governor will look again after `pause_ns`. Returns after how long it shall, so that it asks
 * at a moment on which the program has no influence. `calm`: a little later is fine. */
uint64_t spot_check_plan(unsigned device, uint64_t now_ns, uint64_t pause_ns, bool calm);

/* The governor rests because nothing works; or channels are closed for some of the time, and
 * nothing is asked. */
void spot_check_pause(unsigned device, bool rests);

/* In a forked child. */
void spot_check_reset(void);

#endif
