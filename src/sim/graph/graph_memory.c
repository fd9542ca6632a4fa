/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that graphs allocate. Addresses are fixed with the node and never given out again;
 * memory is taken at the upload or the launch, and kept for the next one until
 * cuDeviceGraphMemTrim. Work in flight keeps what it uses. Host and managed memory takes none of
 * the device's.
 */
#include <stdlib.h>

#include "sim/memory/pool.h"
#include "sim/work/stream.h"

/* ---- addresses ---- */
struct graph_address {
    struct graph_address *next;
    uint64_t address;
    const struct graph *owner; /* compared only: it may be gone */
};

static struct graph_address *addresses;

uint64_t graph_address_take(const struct graph *graph, uint64_t bytes)
{
    struct graph_address *entry = malloc(sizeof *entry);

    if (!entry)
        return 0;
    *entry = (struct graph_address){addresses, address_take(bytes, MEMORY_PAGE_BYTES), graph};
    if (!entry->address) {
        free(entry);
        return 0;
    }
    addresses = entry;
    return entry->address;
}

static bool graph_frees(const struct graph *graph, uint64_t address)
{
    for (const struct graph_node *node = graph->nodes; node; node = node->next) {
        if (node->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE && node->work.memory.address == address)
            return true;
    }
    return false;
}

static bool graph_is_live(const struct graph *graph)
{
    return object_find(graph, OBJECT_GRAPH);
}

/* "An allocation twice in the same graph", "an address that was not returned by an allocation
 * node" (cuGraphAddMemFreeNode); what the owning graph frees cannot be freed elsewhere. */
bool graph_address_may_free(const struct graph *graph, uint64_t address)
{
    const struct graph_address *entry = addresses;

    while (entry && entry->address != address)
        entry = entry->next;
    if (!entry || graph_frees(graph, address))
        return false;
    return entry->owner == graph || !graph_is_live(entry->owner) ||
           !graph_frees(entry->owner, address);
}

/* ---- memory ---- */
struct kept {
    struct kept *next;
    struct device *device;
    struct rm_object rm;
    struct sim_ticket busy; /* work that uses it */
};

static struct kept *kept;

/* How well the next work on the stream can have it: 0 not at all, 1 it is free, above: it becomes
 * so on this very stream, the more the later. */
static uint64_t kept_rank(const struct kept *entry, const struct stream *stream)
{
    const struct sim_ticket *busy = &entry->busy;
    const struct sim_ticket *last = &stream->queue.last;

    if (busy->generation && busy->ring == last->ring && busy->generation == last->generation)
        return 1 + (uint64_t)busy->sequence;
    return sim_ticket_done(busy, NULL);
}

/* Of what is free by then, that which became so last: earlier work may have been promised the rest.
 */
static bool kept_take(const struct device *device, uint64_t bytes, const struct stream *stream,
    struct rm_object *ret_object)
{
    struct kept **best = NULL;
    uint64_t best_rank = 0;

    for (struct kept **at = &kept; *at; at = &(*at)->next) {
        uint64_t rank =
            (*at)->device == device && (*at)->rm.bytes == bytes ? kept_rank(*at, stream) : 0;

        if (rank > best_rank) {
            best = at;
            best_rank = rank;
        }
    }
    if (!best)
        return false;

    struct kept *found = *best;

    *ret_object = found->rm;
    *best = found->next;
    free(found);
    return true;
}

static void memory_drop(struct device *device, struct rm_object *rm)
{
    device->graph_pool->reserved -= rm->bytes;
    rm_memory_destroy(device, rm);
}

static void kept_give(struct device *device, struct rm_object *rm, const struct sim_ticket *busy)
{
    struct kept *entry = malloc(sizeof *entry);

    if (!entry) {
        memory_drop(device, rm);
        return;
    }
    *entry = (struct kept){kept, device, *rm, *busy};
    kept = entry;
}

static CUresult memory_make(struct device *device, uint64_t bytes, struct rm_object *ret_object)
{
    struct pool *pool = device->graph_pool;
    /* A node of 64 MiB took two of 32 at its first launch (seen on H200, driver 580.159.04). */
    CUresult r = rm_memory_create_parts(device, bytes, POOL_CHUNK_BYTES, ret_object);

    if (r != CUDA_SUCCESS)
        return r;
    pool->reserved += bytes;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    return CUDA_SUCCESS;
}

/* "Currently associated with graphs": work in flight included. */
uint64_t graph_memory_used(const struct device *device)
{
    uint64_t bytes = device->graph_pool->used;

    for (const struct kept *entry = kept; entry; entry = entry->next) {
        if (entry->device == device && !sim_ticket_done(&entry->busy, NULL))
            bytes += entry->rm.bytes;
    }
    return bytes;
}

void graph_memory_trim(struct device *device)
{
    struct kept **at = &kept;

    while (*at) {
        struct kept *found = *at;

        if (found->device != device || !sim_ticket_done(&found->busy, NULL)) {
            at = &found->next;
            continue;
        }
        *at = found->next;
        memory_drop(device, &found->rm);
        free(found);
    }
}

/* ---- before a launch: all that it needs at a time ---- */
struct need {
    struct device *device;
    struct rm_object rm;
    uint64_t address;
    const struct graph_node *freed_by; /* NULL: in use */
    bool fresh;
};

struct needs {
    struct need *list;
    size_t count;
    const struct stream *stream;
};

static CUresult need_allocation(struct needs *needs, const struct graph_node *node)
{
    uint64_t bytes = round_up(node->work.memory.bytes, POOL_CHUNK_BYTES);
    struct need *list;
    struct need need = {.device = node->work.memory.device, .address = node->work.memory.address};
    CUresult r;

    for (size_t i = 0; i < needs->count; i++) {
        struct need *other = &needs->list[i];

        if (other->freed_by && other->device == need.device && other->rm.bytes == bytes &&
            other->freed_by->graph == node->graph && graph_node_follows(node, other->freed_by)) {
            other->freed_by = NULL;
            other->address = need.address;
            return CUDA_SUCCESS;
        }
    }
    list = realloc(needs->list, (needs->count + 1) * sizeof *list);
    if (!list)
        return CUDA_ERROR_OUT_OF_MEMORY;
    needs->list = list;
    if (!kept_take(need.device, bytes, needs->stream, &need.rm)) {
        r = memory_make(need.device, bytes, &need.rm);
        if (r != CUDA_SUCCESS)
            return r;
        need.fresh = true;
    }
    list[needs->count++] = need;
    return CUDA_SUCCESS;
}

static void need_free(struct needs *needs, const struct graph_node *node)
{
    for (size_t i = 0; i < needs->count; i++) {
        struct need *need = &needs->list[i];

        if (!need->freed_by && need->address == node->work.memory.address)
            need->freed_by = node;
    }
}

static CUresult needs_add(struct needs *needs, const struct graph *graph, struct context *context)
{
    CUresult r = CUDA_SUCCESS;

    for (const struct graph_node *node = graph->nodes; node && r == CUDA_SUCCESS;
         node = node->next) {
        if (node->disabled)
            continue;
        if (node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            r = node->work.memory.place == PLACE_DEVICE ? need_allocation(needs, node) : r;
        else if (node->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            need_free(needs, node);
        else if (node->work.type == CU_GRAPH_NODE_TYPE_GRAPH)
            r = needs_add(needs, node->work.child, context);
        else if (node->work.type == CU_GRAPH_NODE_TYPE_KERNEL)
            r = context_local_grow(context, node->work.kernel.local_bytes);
    }
    return r;
}

CUresult graph_memory_prepare(struct graph *graph, struct stream *stream)
{
    struct needs needs = {.stream = stream};
    CUresult r = needs_add(&needs, graph, stream->context);

    for (size_t i = 0; i < needs.count; i++) {
        struct need *need = &needs.list[i];

        if (r != CUDA_SUCCESS && need->fresh)
            memory_drop(need->device, &need->rm);
        else
            kept_give(need->device, &need->rm, &(struct sim_ticket){0});
    }
    free(needs.list);
    return r;
}

/* ---- what a launch leaves ---- */
static bool left_at(const struct graph_node *node)
{
    const struct allocation *allocation = node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC
                                              ? allocation_at(node->work.memory.address)
                                              : NULL;

    return allocation && allocation->graph;
}

bool graph_memory_left(const struct graph *graph)
{
    for (const struct graph_node *node = graph->nodes; node; node = node->next) {
        if (left_at(node) ||
            (node->work.type == CU_GRAPH_NODE_TYPE_GRAPH && graph_memory_left(node->work.child)))
            return true;
    }
    return false;
}

void graph_memory_free_left(const struct graph *graph, const struct sim_ticket *after)
{
    for (const struct graph_node *node = graph->nodes; node; node = node->next) {
        if (left_at(node))
            (void)graph_memory_free(node->work.memory.address, after);
        else if (node->work.type == CU_GRAPH_NODE_TYPE_GRAPH)
            graph_memory_free_left(node->work.child, after);
    }
}

/* ---- as the nodes run ---- */
CUresult graph_memory_take(struct stream *stream, const struct work *work)
{
    struct device *device = work->memory.device ? work->memory.device : stream->context->device;
    struct pool *pool = device->graph_pool;
    uint64_t bytes = round_up(work->memory.bytes, POOL_CHUNK_BYTES);
    struct allocation allocation = {.address = work->memory.address,
        .bytes = work->memory.bytes,
        .kind = ALLOCATION_POOL,
        .place = work->memory.place,
        .context = stream->context,
        .device = device,
        .graph = true};
    CUresult r = CUDA_SUCCESS;

    if (allocation_find(allocation.address))
        return CUDA_ERROR_INVALID_VALUE;
    if (work->memory.place != PLACE_DEVICE)
        return allocation_add(allocation, NULL);
    if (!kept_take(device, bytes, stream, &allocation.rm))
        r = memory_make(device, bytes, &allocation.rm);
    if (r != CUDA_SUCCESS)
        return r;
    r = allocation_add(allocation, NULL);
    if (r != CUDA_SUCCESS) {
        memory_drop(device, &allocation.rm);
        return r;
    }
    pool->used += bytes;
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
    return CUDA_SUCCESS;
}

static void release_after(struct allocation *allocation, const struct sim_ticket *after)
{
    if (allocation->place == PLACE_DEVICE) {
        allocation->device->graph_pool->used -= allocation->rm.bytes;
        kept_give(allocation->device, &allocation->rm, after);
    }
    allocation_forget(allocation);
}

void graph_memory_release(struct allocation *allocation)
{
    release_after(allocation, &(struct sim_ticket){0});
}

CUresult graph_memory_free(uint64_t address, const struct sim_ticket *after)
{
    struct allocation *allocation = allocation_at(address);

    if (!allocation || !allocation->graph)
        return CUDA_ERROR_INVALID_VALUE;
    release_after(allocation, after);
    return CUDA_SUCCESS;
}
