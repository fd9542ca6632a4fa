/* SPDX-License-Identifier: Apache-2.0 */
/* A file lock and a guard window. */
#include "region/region_edit.h"

#include "base/atomic.h"
#include "base/file_lock.h"
#include "base/guard.h"
#include "region/region_file.h"

#include <errno.h>

int region_edit_begin(struct region *region)
{
    if (region->pinned)
        return -EPERM;
    int error = file_lock_wait(region->fd, VGPU_REGION_OFFSET, REGION_INITIALISER_WAIT_NS);
    if (!error)
        guard_enter();
    return error;
}

int region_edit_end(struct region *region, int error)
{
    guard_leave();
    file_lock_drop(region->fd, VGPU_REGION_OFFSET);
    return load_acquire(&region->lost) ? -EIO : error;
}
