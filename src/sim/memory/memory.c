/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuMemAlloc and its kin. As measured on an H200 (580.159.04): small requests share blocks of
 * 2 MiB, larger ones get a device-memory object of their own in units of 2 MiB.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim/work/stream.h"

#define UNIT_BYTES 512
#define BLOCK_UNITS (MEMORY_PAGE_BYTES / UNIT_BYTES)

/* 2 MiB that small allocations of one context share. */
struct block {
    struct block *next;
    struct rm_object rm;
    uint64_t address;
    unsigned used_units;
    unsigned char taken[BLOCK_UNITS];
};

static struct block *block_create(struct context *context, CUresult *ret)
{
    struct block *block = calloc(1, sizeof *block);

    *ret = CUDA_ERROR_OUT_OF_MEMORY;
    if (!block)
        return NULL;
    block->address = address_take(MEMORY_PAGE_BYTES, MEMORY_PAGE_BYTES);
    if (block->address)
        *ret = rm_memory_create(context->device, MEMORY_PAGE_BYTES, &block->rm);
    if (*ret != CUDA_SUCCESS) {
        if (block->address)
            address_release(block->address, MEMORY_PAGE_BYTES);
        free(block);
        return NULL;
    }
    block->next = context->blocks;
    context->blocks = block;
    return block;
}

static void block_destroy(struct context *context, struct block *block)
{
    struct block **at = &context->blocks;

    while (*at != block)
        at = &(*at)->next;
    *at = block->next;
    rm_memory_destroy(context->device, &block->rm);
    address_release(block->address, MEMORY_PAGE_BYTES);
    free(block);
}

struct rm_object memory_block_object(const struct block *block, uint64_t *ret_address)
{
    *ret_address = block->address;
    return block->rm;
}

/* First unit of a run of free ones, BLOCK_UNITS if there is none. */
static unsigned block_find(const struct block *block, unsigned units)
{
    unsigned run = 0;

    if (BLOCK_UNITS - block->used_units < units)
        return BLOCK_UNITS;
    for (unsigned i = 0; i < BLOCK_UNITS; i++) {
        run = block->taken[i] ? 0 : run + 1;
        if (run == units)
            return i + 1 - units;
    }
    return BLOCK_UNITS;
}

static CUresult small_create(struct context *context, uint64_t bytes, enum allocation_kind kind,
    struct allocation **ret_allocation)
{
    unsigned units = (unsigned)(round_up(bytes, UNIT_BYTES) / UNIT_BYTES);
    struct block *block = context->blocks;
    unsigned first = BLOCK_UNITS;
    CUresult r;

    for (; block; block = block->next) {
        first = block_find(block, units);
        if (first < BLOCK_UNITS)
            break;
    }
    if (!block) {
        block = block_create(context, &r);
        if (!block)
            return r;
        first = 0;
    }
    r = allocation_add((struct allocation){.address = block->address + first * UNIT_BYTES,
                           .bytes = bytes,
                           .kind = kind,
                           .context = context,
                           .device = context->device,
                           .block = block},
        ret_allocation);
    if (r == CUDA_SUCCESS) {
        memset(block->taken + first, 1, units);
        block->used_units += units;
    } else if (block->used_units == 0) {
        block_destroy(context, block);
    }
    return r;
}

static CUresult large_create(struct context *context, uint64_t bytes, enum allocation_kind kind,
    struct allocation **ret_allocation)
{
    struct allocation allocation = {
        .bytes = bytes, .kind = kind, .context = context, .device = context->device};
    CUresult r = rm_memory_create(context->device, bytes, &allocation.rm);

    if (r != CUDA_SUCCESS)
        return r;
    allocation.address = address_take(bytes, MEMORY_PAGE_BYTES);
    r = allocation.address ? allocation_add(allocation, ret_allocation) : CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
        if (allocation.address)
            address_release(allocation.address, bytes);
        rm_memory_destroy(context->device, &allocation.rm);
    }
    return r;
}

CUresult memory_create(struct context *context, uint64_t bytes, enum allocation_kind kind,
    struct allocation **ret_allocation)
{
    if (bytes < MEMORY_OWN_OBJECT_BYTES)
        return small_create(context, bytes, kind, ret_allocation);
    return large_create(context, bytes, kind, ret_allocation);
}

void memory_destroy(struct allocation *allocation)
{
    struct context *context = allocation->context;
    struct block *block = allocation->block;

    value_queue_forget(allocation->address, allocation->bytes);
    if (block) {
        unsigned first = (unsigned)((allocation->address - block->address) / UNIT_BYTES);
        unsigned units = (unsigned)(round_up(allocation->bytes, UNIT_BYTES) / UNIT_BYTES);

        memset(block->taken + first, 0, units);
        block->used_units -= units;
        if (block->used_units == 0)
            block_destroy(context, block);
    } else if (allocation->rm.handle) {
        /* An imported small allocation begins somewhere in its pages. */
        address_release(
            allocation->address / MEMORY_PAGE_BYTES * MEMORY_PAGE_BYTES, allocation->rm.bytes);
        rm_memory_destroy(allocation->device, &allocation->rm);
    } else if (allocation->kind == ALLOCATION_EXTERNAL) {
        address_release(allocation->address, allocation->bytes);
    } else if (allocation->kind == ALLOCATION_MANAGED || allocation->kind == ALLOCATION_HOST) {
        munmap((void *)(uintptr_t)allocation->address, round_up(allocation->bytes, 4096));
    }
    allocation_forget(allocation);
}

/* Mappings and pool memory belong to the device and outlive the context. */
static bool belongs_to(const struct allocation *allocation, const void *context)
{
    return allocation->context == context && allocation->kind != ALLOCATION_MAPPING &&
           allocation->kind != ALLOCATION_POOL;
}

void memory_context_finish(struct context *context)
{
    size_t count;
    struct allocation **found = allocation_collect(belongs_to, context, &count);

    for (size_t i = 0; i < count; i++)
        memory_destroy(found[i]);
    free(found);
}

CUresult sim_cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    CUDA_LOCKED;
    struct allocation *allocation;
    CUresult r;

    if (!address || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    r = memory_create(context_current(), bytes,
        bytes < MEMORY_OWN_OBJECT_BYTES ? ALLOCATION_BLOCK : ALLOCATION_DEVICE, &allocation);
    if (r == CUDA_SUCCESS)
        *address = allocation->address;
    return r;
}

CUresult sim_cuMemAllocPitch_v2(
    CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element_bytes)
{
    uint64_t row;
    CUresult r;

    if (!address || !pitch || !width || !height ||
        (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
        return CUDA_ERROR_INVALID_VALUE;
    row = round_up(width, UNIT_BYTES);
    if (row < width || height > UINT64_MAX / row)
        return CUDA_ERROR_INVALID_VALUE;
    r = sim_cuMemAlloc_v2(address, row * height);
    if (r == CUDA_SUCCESS)
        *pitch = row;
    return r;
}

CUresult sim_cuMemFree_v2(CUdeviceptr address)
{
    CUDA_LOCKED;
    struct allocation *allocation = allocation_at(address);

    if (!address)
        return CUDA_SUCCESS;
    if (!allocation)
        return CUDA_ERROR_INVALID_VALUE;
    switch (allocation->kind) {
    case ALLOCATION_POOL:
        pool_free(allocation);
        return CUDA_SUCCESS;
    case ALLOCATION_DEVICE:
    case ALLOCATION_BLOCK:
    case ALLOCATION_MANAGED:
    case ALLOCATION_EXTERNAL:
        memory_destroy(allocation);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult sim_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    CUDA_LOCKED;
    const struct allocation *allocation = allocation_find(address);

    if (!allocation)
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = allocation->address;
    if (bytes)
        *bytes = allocation->bytes;
    return CUDA_SUCCESS;
}
