/* SPDX-License-Identifier: Apache-2.0 */
/* Executable graphs: each is a copy of the graph at its instantiation. */
#include <stdlib.h>
#include <string.h>

#include "sim/work/launch.h"
#include "sim/work/stream.h"

/* Flags that exclude each other. */
#define NO_AUTO_FREE                                                                               \
    (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)

struct graph_exec {
    struct object object;
    struct graph *graph;
    struct graph *source; /* of a graph with memory nodes, while it lives */
    unsigned long long flags;
};

void graph_exec_orphan(struct graph_exec *exec)
{
    exec->source = NULL;
}

static struct graph_exec *exec_of(CUgraphExec handle)
{
    return object_find(handle, OBJECT_GRAPH_EXEC);
}

static CUresult exec_create(CUgraphExec *ret, CUgraph handle, unsigned long long flags)
{
    CUDA_LOCKED;
    struct graph *graph = object_find(handle, OBJECT_GRAPH);
    struct graph_exec *exec;
    CUresult r;

    if (!ret || !graph || graph->owned || flags > 15 || (flags & NO_AUTO_FREE) == NO_AUTO_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    /* "Only one instantiation of the graph may exist at any point in time." */
    if (graph->alone)
        return CUDA_ERROR_INVALID_VALUE;
    exec = calloc(1, sizeof *exec);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = graph_copy(graph, &exec->graph);
    if (r != CUDA_SUCCESS) {
        free(exec);
        return r;
    }
    exec->flags = flags;
    if (graph->memory) {
        exec->source = graph;
        graph->alone = exec;
    }
    object_add(&exec->object, OBJECT_GRAPH_EXEC);
    *ret = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphInstantiateWithFlags(CUgraphExec *ret, CUgraph graph, unsigned long long flags)
{
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
        return CUDA_ERROR_INVALID_VALUE;
    return exec_create(ret, graph, flags);
}

CUresult sim_cuGraphInstantiateWithParams(
    CUgraphExec *ret, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CUresult r = params ? exec_create(ret, graph, params->flags) : CUDA_ERROR_INVALID_VALUE;

    if (r == CUDA_SUCCESS && (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)) {
        r = sim_cuGraphUpload(*ret, params->hUploadStream);
        if (r != CUDA_SUCCESS)
            (void)sim_cuGraphExecDestroy(*ret);
    }
    if (params) {
        params->hErrNode_out = NULL;
        params->result_out =
            r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    }
    return r;
}

static CUresult exec_create_told(
    CUgraphExec *ret, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)
{
    if (error_node)
        *error_node = NULL;
    if (log && log_bytes)
        *log = '\0';
    return exec_create(ret, graph, 0);
}

CUresult sim_cuGraphInstantiate(
    CUgraphExec *ret, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)
{
    return exec_create_told(ret, graph, error_node, log, log_bytes);
}

CUresult sim_cuGraphInstantiate_v2(
    CUgraphExec *ret, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)
{
    return exec_create_told(ret, graph, error_node, log, log_bytes);
}

CUresult sim_cuGraphExecDestroy(CUgraphExec handle)
{
    CUDA_LOCKED;
    struct graph_exec *exec = exec_of(handle);

    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    if (exec->source)
        exec->source->alone = NULL;
    object_remove(&exec->object);
    graph_destroy(exec->graph);
    free(exec);
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags)
{
    CUDA_LOCKED;
    const struct graph_exec *exec = exec_of(handle);

    if (!exec || !flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

/* Into a capture: a child graph, which cannot hold memory nodes. */
static CUresult exec_capture(const struct graph_exec *exec, struct stream *stream)
{
    struct work work = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    CUresult r;

    if (exec->graph->memory)
        return CUDA_ERROR_NOT_SUPPORTED;
    r = graph_copy(exec->graph, &work.child);
    return r == CUDA_SUCCESS ? stream_run(stream, &work) : r;
}

/* The stream comes after the launch before, too. */
static struct sim_ticket exec_here(const struct graph_exec *exec, struct stream *stream)
{
    struct sim_ticket here = stream_here(stream);

    stream_append_after(stream, &exec->graph->launched);
    return sim_ticket_done(&exec->graph->launched, NULL) ? here : stream->queue.last;
}

CUresult sim_cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
    stream_admit(stream_handle);
    CUDA_LOCKED;
    struct graph_exec *exec = exec_of(handle);
    struct stream *stream;
    struct work work = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    struct sim_ticket here;
    CUresult r = stream_get(stream_handle, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture)
        return exec_capture(exec, stream);
    /* What the launch before left allocated goes first, or is in the way. */
    if (!(exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) &&
        graph_memory_left(exec->graph))
        return CUDA_ERROR_INVALID_VALUE;
    here = exec_here(exec, stream);
    graph_memory_free_left(exec->graph, &here);
    r = graph_memory_prepare(exec->graph, stream);
    if (r != CUDA_SUCCESS)
        return r;
    work.child = exec->graph;
    r = stream_run(stream, &work);
    if (r != CUDA_SUCCESS)
        graph_memory_free_left(exec->graph, &(struct sim_ticket){0});
    return r;
}

CUresult sim_cuGraphUpload(CUgraphExec handle, CUstream stream_handle)
{
    CUDA_LOCKED;
    struct graph_exec *exec = exec_of(handle);
    struct stream *stream;
    CUresult r = exec ? stream_get(stream_handle, &stream) : CUDA_ERROR_INVALID_VALUE;

    if (r != CUDA_SUCCESS)
        return r;
    if (stream->capture) {
        capture_invalidate(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return graph_memory_left(exec->graph) ? CUDA_SUCCESS
                                          : graph_memory_prepare(exec->graph, stream);
}

static bool is_memory(const struct graph_node *node)
{
    return node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
           node->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE;
}

/* The update is allowed where both have the same kinds of nodes in the same order. */
static bool same_topology(const struct graph *a, const struct graph *b)
{
    const struct graph_node *x = a->nodes;
    const struct graph_node *y = b->nodes;

    for (; x && y; x = x->next, y = y->next) {
        if (x->work.type != y->work.type || x->deps.count != y->deps.count)
            return false;
        if (is_memory(x) && x->work.memory.address != y->work.memory.address)
            return false;
    }
    return x == y;
}

static CUresult exec_update(CUgraphExec handle, CUgraph graph_handle)
{
    CUDA_LOCKED;
    struct graph_exec *exec = exec_of(handle);
    const struct graph *graph = object_find(graph_handle, OBJECT_GRAPH);
    struct graph *copy;
    CUresult r;

    if (!exec || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    r = graph_copy(graph, &copy);
    if (r != CUDA_SUCCESS)
        return r;
    if (!same_topology(exec->graph, copy)) {
        graph_destroy(copy);
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    for (struct graph_node *x = exec->graph->nodes, *y = copy->nodes; x; x = x->next, y = y->next)
        y->original = x->original;
    copy->launched = exec->graph->launched;
    graph_destroy(exec->graph);
    exec->graph = copy;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphExecUpdate(
    CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *result)
{
    CUresult r = exec_update(exec, graph);

    if (error_node)
        *error_node = NULL;
    if (result)
        *result = r == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR;
    return r;
}

CUresult sim_cuGraphExecUpdate_v2(
    CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    CUresult r = exec_update(exec, graph);

    if (info)
        *info =
            (CUgraphExecUpdateResultInfo){.result = r == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                                      : CU_GRAPH_EXEC_UPDATE_ERROR};
    return r;
}

/* The node is one of the graph that was instantiated. */
static CUresult kernel_set(
    CUgraphExec handle, CUgraphNode node_handle, const CUDA_KERNEL_NODE_PARAMS *params)
{
    CUDA_LOCKED;
    struct graph_exec *exec = exec_of(handle);

    if (!exec || !params)
        return CUDA_ERROR_INVALID_VALUE;
    for (struct graph_node *node = exec->graph->nodes; node; node = node->next) {
        if (node->original == (const struct graph_node *)node_handle &&
            node->work.type == CU_GRAPH_NODE_TYPE_KERNEL)
            return launch_work(params, &node->work);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuGraphExecKernelNodeSetParams_v2(
    CUgraphExec handle, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    return kernel_set(handle, node, params);
}

CUresult sim_cuGraphExecKernelNodeSetParams(
    CUgraphExec handle, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS wide = {0};

    if (params)
        memcpy(&wide, params, sizeof *params);
    return kernel_set(handle, node, params ? &wide : NULL);
}

CUresult sim_cuGraphExecNodeSetParams(
    CUgraphExec handle, CUgraphNode node, CUgraphNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS kernel;

    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    if (params->type != CU_GRAPH_NODE_TYPE_KERNEL)
        return CUDA_ERROR_NOT_SUPPORTED;
    memcpy(&kernel, &params->kernel, sizeof kernel);
    return kernel_set(handle, node, &kernel);
}

/* The copy that the executable graph has of the node, if it is of a kind that can be disabled. */
static CUresult exec_switchable(
    CUgraphExec handle, CUgraphNode node_handle, struct graph_node **ret_node)
{
    struct graph_exec *exec = exec_of(handle);
    const struct graph_node *original = object_find(node_handle, OBJECT_GRAPH_NODE);

    for (struct graph_node *node = exec && original ? exec->graph->nodes : NULL; node;
         node = node->next) {
        if (node->original != original)
            continue;
        *ret_node = node;
        return node->work.type == CU_GRAPH_NODE_TYPE_KERNEL ||
                       node->work.type == CU_GRAPH_NODE_TYPE_MEMSET ||
                       node->work.type == CU_GRAPH_NODE_TYPE_MEMCPY
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node_handle, unsigned enabled)
{
    CUDA_LOCKED;
    struct graph_node *node = NULL;
    CUresult r = exec_switchable(exec, node_handle, &node);

    if (r == CUDA_SUCCESS)
        node->disabled = !enabled;
    return r;
}

CUresult sim_cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node_handle, unsigned *ret_enabled)
{
    CUDA_LOCKED;
    struct graph_node *node = NULL;
    CUresult r = exec_switchable(exec, node_handle, &node);

    if (r == CUDA_SUCCESS && !ret_enabled)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *ret_enabled = !node->disabled;
    return r;
}
