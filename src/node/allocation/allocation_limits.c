/* SPDX-License-Identifier: Apache-2.0 */
#include "node/allocation/allocation_limits.h"

#include <limits.h>

/* Without a limit it is the whole card. */
static int32_t share_of(int32_t cores_percent)
{
    return cores_percent ? cores_percent : INT32_MAX;
}

bool allocation_limits_apply(
    struct allocation_device *device, const struct limits_wish *wish, bool may_raise)
{
    bool refused = false;
    device->memory_mib = device->given.memory_mib;
    device->cores_percent = device->given.cores_percent;
    if (wish->has_memory && (may_raise || wish->memory_mib <= device->memory_mib))
        device->memory_mib = wish->memory_mib;
    else
        refused = wish->has_memory;
    if (wish->has_cores &&
        (may_raise || share_of(wish->cores_percent) <= share_of(device->cores_percent)))
        device->cores_percent = wish->cores_percent;
    else
        refused = refused || wish->has_cores;
    return refused;
}
