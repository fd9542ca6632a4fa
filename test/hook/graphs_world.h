/* SPDX-License-Identifier: Apache-2.0 */
/* One of everything that the functions which we replace are called with. */
#ifndef VGPU_TEST_GRAPHS_WORLD_H
#define VGPU_TEST_GRAPHS_WORLD_H

#include "abi/cuda.h"

#include <stddef.h>

struct world {
    unsigned stream_flags; /* of `stream`; set before world_make */
    CUcontext context, second, made_context;
    CUgreenCtx green, made_green;
    CUdevResourceDesc descriptor;
    CUstream stream, other;
    CUevent event;
    CUmodule module, spare, made_module;
    CUlibrary library, made_library;
    CUfunction big, nop;
    void *params[1];
    CUlaunchConfig config;
    CUDA_LAUNCH_PARAMS launch;
    CUdeviceptr pointer, pooled, range, made_pointer, cell;
    CUdeviceptr_v1 small_pointer;
    CUmemoryPool pool, managed_pool, made_pool;
    CUmemPoolProps pool_props;
    CUmemLocation anywhere;
    CUmemGenericAllocationHandle handle, made_handle;
    CUmemAllocationProp property;
    int fd, exported_fd;
    CUipcMemHandle ipc;
    CUDA_ARRAY_DESCRIPTOR flat;
    CUDA_ARRAY_DESCRIPTOR_v1 flat_old;
    CUDA_ARRAY3D_DESCRIPTOR deep;
    CUDA_ARRAY3D_DESCRIPTOR_v1 deep_old;
    CUarray array, made_array;
    CUmipmappedArray mipmap, made_mipmap;
    CUgraph empty, launched, allocating;
    CUgraphNode node, kernel_node;
    CUgraphExec exec, made_exec;
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUgraphNodeParams any, managed_node;
    CUDA_MEM_ALLOC_NODE_PARAMS allocation;
    CUDA_GRAPH_INSTANTIATE_PARAMS instantiation;
    CUgraphExecUpdateResult update;
    CUgraphExecUpdateResultInfo update_info;
    void *host;
    CUdeviceptr managed;
    CUarray line; /* of one dimension */
    size_t bytes, first;
    CUDA_MEMCPY2D copy_2d;
    CUDA_MEMCPY3D copy_3d;
    CUDA_MEMCPY3D_PEER copy_peer;
    CUDA_MEMCPY3D_BATCH_OP copy_op;
    CUmemcpyAttributes copy_attributes;
    CUDA_FABRIC_COPY_BATCH_OP fabric;
    CUmemDecompressParams packed;
    CUgraphicsResource graphics;
    CUstreamCigParam list_params;
    CUstreamCigCaptureParams list;
    CUstreamBatchMemOpParams operation;
    CUexternalSemaphore semaphore;
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS semaphore_wait;
    size_t total;
    unsigned small_total;
};

/* Makes all of it in the primary context of the first device; ends the process where that fails. */
void world_make(struct world *world);

/* The steps of graphs_steps.def. */
struct world_step {
    const char *function;
    CUresult (*call)(struct world *world);
};
extern const struct world_step world_steps[];
extern const unsigned world_step_count;

#endif
