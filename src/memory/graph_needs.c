/* SPDX-License-Identifier: Apache-2.0 */
/* Reads graphs. */
#include "memory/graph.h"
#include "container/container.h"
#include "driver/cuda.h"
#include "memory/pools.h"

#include "base/map.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define DEPTH_MAX 16      /* of graphs in graphs */
#define ORDINAL_SHIFT 56u /* above any number of bytes */
#define MANAGED (1ull << 63)

struct walk {
    struct graph_needs needs; /* the largest so far */
    uint64_t live[VGPU_REGION_DEVICES], managed_live[VGPU_REGION_DEVICES];
    struct map allocations; /* by address: bytes, ordinal and whether it is managed */
};

static uint64_t bytes_of(uint64_t packed)
{
    return packed & ((1ull << ORDINAL_SHIFT) - 1);
}

static unsigned ordinal_of(uint64_t packed)
{
    return (unsigned)((packed & ~MANAGED) >> ORDINAL_SHIFT);
}

static CUresult walk_allocation(struct walk *walk, CUgraphNode node)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUresult result = cuda.cuGraphMemAllocNodeGetParams(node, &params);
    if (result != CUDA_SUCCESS)
        return result;
    const CUmemLocation *location = &params.poolProps.location;
    bool managed = pools_kind(params.poolProps.allocType, location) == POOL_MANAGED;
    CUdevice ordinal = location->id;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        result = managed ? cuda.cuCtxGetDevice(&ordinal) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS || (location->type != CU_MEM_LOCATION_TYPE_DEVICE && !managed) ||
        (unsigned)ordinal >= VGPU_REGION_DEVICES || params.bytesize >> ORDINAL_SHIFT)
        return result;
    uint64_t packed =
        params.bytesize | (uint64_t)ordinal << ORDINAL_SHIFT | (managed ? MANAGED : 0);
    (void)!map_put(&walk->allocations, params.dptr, (void *)(uintptr_t)packed);
    uint64_t *live = managed ? walk->managed_live : walk->live;
    uint64_t *most = managed ? walk->needs.managed_bytes : walk->needs.bytes;
    live[ordinal] += params.bytesize;
    if (live[ordinal] > most[ordinal])
        most[ordinal] = live[ordinal];
    return result;
}

static CUresult walk_free(struct walk *walk, CUgraphNode node)
{
    CUdeviceptr address = 0;
    CUresult result = cuda.cuGraphMemFreeNodeGetParams(node, &address);
    if (result != CUDA_SUCCESS || !address)
        return result;
    uint64_t packed = (uintptr_t)map_remove(&walk->allocations, address);
    uint64_t *live = packed & MANAGED ? walk->managed_live : walk->live;
    live[ordinal_of(packed)] -= bytes_of(packed);
    return result;
}

/* What the walk has not seen freed. */
static void note_left(struct walk *walk)
{
    struct graph_needs *needs = &walk->needs;
    size_t cursor = 0;
    uint64_t pointer;
    for (void *value; (value = map_next(&walk->allocations, &cursor, &pointer));) {
        uint64_t packed = (uintptr_t)value;
        if (!(packed & MANAGED))
            continue;
        if (needs->left_count == GRAPH_LEFT_MAX)
            needs->left_more_bytes[ordinal_of(packed)] += bytes_of(packed);
        else
            needs->left[needs->left_count++] =
                (struct graph_left){pointer, bytes_of(packed), (CUdevice)ordinal_of(packed)};
    }
}

static CUresult ask_local_bytes(const CUDA_KERNEL_NODE_PARAMS *params, int *ret_bytes)
{
    CUfunction function = params->func;
    CUresult result = CUDA_SUCCESS;
    if (!function && params->kern)
        result = cuda.cuKernelGetFunction(&function, params->kern);
    if (result == CUDA_SUCCESS && function)
        result = cuda.cuFuncGetAttribute(ret_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function);
    /* What is no function to ask about is the driver's to refuse, or a CUkernel. */
    return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_SUCCESS : result;
}

static CUresult walk_kernel(struct walk *walk, CUgraphNode node)
{
    CUDA_KERNEL_NODE_PARAMS params;
    int bytes = 0;
    memset(&params, 0, sizeof(params));
    /* Drivers before 12.0 know the first version, with which the second begins. */
    CUresult result = cuda.cuGraphKernelNodeGetParams_v2(node, &params);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        result = cuda.cuGraphKernelNodeGetParams(node, (CUDA_KERNEL_NODE_PARAMS_v1 *)&params);
    if (result == CUDA_SUCCESS)
        result = ask_local_bytes(&params, &bytes);
    if (bytes > 0 && (uint64_t)bytes > walk->needs.local_bytes)
        walk->needs.local_bytes = (uint64_t)bytes;
    return result;
}

static CUresult walk_graph(struct walk *walk, CUgraph graph, unsigned depth);

static CUresult walk_node(struct walk *walk, CUgraphNode node, unsigned depth)
{
    CUgraphNodeType type;
    CUgraph child = NULL;
    CUresult result = cuda.cuGraphNodeGetType(node, &type);
    if (result != CUDA_SUCCESS)
        return result;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL)
        return walk_kernel(walk, node);
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return walk_allocation(walk, node);
    if (type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        return walk_free(walk, node);
    if (type != CU_GRAPH_NODE_TYPE_GRAPH || depth == DEPTH_MAX)
        return CUDA_SUCCESS;
    result = cuda.cuGraphChildGraphNodeGetGraph(node, &child);
    return result == CUDA_SUCCESS ? walk_graph(walk, child, depth + 1) : result;
}

static CUresult walk_graph(struct walk *walk, CUgraph graph, unsigned depth)
{
    size_t count = 0;
    CUresult result = cuda.cuGraphGetNodes(graph, NULL, &count);
    if (result != CUDA_SUCCESS || !count)
        return result;
    size_t size = count * sizeof(CUgraphNode);
    CUgraphNode *nodes =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (nodes == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = cuda.cuGraphGetNodes(graph, nodes, &count);
    for (size_t i = 0; result == CUDA_SUCCESS && i < count && i < size / sizeof(CUgraphNode); i++)
        result = walk_node(walk, nodes[i], depth);
    munmap(nodes, size);
    return result;
}

/* Without a limit the driver judges the program's own call. */
static bool is_in_the_way(CUresult result)
{
    return result != CUDA_SUCCESS && container_unidentified_device() == CONTAINER_DEVICE_CLOSED;
}

CUresult graph_needs_of(CUgraph graph, struct graph_needs *ret_needs)
{
    struct walk walk;
    memset(&walk, 0, sizeof(walk));
    CUresult result = walk_graph(&walk, graph, 0);
    note_left(&walk);
    map_finish(&walk.allocations);
    if (is_in_the_way(result))
        return result;
    if (result != CUDA_SUCCESS)
        memset(&walk.needs, 0, sizeof(walk.needs));
    *ret_needs = walk.needs;
    return CUDA_SUCCESS;
}

CUresult graph_kernel_local_bytes(const CUDA_KERNEL_NODE_PARAMS *params, uint64_t *ret_bytes)
{
    int bytes = 0;
    CUresult result = ask_local_bytes(params, &bytes);
    if (is_in_the_way(result))
        return result;
    *ret_bytes = result == CUDA_SUCCESS && bytes > 0 ? (uint64_t)bytes : 0;
    return CUDA_SUCCESS;
}
