/* SPDX-License-Identifier: Apache-2.0 */
/* Making a region anew in its own file. */
#include "region/region_anew.h"

#include "base/atomic.h"
#include "base/file.h"
#include "region/region.h"
#include "region/region_edit.h"
#include "region/region_file.h"
#include "region/region_set.h"
#include "region/slot.h"

#include <errno.h>

/* A process that joins waits for the lock, and finds what is left. Zeros, never a shorter file: the
 * monitor's mapping of it would fault. */
static int blank_where_nobody_lives(struct region *region)
{
    int error = region_edit_begin(region);
    if (error)
        return error;
    if (slot_any_live(region))
        error = -EBUSY;
    else if (!load_acquire(&region->lost))
        error = file_blank(region->fd, (off_t)VGPU_REGION_FILE_BYTES);
    return region_edit_end(region, error);
}

/* What is no region yet is region_attach's to judge. */
static int forget(const struct config *config, bool *ret_was)
{
    static struct region region;
    char path[sizeof(region.path)];
    *ret_was = false;
    int error = region_file_path(config, path, sizeof(path));
    int fd = error ? error : region_file_open(path, false);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    error = region_set_open(&region, fd);
    if (error)
        return error == -EPROTO || error == -ESTALE ? 0 : error;
    error = blank_where_nobody_lives(&region);
    region_detach(&region);
    *ret_was = !error;
    return error;
}

/* Of all devices, so that they also hold for one that a program without these variables meets.
 * Where single devices have limits of their own, these are known only to whose environment has
 * them. */
static int keep_limits(struct region *region, const struct config *config)
{
    struct config_value memory = config_memory_limit(config, -1);
    struct config_value cores = config_core_limit(config, -1);
    struct config_value soft = config_core_soft_limit(config, -1);
    const struct region_change change = {.memory = memory.state == VALUE_SET,
        .memory_bytes = memory.value,
        .cores = cores.state == VALUE_SET,
        .core_percent = (uint32_t)cores.value,
        .soft_cores = soft.state == VALUE_SET,
        .soft_percent = (uint32_t)soft.value};
    if (config_has_indexed_limits(config) || !(change.memory || change.cores))
        return 0;
    return region_set_limits(region, REGION_ALL_DEVICES, &change);
}

int region_anew(const struct config *config, bool *ret_was)
{
    static struct region region;
    bool was;
    int error = forget(config, &was);
    if (!error)
        error = region_attach_again(&region, config);
    if (error)
        return error;
    error = keep_limits(&region, config);
    region_detach(&region);
    if (!error)
        *ret_was = was;
    return error;
}
