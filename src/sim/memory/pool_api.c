/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the stream-ordered allocator, and graph memory's per-device figures. */
#include "sim/memory/pool.h"
#include "sim/work/stream.h"

static CUresult pool_allocate_on(
    CUdeviceptr *address, size_t bytes, struct pool *pool, CUstream handle)
{
    struct stream *stream;
    struct allocation *allocation;
    CUresult r = stream_get(handle, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!address || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!pool)
        pool = stream->context->device->current_pool;
    if (stream->capture)
        return capture_allocation(stream, bytes, pool, address);
    r = pool_allocate(pool, stream->context, bytes, &allocation);
    if (r == CUDA_SUCCESS)
        *address = allocation->address;
    return r;
}

CUresult sim_cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    CUDA_LOCKED;

    return pool_allocate_on(address, bytes, NULL, stream);
}

CUresult sim_cuMemAllocFromPoolAsync(
    CUdeviceptr *address, size_t bytes, CUmemoryPool handle, CUstream stream)
{
    CUDA_LOCKED;
    struct pool *pool = pool_of(handle);

    return pool ? pool_allocate_on(address, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
    CUDA_LOCKED;
    struct stream *stream;
    struct allocation *allocation;
    struct sim_ticket here;
    CUresult r = stream_get(handle, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (stream->capture)
        return capture_free(stream, address);
    allocation = allocation_at(address);
    if (!allocation)
        return CUDA_ERROR_INVALID_VALUE;
    if (allocation->graph) {
        here = stream_here(stream);
        return graph_memory_free(address, &here);
    }
    if (allocation->kind == ALLOCATION_POOL)
        pool_free(allocation);
    else if (allocation->kind == ALLOCATION_DEVICE || allocation->kind == ALLOCATION_BLOCK)
        memory_destroy(allocation);
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* "Not IPC capable" are pools of the whole host and of managed memory; the latter have neither a
 * bound nor a use of their own (cuMemPoolCreate). */
static bool pool_props_fit(const CUmemPoolProps *props)
{
    if (props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED)
        return !props->handleTypes && !props->maxSize && !props->usage;
    return props->location.type != CU_MEM_LOCATION_TYPE_HOST || !props->handleTypes;
}

CUresult sim_cuMemPoolCreate(CUmemoryPool *ret, const CUmemPoolProps *props)
{
    CUDA_LOCKED;
    struct pool *pool;
    CUresult r;

    if (!ret || !props || !pool_props_fit(props))
        return CUDA_ERROR_INVALID_VALUE;
    r = pool_create(props->allocType, &props->location, &pool);
    if (r != CUDA_SUCCESS)
        return r;
    pool->max_size = props->maxSize;
    pool->handle_types = (unsigned)props->handleTypes;
    *ret = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolDestroy(CUmemoryPool handle)
{
    CUDA_LOCKED;
    struct pool *pool = pool_of(handle);

    if (!pool || pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    pool_destroy(pool);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
    CUDA_LOCKED;
    struct pool *pool = pool_of(handle);

    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    pool_trim(pool, keep);
    return CUDA_SUCCESS;
}

static int *pool_switch(struct pool *pool, CUmemPool_attribute attribute)
{
    if (attribute == CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES)
        return &pool->follow_event;
    if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC)
        return &pool->opportunistic;
    if (attribute == CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
        return &pool->internal;
    return NULL;
}

static uint64_t *pool_figure(struct pool *pool, CUmemPool_attribute attribute)
{
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->release_threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

CUresult sim_cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    CUDA_LOCKED;
    struct pool *pool = pool_of(handle);

    if (!pool || !value)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool_switch(pool, attribute))
        *(int *)value = *pool_switch(pool, attribute);
    else if (pool_figure(pool, attribute))
        *(uint64_t *)value = *pool_figure(pool, attribute);
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    CUDA_LOCKED;
    struct pool *pool = pool_of(handle);

    if (!pool || !value)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool_switch(pool, attribute)) {
        *pool_switch(pool, attribute) = *(int *)value;
    } else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        pool->release_threshold = *(uint64_t *)value;
    } else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && *(uint64_t *)value == 0) {
        pool->reserved_high = pool->reserved;
    } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && *(uint64_t *)value == 0) {
        pool->used_high = pool->used;
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
    CUDA_LOCKED;

    return pool_of(handle) && (map || !count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_cuDeviceGraphMemTrim(CUdevice ordinal)
{
    CUDA_LOCKED;
    struct device *device = device_of(ordinal);

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    graph_memory_trim(device);
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetGraphMemAttribute(
    CUdevice ordinal, CUgraphMem_attribute attribute, void *value)
{
    CUDA_LOCKED;
    struct device *device = device_of(ordinal);
    uint64_t used = device ? graph_memory_used(device) : 0;
    uint64_t *figures[] = {
        [CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT] = &used,
        [CU_GRAPH_MEM_ATTR_USED_MEM_HIGH] = device ? &device->graph_pool->used_high : NULL,
        [CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT] = device ? &device->graph_pool->reserved : NULL,
        [CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH] = device ? &device->graph_pool->reserved_high : NULL,
    };

    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || (unsigned)attribute >= sizeof figures / sizeof *figures)
        return CUDA_ERROR_INVALID_VALUE;
    *(uint64_t *)value = *figures[attribute];
    return CUDA_SUCCESS;
}
