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
 * driver has taken it. Where the driver does not tell and a limit is set, its code; without a limit
 * such a graph needs nothing. */
CUresult graph_needs_of(CUgraph graph, struct graph_needs *ret_needs)
    __attribute__((warn_unused_result));

/* The local memory of a kernel node's function, as graph_needs_of. */
CUresult graph_kernel_local_bytes(const CUDA_KERNEL_NODE_PARAMS *params, uint64_t *ret_bytes)
    __attribute__((warn_unused_result));

#endif
