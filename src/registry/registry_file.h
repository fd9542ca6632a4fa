/* SPDX-License-Identifier: Apache-2.0 */
/* The registry's file: opened safely, checked, made where it is missing. */
#ifndef VGPU_REGISTRY_REGISTRY_FILE_H
#define VGPU_REGISTRY_REGISTRY_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* "<directory>/vgpu-board-<uuid>". Returns 0, -ENOENT for an empty directory, -ENAMETOOLONG, or
 * -EINVAL for a UUID that has other characters than letters, digits and "-". */
int registry_file_path(const char *directory, const char *uuid, char *ret_path, size_t path_bytes)
    __attribute__((warn_unused_result));

/* Opens the registry, for reading and writing, close-on-exec, at a high number. Where it is missing
 * and `make` says so it is made whole, mode 0666, under another name and then linked to this one:
 * no process ever sees half of it, and what exists is never replaced. A process that finds a file
 * that is blank (empty, or zeros alone), or a registry whose end was cut off, makes it whole (with
 * `make`). Never blocks, and never follows a symbolic link at the name. Returns the descriptor, or
 * -errno: -EPROTO for what is no registry, and is left as it is. */
int registry_file_open(const char *path, bool make) __attribute__((warn_unused_result));

#endif
