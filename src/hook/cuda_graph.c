/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: their memory comes from a pool of the device's own, at the first launch. It is charged
 * below the API; under the API ledger a launch is judged by the allocation nodes that the graph had
 * when it was instantiated. */
#include "hook/graph.h"
#include "hook/hook.h"
#include "hook/pools.h"

#include "base/lock.h"
#include "base/slab.h"

#include <stddef.h>

#define NODES_AT_ONCE 256

static struct {
    struct lock lock;
    struct map bytes; /* by executable graph; API ledger only */
} graphs;

void graph_reset(void)
{
    lock_reset(&graphs.lock);
    map_finish(&graphs.bytes);
}

static uint64_t node_bytes(CUgraphNode node)
{
    CUgraphNodeType type;
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    if (cuda.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS ||
        type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        cuda.cuGraphMemAllocNodeGetParams(node, &params) != CUDA_SUCCESS)
        return 0;
    return params.bytesize;
}

/* A graph of more nodes than that is judged by its first ones. */
static uint64_t graph_bytes(CUgraph graph)
{
    CUgraphNode nodes[NODES_AT_ONCE];
    size_t count = NODES_AT_ONCE;
    uint64_t bytes = 0;
    if (cuda.cuGraphGetNodes(graph, nodes, &count) != CUDA_SUCCESS)
        return 0;
    for (size_t i = 0; i < count && i < NODES_AT_ONCE; i++)
        bytes += node_bytes(nodes[i]);
    return bytes;
}

static CUresult instantiated(CUresult result, const CUgraphExec *exec, CUgraph graph)
{
    if (result != CUDA_SUCCESS || memory_ledger() != MEMORY_LEDGER_API)
        return result;
    uint64_t bytes = graph_bytes(graph);
    if (!bytes)
        return result;
    pools_note_use();
    lock_take(&graphs.lock);
    (void)!map_put(&graphs.bytes, (uintptr_t)*exec, (void *)(uintptr_t)bytes);
    lock_release(&graphs.lock);
    return result;
}

CUresult hook_cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
    char *logBuffer, size_t bufferSize)
{
    hook_enter();
    return instantiated(
        cuda.cuGraphInstantiate(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize),
        phGraphExec, hGraph);
}

CUresult hook_cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph,
    CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
    hook_enter();
    return instantiated(
        cuda.cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize),
        phGraphExec, hGraph);
}

CUresult hook_cuGraphInstantiateWithFlags(
    CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    hook_enter();
    return instantiated(
        cuda.cuGraphInstantiateWithFlags(phGraphExec, hGraph, flags), phGraphExec, hGraph);
}

CUresult hook_cuGraphInstantiateWithParams(
    CUgraphExec *phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    hook_enter();
    return instantiated(cuda.cuGraphInstantiateWithParams(phGraphExec, hGraph, instantiateParams),
        phGraphExec, hGraph);
}

CUresult hook_cuGraphInstantiateWithParams_ptsz(
    CUgraphExec *phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    hook_enter();
    return instantiated(
        cuda.cuGraphInstantiateWithParams_ptsz(phGraphExec, hGraph, instantiateParams), phGraphExec,
        hGraph);
}

CUresult hook_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    hook_enter();
    if (memory_ledger() == MEMORY_LEDGER_API) {
        lock_take(&graphs.lock);
        map_remove(&graphs.bytes, (uintptr_t)hGraphExec);
        lock_release(&graphs.lock);
    }
    CUresult result = cuda.cuGraphExecDestroy(hGraphExec);
    pools_refresh_current();
    return result;
}

static uint64_t graph_attribute(CUdevice ordinal, CUgraphMem_attribute attribute)
{
    cuuint64_t value = 0;
    return cuda.cuDeviceGetGraphMemAttribute(ordinal, attribute, &value) == CUDA_SUCCESS ? value
                                                                                         : 0;
}

/* Whether the memory that the launch adds to the device's graph pool fits. */
static bool graph_fits(CUgraphExec exec)
{
    CUdevice ordinal;
    lock_take(&graphs.lock);
    uint64_t bytes = (uintptr_t)map_get(&graphs.bytes, (uintptr_t)exec);
    lock_release(&graphs.lock);
    if (!bytes || cuda.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
        return true;
    uint64_t reserved = graph_attribute(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
    uint64_t used = graph_attribute(ordinal, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
    uint64_t unused = reserved > used ? reserved - used : 0;
    struct memory_request request;
    if (bytes <= unused)
        return true;
    if (memory_begin(&request, hook_device(ordinal), bytes - unused, ACCOUNT_BUFFER) != 0)
        return false;
    memory_end(&request, false, MEMORY_GRAPH_POOL, 0);
    return true;
}

static inline bool counts_by_api(void)
{
    return __builtin_expect(memory_ledger() == MEMORY_LEDGER_API, 0);
}

CUresult hook_cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    if (counts_by_api() && !graph_fits(hGraphExec))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuda.cuGraphLaunch(hGraphExec, hStream);
    if (counts_by_api())
        pools_refresh_current();
    return result;
}

CUresult hook_cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    if (counts_by_api() && !graph_fits(hGraphExec))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuda.cuGraphLaunch_ptsz(hGraphExec, hStream);
    if (counts_by_api())
        pools_refresh_current();
    return result;
}

CUresult hook_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
    const CUgraphNode *dependencies, size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    hook_enter();
    pools_note_use();
    return cuda.cuGraphAddMemAllocNode(
        phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}
