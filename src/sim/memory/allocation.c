/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of allocations by address. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "sim/work/stream.h"

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
    value_queue_forget(allocation->address, allocation->bytes);
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
