/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that make graphs, add nodes to them and ask about them. */
#include <string.h>

#include "sim/work/launch.h"
#include "sim/work/stream.h"

static struct graph *graph_of(CUgraph handle)
{
    return object_find(handle, OBJECT_GRAPH);
}

static struct graph_node *node_of(CUgraphNode handle)
{
    return object_find(handle, OBJECT_GRAPH_NODE);
}

CUresult sim_cuGraphCreate(CUgraph *ret, unsigned int flags)
{
    CUDA_LOCKED;
    struct graph *graph;

    if (!ret || flags)
        return CUDA_ERROR_INVALID_VALUE;
    graph = graph_create();
    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret = (CUgraph)graph;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphDestroy(CUgraph handle)
{
    CUDA_LOCKED;
    struct graph *graph = graph_of(handle);

    if (!graph || graph->owned)
        return CUDA_ERROR_INVALID_VALUE;
    graph_destroy(graph);
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphClone(CUgraph *ret, CUgraph handle)
{
    CUDA_LOCKED;
    struct graph *graph = graph_of(handle);
    struct graph *copy;
    CUresult r;

    /* "The graph cannot be cloned" (cuGraphAddMemAllocNode). */
    if (!ret || !graph || graph->memory)
        return CUDA_ERROR_INVALID_VALUE;
    r = graph_copy(graph, &copy);
    if (r == CUDA_SUCCESS)
        *ret = (CUgraph)copy;
    return r;
}

static CUresult node_add(CUgraphNode *ret, CUgraph handle, const CUgraphNode *dep_handles,
    size_t dep_count, const struct work *work, struct graph_node **ret_node)
{
    struct graph *graph = graph_of(handle);
    struct node_list deps;
    CUresult r;

    if (!ret || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    r = graph_deps(graph, dep_handles, dep_count, &deps);
    if (r != CUDA_SUCCESS)
        return r;
    r = graph_add(graph, work, &deps, ret_node);
    node_list_finish(&deps);
    if (r == CUDA_SUCCESS)
        *ret = (CUgraphNode)*ret_node;
    return r;
}

CUresult sim_cuGraphAddKernelNode_v2(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
    size_t count, const CUDA_KERNEL_NODE_PARAMS *params)
{
    CUDA_LOCKED;
    struct graph_node *node;
    struct work work;
    CUresult r = params ? launch_work(params, &work) : CUDA_ERROR_INVALID_VALUE;

    return r == CUDA_SUCCESS ? node_add(ret, graph, deps, count, &work, &node) : r;
}

/* The second version begins like the first. */
static CUDA_KERNEL_NODE_PARAMS kernel_params_widen(const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS wide = {0};

    memcpy(&wide, params, sizeof *params);
    return wide;
}

CUresult sim_cuGraphAddKernelNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
    size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS wide;

    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    wide = kernel_params_widen(params);
    return sim_cuGraphAddKernelNode_v2(ret, graph, deps, count, &wide);
}

CUresult sim_cuGraphAddMemcpyNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
    size_t count, const CUDA_MEMCPY3D *copy, CUcontext context)
{
    CUDA_LOCKED;
    struct graph_node *node;
    struct work work = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};

    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context_of(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    work.copy = *copy;
    return node_add(ret, graph, deps, count, &work, &node);
}

CUresult sim_cuGraphAddMemsetNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
    size_t count, const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context)
{
    CUDA_LOCKED;
    struct graph_node *node;
    struct work work = {.type = CU_GRAPH_NODE_TYPE_MEMSET};

    if (!fill)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context_of(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    work.fill = *fill;
    return node_add(ret, graph, deps, count, &work, &node);
}

CUresult sim_cuGraphAddHostNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
    size_t count, const CUDA_HOST_NODE_PARAMS *host)
{
    CUDA_LOCKED;
    struct graph_node *node;
    struct work work = {.type = CU_GRAPH_NODE_TYPE_HOST};

    if (!host || !host->fn)
        return CUDA_ERROR_INVALID_VALUE;
    work.host = *host;
    return node_add(ret, graph, deps, count, &work, &node);
}

CUresult sim_cuGraphAddEmptyNode(
    CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t count)
{
    CUDA_LOCKED;
    struct graph_node *node;
    struct work work = {.type = CU_GRAPH_NODE_TYPE_EMPTY};

    return node_add(ret, graph, deps, count, &work, &node);
}

CUresult sim_cuGraphAddChildGraphNode(
    CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t count, CUgraph child_handle)
{
    CUDA_LOCKED;
    struct graph *child = graph_of(child_handle);
    struct graph_node *node;
    struct work work = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    CUresult r;

    /* Memory nodes only in a child that is moved. */
    if (!child || child->memory)
        return CUDA_ERROR_INVALID_VALUE;
    r = graph_copy(child, &work.child);
    if (r != CUDA_SUCCESS)
        return r;
    r = node_add(ret, graph, deps, count, &work, &node);
    if (r != CUDA_SUCCESS)
        graph_destroy(work.child);
    return r;
}

CUresult sim_cuGraphAddMemAllocNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
    size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    CUDA_LOCKED;
    struct graph_node *node;
    struct work work = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    CUresult r;

    if (!params || !params->bytesize)
        return CUDA_ERROR_INVALID_VALUE;
    work.memory.bytes = params->bytesize;
    work.memory.type = params->poolProps.allocType;
    work.memory.location = params->poolProps.location;
    r = place_of(work.memory.type, &work.memory.location, &work.memory.place, &work.memory.device);
    if (r != CUDA_SUCCESS)
        return r;
    r = node_add(ret, graph, deps, count, &work, &node);
    if (r == CUDA_SUCCESS)
        params->dptr = node->work.memory.address;
    return r;
}

CUresult sim_cuGraphAddMemFreeNode(
    CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t count, CUdeviceptr address)
{
    CUDA_LOCKED;
    struct graph_node *node;
    struct work work = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .memory = {.address = address}};

    if (!graph_of(graph) || !graph_address_may_free(graph_of(graph), address))
        return CUDA_ERROR_INVALID_VALUE;
    return node_add(ret, graph, deps, count, &work, &node);
}

/* A child that is moved belongs to its parent from then on. */
static CUresult child_add(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t count,
    const CUDA_CHILD_GRAPH_NODE_PARAMS *params)
{
    CUDA_LOCKED;
    struct graph *child = graph_of(params->graph);
    struct graph_node *node;
    struct work work = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = child};
    CUresult r;

    if (params->ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
        return sim_cuGraphAddChildGraphNode(ret, graph, deps, count, params->graph);
    if (!child || child->owned || child == graph_of(graph))
        return CUDA_ERROR_INVALID_VALUE;
    r = node_add(ret, graph, deps, count, &work, &node);
    if (r == CUDA_SUCCESS)
        child->owned = true;
    return r;
}

CUresult sim_cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *ret)
{
    CUDA_LOCKED;
    const struct graph_node *node = node_of(handle);

    if (!node || !ret || node->work.type != CU_GRAPH_NODE_TYPE_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = (CUgraph)node->work.child;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphAddNode(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t count,
    CUgraphNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS kernel;

    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        memcpy(&kernel, &params->kernel, sizeof kernel);
        return sim_cuGraphAddKernelNode_v2(ret, graph, deps, count, &kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return sim_cuGraphAddMemcpyNode(
            ret, graph, deps, count, &params->memcpy.copyParams, params->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return sim_cuGraphAddMemsetNode(ret, graph, deps, count,
            (const CUDA_MEMSET_NODE_PARAMS *)&params->memset, params->memset.ctx);
    case CU_GRAPH_NODE_TYPE_HOST:
        return sim_cuGraphAddHostNode(
            ret, graph, deps, count, (const CUDA_HOST_NODE_PARAMS *)&params->host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return child_add(ret, graph, deps, count, &params->graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return sim_cuGraphAddEmptyNode(ret, graph, deps, count);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return sim_cuGraphAddMemAllocNode(
            ret, graph, deps, count, (CUDA_MEM_ALLOC_NODE_PARAMS *)&params->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return sim_cuGraphAddMemFreeNode(ret, graph, deps, count, params->free.dptr);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult sim_cuGraphAddNode_v2(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
    const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    (void)edges;
    return sim_cuGraphAddNode(ret, graph, deps, count, params);
}

CUresult sim_cuGraphAddNode_v3(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
    const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    return sim_cuGraphAddNode_v2(ret, graph, deps, edges, count, params);
}

static CUresult dependencies_add(
    CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    CUDA_LOCKED;
    struct graph *graph = graph_of(handle);
    CUresult r = graph && (!count || (from && to)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++) {
        struct graph_node *before = node_of(from[i]);
        struct graph_node *after = node_of(to[i]);

        if (!before || !after || before->graph != graph || after->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
        r = node_list_add(&after->deps, &(struct node_list){&before, 1});
    }
    return r;
}

CUresult sim_cuGraphAddDependencies(
    CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
    return dependencies_add(graph, from, to, count);
}

CUresult sim_cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from,
    const CUgraphNode *to, const CUgraphEdgeData *edges, size_t count)
{
    (void)edges;
    return dependencies_add(graph, from, to, count);
}

/* *count is the room on entry, the number on return; without room only the number is told. */
static void node_tell(struct graph_node *node, CUgraphNode *nodes, size_t room, size_t *number)
{
    if (nodes && *number < room)
        nodes[*number] = (CUgraphNode)node;
    ++*number;
}

static CUresult nodes_tell(CUgraph handle, CUgraphNode *nodes, size_t *count, bool roots)
{
    CUDA_LOCKED;
    const struct graph *graph = graph_of(handle);
    size_t number = 0;

    if (!graph || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (struct graph_node *node = graph->nodes; node; node = node->next) {
        if (!roots || !node->deps.count)
            node_tell(node, nodes, *count, &number);
    }
    *count = number;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return nodes_tell(graph, nodes, count, false);
}

CUresult sim_cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return nodes_tell(graph, nodes, count, true);
}

CUresult sim_cuGraphGetEdges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    CUDA_LOCKED;
    const struct graph *graph = graph_of(handle);
    size_t number = 0;

    if (!graph || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (struct graph_node *node = graph->nodes; node; node = node->next) {
        for (size_t i = 0; i < node->deps.count; i++) {
            size_t same = number;

            node_tell(node->deps.nodes[i], from, *count, &same);
            node_tell(node, to, *count, &number);
        }
    }
    *count = number;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode *nodes, size_t *count)
{
    CUDA_LOCKED;
    const struct graph_node *node = node_of(handle);
    size_t number = 0;

    if (!node || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < node->deps.count; i++)
        node_tell(node->deps.nodes[i], nodes, *count, &number);
    *count = number;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
    CUDA_LOCKED;
    const struct graph_node *node = node_of(handle);

    if (!node || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->work.type;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    CUDA_LOCKED;
    const struct graph_node *node = node_of(handle);

    if (!node || !params || node->work.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    *params = (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = node->work.memory.type, .location = node->work.memory.location},
        .bytesize = node->work.memory.bytes,
        .dptr = node->work.memory.address};
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr *address)
{
    CUDA_LOCKED;
    const struct graph_node *node = node_of(handle);

    if (!node || !address || node->work.type != CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    *address = node->work.memory.address;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *params)
{
    CUDA_LOCKED;
    const struct graph_node *node = node_of(handle);

    if (!node || !params || node->work.type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    *params = node->work.kernel.params;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphKernelNodeSetParams_v2(
    CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS *params)
{
    CUDA_LOCKED;
    struct graph_node *node = node_of(handle);

    if (!node || !params || node->work.type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    return launch_work(params, &node->work);
}
