/* SPDX-License-Identifier: Apache-2.0 */
/* Executable graphs: each is a copy of the graph at its instantiation. */
#include <stdlib.h>

#include "sim/cuda_stream.h"

struct graph_exec {
    struct object object;
    struct graph *graph;
    unsigned long long flags;
};

static struct graph_exec *exec_of(CUgraphExec handle)
{
    return object_find(handle, OBJECT_GRAPH_EXEC);
}

static CUresult exec_create(CUgraphExec *ret, CUgraph handle, unsigned long long flags)
{
    CUDA_LOCKED;
    const struct graph *graph = object_find(handle, OBJECT_GRAPH);
    struct graph_exec *exec;
    CUresult r;

    if (!ret || !graph || flags > 15)
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
    object_add(&exec->object, OBJECT_GRAPH_EXEC);
    *ret = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

CUresult sim_cuGraphInstantiateWithFlags(CUgraphExec *ret, CUgraph graph, unsigned long long flags)
{
    return exec_create(ret, graph, flags);
}

CUresult sim_cuGraphInstantiateWithParams(
    CUgraphExec *ret, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CUresult r = params ? exec_create(ret, graph, params->flags) : CUDA_ERROR_INVALID_VALUE;

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

/* With AUTO_FREE_ON_LAUNCH, what the launch before left allocated goes first. */
static void exec_free_left(const struct graph_exec *exec)
{
    for (const struct graph_node *node = exec->graph->nodes; node; node = node->next) {
        if (node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
            allocation_at(node->work.memory.address))
            (void)graph_memory_free(node->work.memory.address);
    }
}

CUresult sim_cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
    CUDA_LOCKED;
    struct graph_exec *exec = exec_of(handle);
    struct stream *stream;
    struct work work = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
    CUresult r = stream_get(stream_handle, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!exec)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture) {
        r = graph_copy(exec->graph, &work.child);
        return r == CUDA_SUCCESS ? stream_run(stream, &work) : r;
    }
    if (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
        exec_free_left(exec);
    work.child = exec->graph;
    return stream_run(stream, &work);
}

CUresult sim_cuGraphUpload(CUgraphExec handle, CUstream stream_handle)
{
    CUDA_LOCKED;
    struct stream *stream;

    return exec_of(handle) ? stream_get(stream_handle, &stream) : CUDA_ERROR_INVALID_VALUE;
}

/* The update is allowed where both have the same kinds of nodes in the same order. */
static bool same_topology(const struct graph *a, const struct graph *b)
{
    const struct graph_node *x = a->nodes;
    const struct graph_node *y = b->nodes;

    for (; x && y; x = x->next, y = y->next) {
        if (x->work.type != y->work.type || x->deps.count != y->deps.count)
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
