/* SPDX-License-Identifier: Apache-2.0 */
/* Changing a region from outside of its container, under its file's lock. */
#ifndef VGPU_REGION_REGION_EDIT_H
#define VGPU_REGION_REGION_EDIT_H

#include "region/mapping.h"

/* Takes the initialiser's lock of the file, for which it waits 2 s at most, and opens a guard
 * window. Returns 0, and region_edit_end must follow; -EPERM for a region that is root's, not ours,
 * or -errno.
 */
int region_edit_begin(struct region *region) __attribute__((warn_unused_result));

/* Ends both. Returns `error`, or -EIO where the file was shortened meanwhile. */
int region_edit_end(struct region *region, int error) __attribute__((warn_unused_result));

#endif
