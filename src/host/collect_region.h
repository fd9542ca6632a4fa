/* SPDX-License-Identifier: Apache-2.0 */
/* One region as a container with its devices and processes. */
#ifndef VGPU_HOST_COLLECT_REGION_H
#define VGPU_HOST_COLLECT_REGION_H

#include "host/collection.h"

/* Reads the region that `fd` is open on; keeps the descriptor open. `path` is taken over where it
 * succeeds. `own_namespace`: of this
 * process's pids; 0: no process is looked for in /proc. Returns 0, -ENOMEM, or -errno as
 * region_read.
 */
int collect_region(int fd, char *path, uint64_t own_namespace,
    struct collected_container *ret_container) __attribute__((warn_unused_result));

#endif
