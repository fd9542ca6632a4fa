/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered memory: pools that grow by allocations of 32 MiB each (200 MiB took seven on an
 * H200, driver 580.159.04) and give empty chunks back above the release threshold when
 * synchronised. Chunks of host and managed memory take none of the device's; that they have the
 * same size was not seen on a driver.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "sim/memory/pool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim/work/stream.h"

#define UNIT_BYTES 512

/* A free stretch of a chunk, sorted, coalesced. */
struct hole {
    uint64_t first;
    uint64_t bytes;
    struct hole *next;
};

struct chunk {
    struct chunk *next;
    struct rm_object rm; /* of device memory */
    struct device *device;
    uint64_t address;
    uint64_t bytes;
    struct hole *holes;
    uint64_t used;
};

static struct pool *pools;

struct pool *pool_of(CUmemoryPool handle)
{
    return object_find(handle, OBJECT_POOL);
}

CUresult pool_create(
    CUmemAllocationType type, const CUmemLocation *location, struct pool **ret_pool)
{
    struct pool start = {.type = type, .location = *location};
    CUresult r = place_of(type, location, &start.place, &start.device);
    struct pool *pool = r == CUDA_SUCCESS ? malloc(sizeof *pool) : NULL;

    if (!pool)
        return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
    *pool = start;
    pool->follow_event = pool->opportunistic = pool->internal = 1;
    pool->next = pools;
    pools = pool;
    object_add(&pool->object, OBJECT_POOL);
    *ret_pool = pool;
    return CUDA_SUCCESS;
}

static CUresult device_pool_create(const struct device *device, struct pool **pool)
{
    CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal};
    CUresult r = *pool ? CUDA_SUCCESS : pool_create(CU_MEM_ALLOCATION_TYPE_PINNED, &here, pool);

    if (r == CUDA_SUCCESS)
        (*pool)->is_default = true;
    return r;
}

CUresult pools_init(struct device *device)
{
    CUresult r = device_pool_create(device, &device->default_pool);

    if (r == CUDA_SUCCESS)
        r = device_pool_create(device, &device->graph_pool);
    device->current_pool = device->default_pool;
    return r;
}

static void chunk_give_memory(const struct pool *pool, struct chunk *chunk)
{
    if (pool->place == PLACE_DEVICE)
        address_release(chunk->address, chunk->bytes);
    else
        munmap((void *)(uintptr_t)chunk->address, chunk->bytes);
    if (chunk->rm.handle)
        rm_memory_destroy(chunk->device, &chunk->rm);
}

/* Device memory has addresses that the host does not reach, the other kinds are mapped. */
static uint64_t chunk_address(const struct pool *pool, uint64_t bytes)
{
    void *mapped;

    if (pool->place == PLACE_DEVICE)
        return address_take(bytes, MEMORY_PAGE_BYTES);
    mapped = mmap(
        NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mapped == MAP_FAILED ? 0 : (uintptr_t)mapped;
}

static CUresult chunk_take_memory(const struct pool *pool, struct chunk *chunk)
{
    CUresult r = CUDA_SUCCESS;

    if (pool->place == PLACE_DEVICE)
        r = rm_memory_create_parts(chunk->device, chunk->bytes, POOL_CHUNK_BYTES, &chunk->rm);
    if (r != CUDA_SUCCESS)
        return r;
    chunk->address = chunk_address(pool, chunk->bytes);
    if (chunk->address)
        return CUDA_SUCCESS;
    if (chunk->rm.handle)
        rm_memory_destroy(chunk->device, &chunk->rm);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void chunk_destroy(struct pool *pool, struct chunk *chunk)
{
    while (chunk->holes) {
        struct hole *hole = chunk->holes;

        chunk->holes = hole->next;
        free(hole);
    }
    pool->reserved -= chunk->bytes;
    chunk_give_memory(pool, chunk);
    free(chunk);
}

static CUresult chunk_create(
    struct pool *pool, struct device *device, uint64_t bytes, struct chunk **ret_chunk)
{
    struct chunk *chunk = calloc(1, sizeof *chunk);
    struct hole *hole = calloc(1, sizeof *hole);
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

    if (chunk && hole && bytes <= UINT64_MAX / 4) {
        chunk->device = device;
        chunk->bytes = bytes = round_up(bytes, POOL_CHUNK_BYTES);
        r = pool->max_size && pool->reserved + bytes > round_up(pool->max_size, POOL_CHUNK_BYTES)
                ? CUDA_ERROR_OUT_OF_MEMORY
                : chunk_take_memory(pool, chunk);
    }
    if (r != CUDA_SUCCESS) {
        free(chunk);
        free(hole);
        return r;
    }
    *hole = (struct hole){chunk->address, bytes, NULL};
    chunk->holes = hole;
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    pool->reserved += bytes;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    *ret_chunk = chunk;
    return CUDA_SUCCESS;
}

/* 0 if the chunk has no stretch that long. */
static uint64_t chunk_take(struct chunk *chunk, uint64_t bytes)
{
    for (struct hole **at = &chunk->holes; *at; at = &(*at)->next) {
        struct hole *hole = *at;
        uint64_t address = hole->first;

        if (hole->bytes < bytes)
            continue;
        hole->first += bytes;
        hole->bytes -= bytes;
        if (hole->bytes == 0) {
            *at = hole->next;
            free(hole);
        }
        chunk->used += bytes;
        return address;
    }
    return 0;
}

static void chunk_give(struct chunk *chunk, uint64_t address, uint64_t bytes)
{
    struct hole **at = &chunk->holes;
    struct hole *before = NULL;
    struct hole *hole;

    chunk->used -= bytes;
    while (*at && (*at)->first < address) {
        before = *at;
        at = &(*at)->next;
    }
    if (before && before->first + before->bytes == address) {
        before->bytes += bytes;
        hole = before;
    } else {
        hole = malloc(sizeof *hole);
        if (!hole)
            return;
        *hole = (struct hole){address, bytes, *at};
        *at = hole;
    }
    if (hole->next && hole->first + hole->bytes == hole->next->first) {
        struct hole *joined = hole->next;

        hole->bytes += joined->bytes;
        hole->next = joined->next;
        free(joined);
    }
}

static struct chunk *chunk_of(const struct pool *pool, uint64_t address)
{
    struct chunk *chunk = pool->chunks;

    while (chunk && (address < chunk->address || address >= chunk->address + chunk->bytes))
        chunk = chunk->next;
    return chunk;
}

CUresult pool_allocate(
    struct pool *pool, struct context *context, uint64_t bytes, struct allocation **ret_allocation)
{
    uint64_t units;
    uint64_t address = 0;
    struct device *device = pool->device ? pool->device : context->device;
    struct chunk *chunk;
    CUresult r;

    if (bytes > UINT64_MAX / 4)
        return CUDA_ERROR_OUT_OF_MEMORY;
    units = round_up(bytes, UNIT_BYTES);
    for (chunk = pool->chunks; chunk && !address; chunk = chunk->next)
        address = chunk_take(chunk, units);
    if (!address) {
        r = chunk_create(pool, device, units, &chunk);
        if (r == CUDA_ERROR_OUT_OF_MEMORY && pool_trim(pool, 0))
            r = chunk_create(pool, device, units, &chunk);
        if (r != CUDA_SUCCESS)
            return r;
        address = chunk_take(chunk, units);
    }
    r = allocation_add((struct allocation){.address = address,
                           .bytes = bytes,
                           .kind = ALLOCATION_POOL,
                           .place = pool->place,
                           .context = context,
                           .device = device,
                           .pool = pool},
        ret_allocation);
    if (r != CUDA_SUCCESS) {
        chunk_give(chunk_of(pool, address), address, units);
        return r;
    }
    pool->used += units;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    return CUDA_SUCCESS;
}

static void pool_finish(struct pool *pool)
{
    struct pool **at = &pools;

    pool_trim(pool, 0);
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    free(pool);
}

void pool_free(struct allocation *allocation)
{
    struct pool *pool = allocation->pool;
    uint64_t units = round_up(allocation->bytes, UNIT_BYTES);

    if (allocation->graph) {
        graph_memory_release(allocation);
        return;
    }
    chunk_give(chunk_of(pool, allocation->address), allocation->address, units);
    pool->used -= units;
    allocation_forget(allocation);
    if (pool->destroyed && pool->used == 0)
        pool_finish(pool);
}

uint64_t pool_trim(struct pool *pool, uint64_t keep)
{
    struct chunk **at = &pool->chunks;
    uint64_t before = pool->reserved;

    while (*at && pool->reserved > keep) {
        struct chunk *chunk = *at;

        if (chunk->used) {
            at = &chunk->next;
            continue;
        }
        *at = chunk->next;
        chunk_destroy(pool, chunk);
    }
    return before - pool->reserved;
}

void pools_release(struct device *device)
{
    for (struct pool *pool = pools; pool; pool = pool->next) {
        /* Graph memory stays until cuDeviceGraphMemTrim. */
        if ((pool->device == device || !pool->device) && pool != device->graph_pool)
            pool_trim(pool, pool->release_threshold);
    }
}

void pool_destroy(struct pool *pool)
{
    pool_leave_places(pool);
    object_remove(&pool->object);
    pool->destroyed = true;
    if (pool->used == 0)
        pool_finish(pool);
}
