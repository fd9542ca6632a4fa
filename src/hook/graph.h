/* SPDX-License-Identifier: Apache-2.0 */
/* API ledger: what a graph takes when it is launched: its allocations, as many as live at a time,
 * and the local memory of its kernels. */
#ifndef VGPU_HOOK_GRAPH_H
#define VGPU_HOOK_GRAPH_H

#include "abi/cuda.h"
#include "vgpu/region.h"

#include <stdint.h>

void graph_reset(void);

struct graph_needs {
    uint64_t bytes[VGPU_REGION_DEVICES]; /* by ordinal; later ones are not counted */
    uint64_t local_bytes;                /* a thread */
};

/* Of the graph and its children. The allocations are added and freed in the order in which the
 * driver tells the nodes: branches that run beside each other may take more, which counts when the
 * driver has taken it. All zero where the driver does not tell. */
struct graph_needs graph_needs_of(CUgraph graph);

/* The local memory of a kernel node's function. */
uint64_t graph_kernel_local_bytes(const CUDA_KERNEL_NODE_PARAMS *params);

#endif
