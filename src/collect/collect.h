/* SPDX-License-Identifier: Apache-2.0 */
/* What the containers of this machine do, by their regions: filled into structs, for the program
 * that shows them. Prints nothing, writes nothing, waits for no program that it looks at. */
#ifndef VGPU_COLLECT_COLLECT_H
#define VGPU_COLLECT_COLLECT_H

#include "collect/collection.h"

/* What to look at. Without files and pid: what find_regions finds. */
struct collect_choice {
    const char *search; /* as find_regions has it; NULL: by the environment */
    const char *const *files;
    size_t file_count;
    unsigned pid; /* not 0: only the containers of this process */
    bool all;     /* also regions in which no process lives */
};

/* Looks once. Returns 0, or -ENOMEM. Uses threads of its own, which have ended then. */
int collect(const struct collect_choice *choice, struct collection *ret_collection)
    __attribute__((warn_unused_result));

/* Reads the region that `fd` is open on; keeps the descriptor open. `path` is taken over where it
 * succeeds. `own_namespace`: of this
 * process's pids; 0: no process is looked for in /proc. Returns 0, -ENOMEM, or -errno as
 * region_read.
 */
int collect_region(int fd, char *path, uint64_t own_namespace,
    struct collected_container *ret_container) __attribute__((warn_unused_result));

#endif
