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
#include <sys/mman.h>

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

static uint64_t graph_bytes(CUgraph graph)
{
    size_t count = 0;
    uint64_t bytes = 0;
    if (cuda.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || !count)
        return 0;
    size_t size = count * sizeof(CUgraphNode);
    CUgraphNode *nodes =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (nodes == MAP_FAILED)
        return 0;
    if (cuda.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS) {
        for (size_t i = 0; i < count; i++)
            bytes += node_bytes(nodes[i]);
    }
    munmap(nodes, size);
    return bytes;
}

static CUresult instantiated(CUresult result, const CUgraphExec *exec, CUgraph graph)
{
    pools_note_use();
    if (result != CUDA_SUCCESS || memory_ledger() != MEMORY_LEDGER_API)
        return result;
    uint64_t bytes = graph_bytes(graph);
    if (!bytes)
        return result;
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

/* Reserves what the launch may add to the device's graph pool, until the pool tells its size.
 * Returns 0 or -ENOMEM. */
static int begin_launch(CUgraphExec exec, struct memory_request *request)
{
    CUdevice ordinal;
    lock_take(&graphs.lock);
    uint64_t bytes = (uintptr_t)map_get(&graphs.bytes, (uintptr_t)exec);
    lock_release(&graphs.lock);
    if (!bytes || cuda.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
        return memory_begin(request, CONTAINER_DEVICE_UNKNOWN, 0, ACCOUNT_BUFFER);
    uint64_t reserved = graph_attribute(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
    uint64_t used = graph_attribute(ordinal, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
    uint64_t unused = reserved > used ? reserved - used : 0;
    return memory_begin(
        request, hook_device(ordinal), bytes > unused ? bytes - unused : 0, ACCOUNT_BUFFER);
}

__attribute__((noinline)) static CUresult launch_counted(
    CUgraphExec exec, CUstream stream, CUresult (*launch)(CUgraphExec, CUstream))
{
    struct memory_request request;
    if (begin_launch(exec, &request) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = launch(exec, stream);
    pools_refresh_current();
    memory_end(&request, false, MEMORY_GRAPH_POOL, 0);
    return result;
}

CUresult hook_cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    if (__builtin_expect(memory_ledger() == MEMORY_LEDGER_API, 0))
        return launch_counted(hGraphExec, hStream, cuda.cuGraphLaunch);
    return cuda.cuGraphLaunch(hGraphExec, hStream);
}

CUresult hook_cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    if (__builtin_expect(memory_ledger() == MEMORY_LEDGER_API, 0))
        return launch_counted(hGraphExec, hStream, cuda.cuGraphLaunch_ptsz);
    return cuda.cuGraphLaunch_ptsz(hGraphExec, hStream);
}

CUresult hook_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
    const CUgraphNode *dependencies, size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    hook_enter();
    pools_note_use();
    return cuda.cuGraphAddMemAllocNode(
        phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}
