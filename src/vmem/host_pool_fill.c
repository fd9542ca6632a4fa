/* SPDX-License-Identifier: Apache-2.0 */
/* What is on the card tells which pieces a move would need. */
#include "vmem/host_pool_fill.h"

#include "config/config_oversubscription.h"
#include "container/container.h"
#include "account/account.h"
#include "vmem/host_pool.h"
#include "vmem/range_move.h"
#include "vmem/vmem_parts.h"

#define SIZES_MAX 64

/* Pieces of each size that all memory on the card would need. */
struct need {
    uint64_t bytes;
    uint64_t count;
    CUdevice ordinal;
};

struct needs {
    struct need sizes[SIZES_MAX]; /* further sizes are left out */
    unsigned count;
};

static void add(struct needs *needs, const struct range *range, uint64_t bytes, uint64_t count)
{
    unsigned i = 0;
    while (i < needs->count && needs->sizes[i].bytes != bytes)
        i++;
    if (i == SIZES_MAX)
        return;
    needs->count += i == needs->count;
    needs->sizes[i].bytes = bytes;
    needs->sizes[i].count += count;
    needs->sizes[i].ordinal = range->ordinal;
}

static void add_range(struct needs *needs, const struct range *range)
{
    for (unsigned i = 0; range_movable_bytes(range) && i < range->part_count; i++) {
        uint64_t bytes = range->parts[i].bytes;
        if (range->parts[i].spilled)
            continue;
        uint64_t piece = range_move_piece_bytes(range, bytes), rest = bytes % piece;
        add(needs, range, piece, bytes / piece);
        if (rest)
            add(needs, range, rest, 1);
    }
}

static void look(struct needs *needs)
{
    CUdeviceptr cursor = 0;
    struct range *range;
    while ((range = vmem_use_next(&cursor))) {
        add_range(needs, range);
        (void)vmem_leave(range);
    }
}

/* The largest pieces first: they are the most of the bytes. */
static const struct need *largest_missing(const struct needs *needs, uint64_t room)
{
    const struct need *best = NULL;
    for (unsigned i = 0; i < needs->count; i++) {
        const struct need *need = &needs->sizes[i];
        if (need->bytes <= room && (!best || need->bytes > best->bytes) &&
            host_pool_count(need->bytes) < need->count)
            best = need;
    }
    return best;
}

/* What the pool may still have made ahead. */
static uint64_t room(void)
{
    uint64_t ready = config_host_pool_ready(container_config()), has = host_pool_bytes();
    uint64_t left = ready > has ? ready - has : 0;
    uint64_t host = left && !account_ready_is_asked() ? host_pool_left() : 0;
    return left < host ? left : host;
}

static bool make(const struct need *need)
{
    CUmemAllocationProp property = range_property(need->ordinal, true);
    return host_pool_make(&property, need->bytes);
}

bool host_pool_fill(void)
{
    struct needs needs = {.count = 0};
    uint64_t left = room();
    if (!left)
        return false;
    look(&needs);
    const struct need *need = largest_missing(&needs, left);
    return need && make(need);
}
