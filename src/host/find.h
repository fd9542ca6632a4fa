/* SPDX-License-Identifier: Apache-2.0 */
/* Where the regions of this machine's containers lie. */
#ifndef VGPU_HOST_FIND_H
#define VGPU_HOST_FIND_H

#include <stdbool.h>
#include <stddef.h>

/* The variable with a list of places, which the option --search takes the place of. */
#define FIND_VARIABLE "VGPU_REGION_PATH"

/* Files that may be regions, each once by its name. */
struct finds {
    char **paths; /* from malloc */
    size_t count, room;
    bool processes; /* what processes map is to be looked at as well */
};

/* Goes through `search`, else the variable, else the default: a list separated by colons, of files
 * and patterns (glob(7)); of a directory all its files. An empty item stands for the default, which
 * is where HAMi, Volcano, vgpu-controller, an administrator and `vgpu run` put regions, the one
 * that a program started here would have, and those that processes map. Opens nothing. Returns 0 or
 * -ENOMEM. */
int find_regions(const char *search, struct finds *ret_finds) __attribute__((warn_unused_result));

void find_free(struct finds *finds);

#endif
