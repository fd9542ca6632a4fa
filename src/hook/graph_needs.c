/* SPDX-License-Identifier: Apache-2.0 */
/* Reads graphs. */
#include "hook/graph.h"
#include "hook/hook.h"

#include "base/slab.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define DEPTH_MAX 16      /* of graphs in graphs */
#define ORDINAL_SHIFT 56u /* above any number of bytes */

struct walk {
    struct graph_needs needs; /* the largest so far */
    uint64_t live[VGPU_REGION_DEVICES];
    struct map allocations; /* by address: bytes and ordinal */
};

static void walk_allocation(struct walk *walk, CUgraphNode node)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    if (cuda.cuGraphMemAllocNodeGetParams(node, &params) != CUDA_SUCCESS ||
        params.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return;
    unsigned ordinal = (unsigned)params.poolProps.location.id;
    if (ordinal >= VGPU_REGION_DEVICES || params.bytesize >> ORDINAL_SHIFT)
        return;
    uint64_t packed = params.bytesize | (uint64_t)ordinal << ORDINAL_SHIFT;
    (void)!map_put(&walk->allocations, params.dptr, (void *)(uintptr_t)packed);
    walk->live[ordinal] += params.bytesize;
    if (walk->live[ordinal] > walk->needs.bytes[ordinal])
        walk->needs.bytes[ordinal] = walk->live[ordinal];
}

static void walk_free(struct walk *walk, CUgraphNode node)
{
    CUdeviceptr address = 0;
    if (cuda.cuGraphMemFreeNodeGetParams(node, &address) != CUDA_SUCCESS || !address)
        return;
    uint64_t packed = (uintptr_t)map_remove(&walk->allocations, address);
    walk->live[packed >> ORDINAL_SHIFT] -= packed & ((1ull << ORDINAL_SHIFT) - 1);
}

uint64_t graph_kernel_local_bytes(const CUDA_KERNEL_NODE_PARAMS *params)
{
    CUfunction function = params->func;
    int bytes = 0;
    if (!function && params->kern && cuda.cuKernelGetFunction(&function, params->kern) != 0)
        return 0;
    if (!function || cuda.cuFuncGetAttribute(
                         &bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function) != CUDA_SUCCESS)
        return 0;
    return bytes > 0 ? (uint64_t)bytes : 0;
}

static void walk_kernel(struct walk *walk, CUgraphNode node)
{
    CUDA_KERNEL_NODE_PARAMS params;
    memset(&params, 0, sizeof(params));
    /* Drivers before 12.0 know the first version, with which the second begins. */
    if (cuda.cuGraphKernelNodeGetParams_v2(node, &params) != CUDA_SUCCESS &&
        cuda.cuGraphKernelNodeGetParams(node, (CUDA_KERNEL_NODE_PARAMS_v1 *)&params) !=
            CUDA_SUCCESS)
        return;
    uint64_t bytes = graph_kernel_local_bytes(&params);
    if (bytes > walk->needs.local_bytes)
        walk->needs.local_bytes = bytes;
}

static void walk_graph(struct walk *walk, CUgraph graph, unsigned depth);

static void walk_node(struct walk *walk, CUgraphNode node, unsigned depth)
{
    CUgraphNodeType type;
    CUgraph child = NULL;
    if (cuda.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL)
        walk_kernel(walk, node);
    else if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        walk_allocation(walk, node);
    else if (type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        walk_free(walk, node);
    else if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < DEPTH_MAX &&
             cuda.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
        walk_graph(walk, child, depth + 1);
}

static void walk_graph(struct walk *walk, CUgraph graph, unsigned depth)
{
    size_t count = 0;
    if (cuda.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || !count)
        return;
    size_t size = count * sizeof(CUgraphNode);
    CUgraphNode *nodes =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (nodes == MAP_FAILED)
        return;
    if (cuda.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS) {
        for (size_t i = 0; i < count && i < size / sizeof(CUgraphNode); i++)
            walk_node(walk, nodes[i], depth);
    }
    munmap(nodes, size);
}

struct graph_needs graph_needs_of(CUgraph graph)
{
    struct walk walk;
    memset(&walk, 0, sizeof(walk));
    walk_graph(&walk, graph, 0);
    map_finish(&walk.allocations);
    return walk.needs;
}
