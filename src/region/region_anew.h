/* SPDX-License-Identifier: Apache-2.0 */
/* A container's region as if none had been there before: for tools. */
#ifndef VGPU_REGION_REGION_ANEW_H
#define VGPU_REGION_REGION_ANEW_H

#include "config/config.h"

#include <stdbool.h>

/* Makes the region that the configuration means, with the limits that it asks for, as a container's
 * first process does. Where there is one in which nobody lives, all that it held is forgotten
 * first: limits that were set while programs ran, a pause, a priority, devices, the words of HAMi's
 * monitor. Limits for all devices then hold as those that are set while programs run; those of
 * single devices (CUDA_DEVICE_MEMORY_LIMIT_<i>) come with the programs that meet the devices. The
 * file stays the same, for the processes that have it mapped or mounted. *ret_was: there was one.
 *
 * Blocks at most 2.1 s, and logs nothing. Returns 0, or -errno with nothing changed: -EBUSY where a
 * process of the container lives, -EPERM where the file is another user's and we are not root,
 * -ETIMEDOUT where others held the initialiser's lock, -EPROTO for what is no region and cannot
 * become one, or another of the kernel's. */
int region_anew(const struct config *config, bool *ret_was) __attribute__((warn_unused_result));

#endif
