/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out whether kernels of the container's devices wait for each other (compute/gang.h). */
#ifndef VGPU_PACE_GANG_H
#define VGPU_PACE_GANG_H

#include "pace/events.h"
#include "compute/meter.h"

/* The front event of a meter of the device was reached at `at_ns`: before meter_pass. */
void gang_note(int device, const struct stream_meter *meter, uint64_t at_ns) REQUIRES(meters_lock);

/* Says in the log, once, that the devices are a gang. */
void gang_tell(void);

/* In a forked child. */
void gang_reset(void);

#endif
