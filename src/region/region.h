/* SPDX-License-Identifier: Apache-2.0 */
/* Attaching to the container's shared region, and staying attached whatever happens to its file.
 * All functions need the caller's lock where several threads share the region. */
#ifndef VGPU_REGION_REGION_H
#define VGPU_REGION_REGION_H

#include "region/mapping.h"

#include <stdbool.h>

/* Opens, creates where it is missing, checks and maps the region that the configuration means,
 * gives it the configuration's limits where no process of the container lives and they differ from
 * those it holds (or it never held any), and claims a slot: a process that has attached counts as
 * living. `region` and `config` stay in use until region_detach. Blocks at most 2 s on another
 * process that initialises the file. Returns 0, or -errno after one log line naming the file:
 * -EPROTO the file is not a region of ours, -EACCES, -EROFS, -ENOSPC and the like as the kernel
 * said. */
int region_attach(struct region *region, const struct config *config)
    __attribute__((warn_unused_result));

/* As region_attach, for another attempt: not a word in the log, and it blocks at most 0.1 s. */
int region_attach_again(struct region *region, const struct config *config)
    __attribute__((warn_unused_result));

/* As region_attach for a file that exists, without limits, without a slot and without a word in the
 * log (for tools). */
int region_open(struct region *region, const char *path) __attribute__((warn_unused_result));

/* Gives the slot back, unmaps and closes; accepts a region that is not attached. */
void region_detach(struct region *region);

/* What a forked child does with its parent's: as region_detach, but the descriptor stays open,
 * because the parent's slot is locked through it. */
void region_abandon(struct region *region);

/* Makes sure that the file still is the one that new processes of the container find, and whole.
 * Where it was deleted, replaced or shortened, moves to the file at the path, made anew where there
 * is none, with the limits last seen; where the program closed our descriptor, opens the file
 * again. One fstat where all is well. Returns 0, or -errno where there is nothing to share (tried
 * again every 10 ms). */
int region_keep(struct region *region) __attribute__((warn_unused_result));

/* Whether region_keep found all well within the last 0.25 ms: then a charge may do without it. A
 * refusal, and what needs the descriptor, may not. */
bool region_was_kept(const struct region *region);

#endif
