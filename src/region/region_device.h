/* SPDX-License-Identifier: Apache-2.0 */
/* The container's devices in the region, and where their limits come from. All functions need the
 * caller's lock where several threads share the region, except region_device_known. */
#ifndef VGPU_REGION_REGION_DEVICE_H
#define VGPU_REGION_REGION_DEVICE_H

#include "region/mapping.h"

#include <stdbool.h>
#include <stdint.h>

#define REGION_INDEX_AS_MET                                                                        \
    (-2) /* the position in the list cannot be told: devices count as met                          \
          */

/* Within a window: enters the device `uuid`, with the configuration's limits for the container's
 * index-th device (-1: not in its list) where the file has none for it yet. Returns the device's
 * number, -ENOSPC where a table is full, -ENAMETOOLONG for a UUID that does not fit, or another
 * -errno where the file cannot be locked. */
int region_device(struct region *region, const char *uuid, int index)
    __attribute__((warn_unused_result));

/* The number of a device that was entered, or -ENOENT. Any thread, without lock. */
int region_device_known(const struct region *region, const char *uuid)
    __attribute__((warn_unused_result));

/* Within a window: enters all known devices again, after the file was made anew, with the limits
 * that it then has, or else those last seen. Under the initialiser's lock. */
void region_devices_again(struct region *region);

/* Within a window, under the initialiser's lock: takes the environment's limits into a region whose
 * rules allow it (docs/region.md, "Limits"). `fresh`: the file was made just now. */
void region_settings_take(struct region *region, bool fresh);

/* Within a window: the file's entry of the device, NULL where it has none and can have none.
 * Remembers its limits; enters the device again where others made the file anew; gives it this
 * process's limits where it never had any and the region by now has. */
struct vgpu_device *region_device_entry(struct region *region, unsigned number);

/* Within a window: the container's id on the device's registry, made where it has none. 0 where the
 * file has no entry of the device. */
uint64_t region_device_tenant(struct region *region, unsigned number);

#endif
