/* SPDX-License-Identifier: Apache-2.0 */
/* The monitor's word to the containers (cluster/feedback.h), read from their regions and written
 * into them. Of a container with a grant, priority and devices are the grant's, which it cannot
 * change, and whether its compute limits hold is written there. In the loop's thread. */
#ifndef VGPU_NODE_MONITOR_PRIORITIES_H
#define VGPU_NODE_MONITOR_PRIORITIES_H

#include "node/monitor/containers.h"

/* One tick, as of the last scan. */
void priorities_tick(struct containers *containers);

#endif
