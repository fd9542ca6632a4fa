/* SPDX-License-Identifier: Apache-2.0 */
/* The to-allocate annotation after an Allocate: what was served is taken out, in one PATCH for all
 * containers of the call. Pure. */
#ifndef VGPU_CLUSTER_ERASE_H
#define VGPU_CLUSTER_ERASE_H

#include "cluster/allocate_match.h"
#include "cluster/pod_devices.h"

#include <stdbool.h>
#include <stddef.h>

/* Empties the slots of the steps, and keeps all places. The new value; the caller frees it. NULL
 * without memory. */
char *erase_steps(struct pod_devices *left, const struct allocate_step *steps, size_t step_count);

/* Whether all containers of a Pod have been served: the value (NULL: no annotation) does not
 * contain the vendor's common word. What is left of separators differs between writers. */
bool erase_is_done(const char *to_allocate);

#endif
