/* SPDX-License-Identifier: Apache-2.0 */
/* Small JSON files that are there whole or not at all, also after a crash of the node. */
#ifndef VGPU_NODE_STORE_H
#define VGPU_NODE_STORE_H

#include "net/error.h"

#include <jansson.h>
#include <stddef.h>

/* Writes a new file, syncs it, and renames it to `path` (mode 0600); makes the directory where it
 * is missing. An empty object removes the file. 0 or -errno. */
int store_write(const char *path, const json_t *value, struct error *error)
    __attribute__((warn_unused_result));

/* An object. NULL: error->code ENOENT where there is no file, others where it cannot be read or is
 * no JSON object. */
json_t *store_read(const char *path, size_t bytes_max, struct error *error);

#endif
