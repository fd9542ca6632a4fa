/* SPDX-License-Identifier: Apache-2.0 */
/* What a node's grants say of a region: whose container it is, which no program of it can change.
 */
#ifndef VGPU_COLLECT_COLLECT_GRANT_H
#define VGPU_COLLECT_COLLECT_GRANT_H

#include "collect/collection.h"

#include <sys/stat.h>

/* Where the region at `path` (below .../containers/<name>/, or .../grants/<id>/account) is one that
 * vgpu-device-plugin has made: the Pod's names, and whether its compute limits are lifted, from the
 * grant beside the account that is the same file. Else nothing is changed. */
void collect_grant(
    const char *path, const struct stat *status, struct collected_container *container);

#endif
