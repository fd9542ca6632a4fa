/* SPDX-License-Identifier: Apache-2.0 */
/* The annotation vgpu.io/limits of a running Pod: {"<container>": {"gpumem": MiB, "gpucores":
 * percent}}, of each of the container's devices. Who may edit the Pod may wish for less than it was
 * given, and for that again; for more the scheduler's consent is needed: vgpu.io/grant, a proof
 * (proof.h) over exactly that text. Pure. */
#ifndef VGPU_CLUSTER_LIMITS_WISH_H
#define VGPU_CLUSTER_LIMITS_WISH_H

#include "net/error.h"

#include <stdbool.h>
#include <stdint.h>

#define LIMITS_WISH_ANNOTATION "vgpu.io/limits"
#define LIMITS_WISH_CONSENT "vgpu.io/grant"

struct limits_wish {
    bool has_memory, has_cores;
    int32_t memory_mib;    /* 1 and above */
    int32_t cores_percent; /* 0: no limit */
};

/* What the text (NULL: none) says about a container; nothing where it does not name it. All of the
 * text is checked. Returns 0, -EINVAL or -E2BIG. */
int limits_wish_read(const char *text, const char *container, struct limits_wish *ret_wish,
    struct error *error) __attribute__((warn_unused_result));

#endif
