/* SPDX-License-Identifier: Apache-2.0 */
/* What a wish for other limits (cluster/limits_wish.h) does to a device's limits. Pure. */
#ifndef VGPU_NODE_ALLOCATION_LIMITS_H
#define VGPU_NODE_ALLOCATION_LIMITS_H

#include "cluster/limits_wish.h"
#include "node/allocation/allocation_record.h"

#include <stdbool.h>

/* The limits that then hold for a device: the wish where it is not more than was given, or
 * `may_raise`; else what was given. Returns whether a wish for more was refused. */
bool allocation_limits_apply(
    struct allocation_device *device, const struct limits_wish *wish, bool may_raise);

#endif
