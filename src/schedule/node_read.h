/* SPDX-License-Identifier: Apache-2.0 */
/* A Node object's annotations as the scheduler reads them. Pure. */
#ifndef VGPU_SCHEDULE_NODE_READ_H
#define VGPU_SCHEDULE_NODE_READ_H

#include "net/error.h"
#include "schedule/usage.h"

#include <jansson.h>

#define NODE_READ_DEVICES "hami.io/node-nvidia-register"
#define NODE_READ_SCORES "hami.io/node-nvidia-score"
#define NODE_READ_CORDON "hami.io/device-cordon"

/* Sets the node as metadata.annotations say; one without devices is not registered. Returns 0;
 * -EINVAL or -E2BIG for a register annotation that is wrong (the node is not registered any more),
 * and for scores that are wrong (it is registered without them); -ENOMEM (it is as before). */
int node_read(struct usage *usage, const char *name, const json_t *annotations, struct error *error)
    __attribute__((warn_unused_result));

#endif
