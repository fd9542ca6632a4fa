/* SPDX-License-Identifier: Apache-2.0 */
/* Whose container a region is: written by the first of its processes whose environment says so, and
 * read by tools. */
#ifndef VGPU_REGION_REGION_IDENTITY_H
#define VGPU_REGION_REGION_IDENTITY_H

#include "region/mapping.h"

/* Each terminated, and fit to be printed: a control character, and what is no UTF-8, as an escape
 * (base/text.h). Empty where it was not said. */
struct region_identity {
    char pod_name[256];
    char pod_namespace[64];
    char pod_uid[64];
    char container_name[64];
};

/* What the region says, whatever somebody wrote into it; false where nobody said anything, or it is
 * being written. `identity` in a mapping (within a window, base/guard.h) or in a copy of the file.
 */
bool region_identity_read(
    const struct vgpu_identity *identity, struct region_identity *ret_identity);

/* The process's attachment, within a window, under the initialiser's lock: a file that has no
 * identity takes that of the file before it, else the environment's. One that has another than the
 * environment takes the environment's if nobody lives in the container. A writer that was killed
 * leaves state 1, which counts as none: the next process that attaches writes it. */
void identity_take(struct region *region);

/* Within a window: remembers what the mapped file says, for one that takes its place. */
void identity_remember(struct region *region);

#endif
