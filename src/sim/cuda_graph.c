/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs as such: nodes and edges, copies, running one, and the memory that its nodes take. */
#include <stdlib.h>
#include <string.h>

#include "sim/cuda_pool.h"
#include "sim/cuda_stream.h"

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
        node->work.memory.address = address_take(work->memory.bytes, MEMORY_PAGE_BYTES);
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

CUresult graph_run(
    struct graph *graph, struct stream *stream, uint64_t begin_ns, uint64_t *ret_end_ns)
{
    uint64_t end = begin_ns;

    for (struct graph_node *node = graph->nodes; node; node = node->next) {
        CUresult r;

        node->end_ns = begin_ns;
        for (size_t i = 0; i < node->deps.count; i++) {
            if (node->deps.nodes[i]->end_ns > node->end_ns)
                node->end_ns = node->deps.nodes[i]->end_ns;
        }
        r = node->disabled ? CUDA_SUCCESS
                           : work_run(stream, &node->work, node->end_ns, &node->end_ns);
        if (r != CUDA_SUCCESS)
            return r;
        if (node->end_ns > end)
            end = node->end_ns;
    }
    *ret_end_ns = end;
    return CUDA_SUCCESS;
}

/* Memory that a graph freed, kept for the next launch until cuDeviceGraphMemTrim. */
struct kept {
    struct kept *next;
    struct device *device;
    struct rm_object rm;
};

static struct kept *kept;

static bool kept_take(const struct device *device, uint64_t bytes, struct rm_object *ret_object)
{
    for (struct kept **at = &kept; *at; at = &(*at)->next) {
        struct kept *found = *at;

        if (found->device != device || found->rm.bytes != bytes)
            continue;
        *ret_object = found->rm;
        *at = found->next;
        free(found);
        return true;
    }
    return false;
}

void graph_memory_trim(struct device *device)
{
    struct kept **at = &kept;

    while (*at) {
        struct kept *found = *at;

        if (found->device != device) {
            at = &found->next;
            continue;
        }
        *at = found->next;
        device->graph_pool->reserved -= found->rm.bytes;
        rm_memory_destroy(device, &found->rm);
        free(found);
    }
}

CUresult graph_memory_take(struct context *context, const struct work *work)
{
    struct device *device = work->memory.device;
    struct pool *pool = device->graph_pool;
    uint64_t bytes = round_up(work->memory.bytes, POOL_CHUNK_BYTES);
    struct allocation allocation = {.address = work->memory.address,
        .bytes = work->memory.bytes,
        .kind = ALLOCATION_POOL,
        .context = context,
        .device = device,
        .graph = true};
    CUresult r = CUDA_SUCCESS;

    /* The launch before has not freed it. */
    if (allocation_find(allocation.address))
        return CUDA_ERROR_INVALID_VALUE;
    if (!kept_take(device, bytes, &allocation.rm)) {
        /* A node of 64 MiB took two of 32 at its first launch (seen on H200, driver 580.159.04). */
        r = rm_memory_create_parts(device, bytes, POOL_CHUNK_BYTES, &allocation.rm);
        if (r != CUDA_SUCCESS)
            return r;
        pool->reserved += bytes;
    }
    r = allocation_add(allocation, NULL);
    if (r != CUDA_SUCCESS) {
        pool->reserved -= bytes;
        rm_memory_destroy(device, &allocation.rm);
        return r;
    }
    pool->used += bytes;
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
    pool->reserved_high =
        pool->reserved > pool->reserved_high ? pool->reserved : pool->reserved_high;
    return CUDA_SUCCESS;
}

void graph_memory_release(struct allocation *allocation)
{
    struct pool *pool = allocation->device->graph_pool;
    struct kept *entry = malloc(sizeof *entry);

    pool->used -= allocation->rm.bytes;
    if (entry) {
        *entry = (struct kept){kept, allocation->device, allocation->rm};
        kept = entry;
    } else {
        pool->reserved -= allocation->rm.bytes;
        rm_memory_destroy(allocation->device, &allocation->rm);
    }
    allocation_forget(allocation);
}

CUresult graph_memory_free(uint64_t address)
{
    struct allocation *allocation = allocation_at(address);

    if (!allocation || allocation->kind != ALLOCATION_POOL)
        return CUDA_ERROR_INVALID_VALUE;
    pool_free(allocation);
    return CUDA_SUCCESS;
}
