/* SPDX-License-Identifier: Apache-2.0 */
/* A treap: a search tree by address that is a heap by a hash of it, and so about balanced. */
#include "vmem/range_table.h"

/* A finalizer as of splitmix64. */
static uint64_t rank_of(const struct range *range)
{
    uint64_t hash = range->address;
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9ull;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111ebull;
    return hash ^ hash >> 31;
}

/* Cuts the tree below *link into those below the address and the others. */
static void split(
    struct range *tree, CUdeviceptr address, struct range **below, struct range **rest)
{
    while (tree) {
        if (tree->address < address) {
            *below = tree;
            below = &tree->above;
            tree = tree->above;
        } else {
            *rest = tree;
            rest = &tree->below;
            tree = tree->below;
        }
    }
    *below = *rest = NULL;
}

void range_table_add(struct range_table *table, struct range *range)
{
    struct range **link = &table->root;
    uint64_t rank = rank_of(range);
    while (*link && rank_of(*link) >= rank)
        link = range->address < (*link)->address ? &(*link)->below : &(*link)->above;
    split(*link, range->address, &range->below, &range->above);
    *link = range;
    table->count++;
}

void range_table_remove(struct range_table *table, struct range *range)
{
    struct range **link = &table->root;
    while (*link && *link != range)
        link = range->address < (*link)->address ? &(*link)->below : &(*link)->above;
    if (!*link)
        return;
    struct range *below = range->below, *above = range->above;
    while (below && above) {
        if (rank_of(below) >= rank_of(above)) {
            *link = below;
            link = &below->above;
            below = below->above;
        } else {
            *link = above;
            link = &above->below;
            above = above->below;
        }
    }
    *link = below ? below : above;
    range->below = range->above = NULL;
    table->count--;
}

struct range *range_table_find(const struct range_table *table, CUdeviceptr address)
{
    struct range *at = table->root;
    while (at && (address < at->address || address - at->address >= at->bytes))
        at = address < at->address ? at->below : at->above;
    return at;
}

struct range *range_table_from(const struct range_table *table, CUdeviceptr address)
{
    struct range *found = NULL;
    for (struct range *at = table->root; at;) {
        bool fits = at->address >= address;
        found = fits ? at : found;
        at = fits ? at->below : at->above;
    }
    return found;
}
