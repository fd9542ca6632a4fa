/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses: the private range that device memory lies in (numbers only, nothing is mapped), the
 * tree of allocations by address, and the bytes kept for those that were written.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim/work/stream.h"

/* Neither the kernel's mmap area nor a sanitizer's shadow lies here. */
#define RANGE_FIRST 0x200000000000u
#define RANGE_END 0x500000000000u

/* Free stretches, sorted by address, never touching each other. */
struct stretch {
    uint64_t first;
    uint64_t end;
    struct stretch *next;
};

static struct stretch *free_stretches;
static bool range_ready;

static void range_init(void)
{
    if (range_ready)
        return;
    range_ready = true;
    free_stretches = malloc(sizeof *free_stretches);
    if (free_stretches)
        *free_stretches = (struct stretch){RANGE_FIRST, RANGE_END, NULL};
}

bool address_is_device(uint64_t address)
{
    return address >= RANGE_FIRST && address < RANGE_END;
}

/* Takes [first, first + bytes) out of *at, in which it lies. */
static bool stretch_cut(struct stretch **at, uint64_t first, uint64_t bytes)
{
    struct stretch *stretch = *at;
    uint64_t end = first + bytes;

    if (first > stretch->first && end < stretch->end) {
        struct stretch *rest = malloc(sizeof *rest);

        if (!rest)
            return false;
        *rest = (struct stretch){end, stretch->end, stretch->next};
        stretch->end = first;
        stretch->next = rest;
    } else if (first > stretch->first) {
        stretch->end = first;
    } else if (end < stretch->end) {
        stretch->first = end;
    } else {
        *at = stretch->next;
        free(stretch);
    }
    return true;
}

uint64_t address_take(uint64_t bytes, uint64_t alignment)
{
    range_init();
    bytes = round_up(bytes, MEMORY_PAGE_BYTES);
    if (alignment < MEMORY_PAGE_BYTES)
        alignment = MEMORY_PAGE_BYTES;
    for (struct stretch **at = &free_stretches; *at; at = &(*at)->next) {
        uint64_t first = round_up((*at)->first, alignment);

        if (first >= (*at)->first && first < (*at)->end && bytes <= (*at)->end - first)
            return stretch_cut(at, first, bytes) ? first : 0;
    }
    return 0;
}

bool address_take_at(uint64_t address, uint64_t bytes)
{
    range_init();
    bytes = round_up(bytes, MEMORY_PAGE_BYTES);
    for (struct stretch **at = &free_stretches; *at; at = &(*at)->next) {
        if (address >= (*at)->first && address < (*at)->end && bytes <= (*at)->end - address)
            return stretch_cut(at, address, bytes);
    }
    return false;
}

void address_release(uint64_t address, uint64_t bytes)
{
    struct stretch **at = &free_stretches;
    struct stretch *freed = malloc(sizeof *freed);

    if (!freed)
        return;
    while (*at && (*at)->end < address)
        at = &(*at)->next;
    *freed = (struct stretch){address, address + round_up(bytes, MEMORY_PAGE_BYTES), *at};
    while (freed->next && freed->next->first <= freed->end) {
        struct stretch *joined = freed->next;

        if (joined->first < freed->first)
            freed->first = joined->first;
        if (joined->end > freed->end)
            freed->end = joined->end;
        freed->next = joined->next;
        free(joined);
    }
    *at = freed;
}

static void *tree;

/* Two records are equal where they overlap, so that a one-byte key finds what it lies in. */
static int allocation_compare(const void *left, const void *right)
{
    const struct allocation *a = left;
    const struct allocation *b = right;

    if (a->address + a->bytes <= b->address)
        return -1;
    return a->address >= b->address + b->bytes;
}

struct allocation *allocation_find(uint64_t address)
{
    struct allocation key = {.address = address, .bytes = 1};
    struct allocation **found = tfind(&key, &tree, allocation_compare);

    return found ? *found : NULL;
}

struct allocation *allocation_at(uint64_t address)
{
    struct allocation *found = allocation_find(address);

    return found && found->address == address ? found : NULL;
}

CUresult allocation_add(struct allocation allocation, struct allocation **ret_allocation)
{
    static unsigned long long next_id = 1;
    struct allocation *record = malloc(sizeof *record);
    struct allocation **node;

    if (!record)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *record = allocation;
    record->id = next_id++;
    node = tsearch(record, &tree, allocation_compare);
    if (!node || *node != record) {
        free(record);
        return node ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (ret_allocation)
        *ret_allocation = record;
    return CUDA_SUCCESS;
}

void allocation_forget(struct allocation *allocation)
{
    values_forget(allocation->address, allocation->bytes);
    tdelete(allocation, &tree, allocation_compare);
    contents_drop(allocation->contents, allocation->bytes);
    free(allocation);
}

/* twalk has no argument to pass; all of this is under the lock. */
static struct {
    bool (*match)(const struct allocation *, const void *);
    const void *what;
    struct allocation **found;
    size_t count;
    size_t room;
} walk;

static void walk_node(const void *node, VISIT order, int depth)
{
    struct allocation *allocation = *(struct allocation *const *)node;

    (void)depth;
    if ((order != postorder && order != leaf) || !walk.match(allocation, walk.what))
        return;
    if (walk.count == walk.room) {
        size_t room = walk.room ? walk.room * 2 : 64;
        struct allocation **found = realloc(walk.found, room * sizeof *found);

        if (!found)
            return;
        walk.found = found;
        walk.room = room;
    }
    walk.found[walk.count++] = allocation;
}

struct allocation **allocation_collect(
    bool (*match)(const struct allocation *, const void *), const void *what, size_t *ret_count)
{
    memset(&walk, 0, sizeof walk);
    walk.match = match;
    walk.what = what;
    twalk(tree, walk_node);
    *ret_count = walk.count;
    return walk.found;
}

static char *contents_map(uint64_t bytes)
{
    void *mapped = mmap(
        NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return mapped == MAP_FAILED ? NULL : mapped;
}

char *contents_get(char **contents, uint64_t bytes)
{
    if (!*contents)
        *contents = contents_map(bytes);
    return *contents;
}

void contents_drop(char *contents, uint64_t bytes)
{
    if (contents)
        munmap(contents, bytes);
}

CUresult contents_of(uint64_t address, uint64_t bytes, char **ret_host)
{
    struct allocation *allocation = allocation_find(address);
    char *base;

    *ret_host = NULL;
    if (!allocation) {
        if (address_is_device(address) || !address)
            return CUDA_ERROR_INVALID_VALUE;
        *ret_host = (char *)(uintptr_t)address;
        return CUDA_SUCCESS;
    }
    if (bytes > allocation->bytes - (address - allocation->address) && address_is_device(address) &&
        allocation->kind != ALLOCATION_MAPPING)
        return CUDA_ERROR_INVALID_VALUE;
    if (!address_is_device(address)) {
        *ret_host = (char *)(uintptr_t)address;
        return CUDA_SUCCESS;
    }
    if (bytes > CONTENTS_KEPT_BYTES || bytes > allocation->bytes - (address - allocation->address))
        return CUDA_SUCCESS;
    if (allocation->vmm) {
        base = vmm_contents(allocation->vmm);
        *ret_host = base ? base + allocation->vmm_offset + (address - allocation->address) : NULL;
    } else {
        base = contents_get(&allocation->contents, allocation->bytes);
        *ret_host = base ? base + (address - allocation->address) : NULL;
    }
    return CUDA_SUCCESS;
}
