/* SPDX-License-Identifier: Apache-2.0 */
/* What a graph's launch may take, reserved until the pools tell their size. Managed memory is
 * charged from the first launch until the graph is destroyed; what the graph does not free itself,
 * until the program does. Any thread. */
#ifndef VGPU_MEMORY_GRAPH_TAKING_H
#define VGPU_MEMORY_GRAPH_TAKING_H

#include "memory/context_memory.h"
#include "memory/graph_execs.h"
#include "memory/memory.h"
#include "memory/pools.h"

#include <stdbool.h>

struct graph_taking {
    struct memory_request managed[VGPU_REGION_DEVICES];
    CUdevice managed_ordinals[VGPU_REGION_DEVICES];
    unsigned managed_count;
    struct memory_request requests[VGPU_REGION_DEVICES];
    struct pool_growth foreseen[VGPU_REGION_DEVICES];
    CUdevice ordinals[VGPU_REGION_DEVICES];
    unsigned count;
    struct context_growth growth;
};

/* Before the driver takes it. handle NULL: a graph that is being instantiated. False: it does not
 * fit, and there is nothing to end. */
bool graph_taking_begin(struct graph_taking *taking, CUgraphExec handle,
    const struct graph_exec *exec) __attribute__((warn_unused_result));

/* After it. `taken` false: the driver failed. */
void graph_taking_end(
    struct graph_taking *taking, CUgraphExec handle, const struct graph_exec *exec, bool taken);

/* The graph is gone. Where it leaves more than is noted by pointer, that stays charged for good. */
void graph_taking_release(CUgraphExec handle, const struct graph_exec *exec);

#endif
