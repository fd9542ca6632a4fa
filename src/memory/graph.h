/* SPDX-License-Identifier: Apache-2.0 */
/* What a graph takes when it is launched: its allocations, as many as live at a time, and the local
 * memory of its kernels. Only managed memory is counted here under both ledgers, the rest by the
 * API ledger alone; memory of the host is not counted. */
#ifndef VGPU_MEMORY_GRAPH_H
#define VGPU_MEMORY_GRAPH_H

#include "abi/cuda.h"
#include "vgpu/region.h"

#include <stdint.h>

/* Local memory of a kernel, in bytes a thread, that the context holds from its beginning. */
#define GRAPH_DEFAULT_LOCAL_BYTES 1024u

/* Managed memory that the graph does not free itself. */
struct graph_left {
    CUdeviceptr pointer;
    uint64_t bytes;
    CUdevice ordinal;
};
#define GRAPH_LEFT_MAX 16

struct graph_needs {
    uint64_t bytes[VGPU_REGION_DEVICES]; /* by ordinal; later ones are not counted */
    uint64_t local_bytes;                /* a thread */
    /* Managed memory; of a location that is no device it is the current one's. */
    uint64_t managed_bytes[VGPU_REGION_DEVICES];
    unsigned left_count;
    struct graph_left left[GRAPH_LEFT_MAX];
    uint64_t left_more_bytes[VGPU_REGION_DEVICES]; /* beyond those */
};

/* Of the graph and its children. The allocations are added and freed in the order in which the
 * driver tells the nodes: branches that run beside each other may take more, which counts when the
 * driver has taken it. Where the driver does not tell and a limit is set, its code; without a limit
 * it needs nothing then. */
CUresult graph_needs_of(CUgraph graph, struct graph_needs *ret_needs)
    __attribute__((warn_unused_result));

/* The local memory of a kernel node's function, as graph_needs_of. */
CUresult graph_kernel_local_bytes(const CUDA_KERNEL_NODE_PARAMS *params, uint64_t *ret_bytes)
    __attribute__((warn_unused_result));

#endif
