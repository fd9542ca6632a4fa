/* SPDX-License-Identifier: Apache-2.0 */
/* The executable graphs that take memory, by handle. Any thread. */
#ifndef VGPU_MEMORY_GRAPH_EXECS_H
#define VGPU_MEMORY_GRAPH_EXECS_H

#include "memory/graph.h"

#include <stdbool.h>

struct graph_exec {
    struct graph_needs needs;
    bool frees_itself; /* what the launch before left goes first */
    bool launched;
    uint64_t context; /* that it goes with; 0: not asked, it takes no managed memory */
};

/* A graph that takes no memory is not kept. A handle that comes again, as after its context was
 * destroyed, means the new graph. */
void graph_execs_put(CUgraphExec handle, const struct graph_exec *exec);

/* False where it is not kept. */
bool graph_execs_get(CUgraphExec handle, struct graph_exec *ret_exec);

void graph_execs_note_launched(CUgraphExec handle);
void graph_execs_forget(CUgraphExec handle);

/* In a forked child. */
void graph_execs_reset(void);

#endif
