/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a container's grant on its node (include/vgpu/grant.h). Not part of the library. */
#ifndef VGPU_REGION_GRANT_WRITE_H
#define VGPU_REGION_GRANT_WRITE_H

#include "vgpu/grant.h"

#include <stdbool.h>

/* What the caller fills: all but magic, version, byte_order, size, sequence, and `lifted`, which is
 * the monitor's: it stays as it is where the file exists. */

/* Makes `directory`/grant, mode 0644, or changes it in place where it exists, so that a process
 * that has mapped it sees the change; what the file had before is not kept. `directory` exists and
 * only root may write it, and its parent, by whose lock writers take turns. Returns 0, or -errno:
 * what was there before then still holds, or a new file has no magic and closes all devices. */
int grant_write(const char *directory, const struct vgpu_grant *grant)
    __attribute__((warn_unused_result));

/* Says in `directory`/grant whether compute limits hold for now; writes nothing where it says so
 * already. Returns 0, or -errno as grant_write_read. */
int grant_write_lifted(const char *directory, bool lifted) __attribute__((warn_unused_result));

/* Reads `directory`/grant whole. Returns 0, -ENOENT, -EPROTO where it is no grant, or -errno. */
int grant_write_read(const char *directory, struct vgpu_grant *ret_grant)
    __attribute__((warn_unused_result));

#endif
