/* SPDX-License-Identifier: Apache-2.0 */
/* A table of executable graphs. */
#include "memory/graph_execs.h"

#include "base/lock.h"
#include "base/map.h"
#include "base/slab.h"

static struct lock graphs_lock;
static struct slab slab GUARDED_BY(graphs_lock) = {.object_bytes = sizeof(struct graph_exec)};
static struct map by_handle GUARDED_BY(graphs_lock);

void graph_execs_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&graphs_lock);
    slab_finish(&slab);
    map_finish(&by_handle);
}

static bool takes_memory(const struct graph_needs *needs)
{
    bool takes = needs->local_bytes > GRAPH_DEFAULT_LOCAL_BYTES;
    for (unsigned i = 0; i < VGPU_REGION_DEVICES; i++)
        takes = takes || needs->bytes[i] || needs->managed_bytes[i];
    return takes;
}

void graph_execs_put(CUgraphExec handle, const struct graph_exec *exec)
{
    bool takes = takes_memory(&exec->needs);
    LOCKED_TO_END(graphs_lock);
    struct graph_exec *kept = map_get(&by_handle, (uintptr_t)handle);
    if (!kept && takes) {
        kept = slab_take(&slab);
        if (kept && map_put(&by_handle, (uintptr_t)handle, kept) != 0) {
            slab_give(&slab, kept);
            kept = NULL;
        }
    }
    if (kept)
        *kept = *exec;
}

bool graph_execs_get(CUgraphExec handle, struct graph_exec *ret_exec)
{
    LOCKED_TO_END(graphs_lock);
    const struct graph_exec *kept = handle ? map_get(&by_handle, (uintptr_t)handle) : NULL;
    if (kept)
        *ret_exec = *kept;
    return kept != NULL;
}

void graph_execs_note_launched(CUgraphExec handle)
{
    LOCKED_TO_END(graphs_lock);
    struct graph_exec *kept = map_get(&by_handle, (uintptr_t)handle);
    if (kept)
        kept->launched = true;
}

void graph_execs_forget(CUgraphExec handle)
{
    LOCKED_TO_END(graphs_lock);
    struct graph_exec *kept = handle ? map_remove(&by_handle, (uintptr_t)handle) : NULL;
    if (kept)
        slab_give(&slab, kept);
}
