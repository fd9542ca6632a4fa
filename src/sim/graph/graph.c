/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: nodes and edges, copies, and running one. */
#include <stdlib.h>
#include <string.h>

#include "sim/work/stream.h"

struct graph *graph_create(void)
{
    struct graph *graph = calloc(1, sizeof *graph);

    if (!graph)
        return NULL;
    graph->last = &graph->nodes;
    object_add(&graph->object, OBJECT_GRAPH);
    return graph;
}

static void work_finish(struct work *work)
{
    if (work->type == CU_GRAPH_NODE_TYPE_GRAPH)
        graph_destroy(work->child);
}

void graph_destroy(struct graph *graph)
{
    if (!graph)
        return;
    if (graph->alone)
        graph_exec_orphan(graph->alone);
    while (graph->nodes) {
        struct graph_node *node = graph->nodes;

        graph->nodes = node->next;
        object_remove(&node->object);
        work_finish(&node->work);
        node_list_finish(&node->deps);
        free(node);
    }
    object_remove(&graph->object);
    free(graph);
}

CUresult graph_add(struct graph *graph, const struct work *work, const struct node_list *deps,
    struct graph_node **ret_node)
{
    struct graph_node *node = calloc(1, sizeof *node);

    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->graph = graph;
    node->work = *work;
    if (node_list_add(&node->deps, deps) != CUDA_SUCCESS) {
        free(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* Copies keep the address; it is never given out again. */
    if (work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !work->memory.address) {
        node->work.memory.address = graph_address_take(graph, work->memory.bytes);
        if (!node->work.memory.address) {
            node_list_finish(&node->deps);
            free(node);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    object_add(&node->object, OBJECT_GRAPH_NODE);
    *graph->last = node;
    graph->last = &node->next;
    graph->count++;
    graph->memory = graph->memory || work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
                    work->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
                    (work->type == CU_GRAPH_NODE_TYPE_GRAPH && work->child->memory);
    *ret_node = node;
    return CUDA_SUCCESS;
}

CUresult graph_deps(
    const struct graph *graph, const CUgraphNode *handles, size_t count, struct node_list *ret_list)
{
    struct node_list list = {0};

    if (count && !handles)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        struct graph_node *node = object_find(handles[i], OBJECT_GRAPH_NODE);
        CUresult r = node && node->graph == graph
                         ? node_list_add(&list, &(struct node_list){&node, 1})
                         : CUDA_ERROR_INVALID_VALUE;

        if (r != CUDA_SUCCESS) {
            node_list_finish(&list);
            return r;
        }
    }
    *ret_list = list;
    return CUDA_SUCCESS;
}

/* Into order, each node after all that it depends on; fewer than count if there is a cycle. */
static size_t graph_sort(const struct graph *graph, struct graph_node **order)
{
    size_t placed = 0;
    bool progress = true;

    for (struct graph_node *node = graph->nodes; node; node = node->next)
        node->place = SIZE_MAX;
    while (progress && placed < graph->count) {
        progress = false;
        for (struct graph_node *node = graph->nodes; node; node = node->next) {
            bool ready = node->place == SIZE_MAX;

            for (size_t i = 0; ready && i < node->deps.count; i++)
                ready = node->deps.nodes[i]->place != SIZE_MAX;
            if (!ready)
                continue;
            node->place = placed;
            order[placed++] = node;
            progress = true;
        }
    }
    return placed;
}

/* place marks what was looked at. */
static bool follows(struct graph_node *node, const struct graph_node *before)
{
    bool found = node == before;

    node->place = 0;
    for (size_t i = 0; !found && i < node->deps.count; i++)
        found = node->deps.nodes[i]->place && follows(node->deps.nodes[i], before);
    return found;
}

bool graph_node_follows(const struct graph_node *node, const struct graph_node *before)
{
    for (struct graph_node *other = node->graph->nodes; other; other = other->next)
        other->place = SIZE_MAX;
    return follows((struct graph_node *)node, before);
}

/* The copy's nodes lie in topological order, so that running it is one walk. */
CUresult graph_copy(const struct graph *graph, struct graph **ret_copy)
{
    struct graph *copy = graph_create();
    struct graph_node **order = calloc(graph->count + 1, sizeof *order);
    struct graph_node **made = calloc(graph->count + 1, sizeof *made);
    CUresult r = CUDA_SUCCESS;

    if (!copy || !order || !made)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    else if (graph_sort(graph, order) != graph->count)
        r = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; r == CUDA_SUCCESS && i < graph->count; i++) {
        struct work work = order[i]->work;

        if (work.type == CU_GRAPH_NODE_TYPE_GRAPH)
            r = graph_copy(order[i]->work.child, &work.child);
        if (r == CUDA_SUCCESS)
            r = graph_add(copy, &work, &(struct node_list){0}, &made[i]);
        if (r != CUDA_SUCCESS)
            break;
        made[i]->disabled = order[i]->disabled;
        made[i]->original = order[i];
        for (size_t j = 0; r == CUDA_SUCCESS && j < order[i]->deps.count; j++) {
            struct graph_node *dep = made[order[i]->deps.nodes[j]->place];

            r = node_list_add(&made[i]->deps, &(struct node_list){&dep, 1});
        }
    }
    free(order);
    free(made);
    if (r == CUDA_SUCCESS)
        *ret_copy = copy;
    else
        graph_destroy(copy);
    return r;
}

/* One node after another: the compute engine would take no two at a time. */
CUresult graph_run(struct graph *graph, struct stream *stream)
{
    /* Launches of one executable graph follow each other, whatever their streams. */
    stream_append_after(stream, &graph->launched);
    for (struct graph_node *node = graph->nodes; node; node = node->next) {
        CUresult r = node->disabled ? CUDA_SUCCESS : work_run(stream, &node->work);

        if (r != CUDA_SUCCESS)
            return r;
    }
    graph->launched = stream->queue.last;
    return CUDA_SUCCESS;
}
