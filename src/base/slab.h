/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of one size, in pages of their own. Not synchronised: the owner's lock guards them. Zero
 * is empty. */
#ifndef VGPU_BASE_SLAB_H
#define VGPU_BASE_SLAB_H

#include <stddef.h>

struct slab {
    size_t object_bytes; /* set by the owner; at least a pointer */
    void *free_list;
    struct slab_chunk *chunks;
};

/* A zeroed object, or NULL where the system has no memory. O(1). */
void *slab_take(struct slab *slab);
void slab_give(struct slab *slab, void *object);

/* Unmaps everything at once. */
void slab_finish(struct slab *slab);

#endif
