/* SPDX-License-Identifier: Apache-2.0 */
/* What the mapping's fields say. */
#include "region/mapping.h"

#include "base/atomic.h"
#include "base/file.h"

bool mapping_is_of(const struct region *region, const struct stat *status)
{
    return status->st_dev == region->device && status->st_ino == region->inode;
}

bool mapping_fd_is_ours(const struct region *region)
{
    struct stat status;
    return region->fd >= 0 && file_status(region->fd, &status) == 0 &&
           mapping_is_of(region, &status);
}

unsigned mapping_slot_bound(const struct region *region)
{
    unsigned high = load_seq_cst(&region->shared->slot_high);
    return high < VGPU_REGION_SLOTS ? high : VGPU_REGION_SLOTS;
}
