/* SPDX-License-Identifier: Apache-2.0 */
/* The annotation vgpu.io/limits of a running Pod: {"<container>": {"gpumem": MiB, "gpucores":
 * percent}}, of each of the container's devices. Who may edit the Pod may wish for less than it was
 * given, and for that again; more than that only with the scheduler's consent. Pure. */
#ifndef VGPU_NODE_ALLOCATION_LIMITS_H
#define VGPU_NODE_ALLOCATION_LIMITS_H

#include "net/error.h"
#include "node/allocation/allocation_record.h"

#include <stdbool.h>
#include <stdint.h>

struct allocation_wish {
    bool has_memory, has_cores;
    int32_t memory_mib;    /* 1 and above */
    int32_t cores_percent; /* 0: no limit */
};

/* What the text (NULL: none) says about a container; nothing where it does not name it. All of the
 * text is checked. Returns 0, -EINVAL or -E2BIG. */
int allocation_limits_read(const char *text, const char *container,
    struct allocation_wish *ret_wish, struct error *error) __attribute__((warn_unused_result));

/* The limits that then hold for a device: the wish where it is not more than was given, or
 * `may_raise`; else what was given. Returns whether a wish for more was refused. */
bool allocation_limits_apply(
    struct allocation_device *device, const struct allocation_wish *wish, bool may_raise);

#endif
