/* SPDX-License-Identifier: Apache-2.0 */
/* A sorted array: a program has thousands of ranges at most, and moving 8 bytes of each costs less
 * than a driver call. */
#include "vmem/range_table.h"

#include "base/pages.h"

#include <string.h>

#define ROOM_LEAST 512

/* How many lie below the address. */
static size_t below(const struct range_table *table, CUdeviceptr address)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->ranges[middle]->address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int grow(struct range_table *table)
{
    size_t room = table->room ? 2 * table->room : ROOM_LEAST;
    struct range **ranges = pages_map(room * sizeof(*ranges));
    if (!ranges)
        return -ENOMEM;
    if (table->count)
        memcpy(ranges, table->ranges, table->count * sizeof(*ranges));
    size_t count = table->count;
    range_table_finish(table);
    *table = (struct range_table){.ranges = ranges, .count = count, .room = room};
    return 0;
}

int range_table_add(struct range_table *table, struct range *range)
{
    if (table->count == table->room && grow(table) != 0)
        return -ENOMEM;
    size_t at = below(table, range->address);
    memmove(&table->ranges[at + 1], &table->ranges[at], (table->count - at) * sizeof(range));
    table->ranges[at] = range;
    table->count++;
    return 0;
}

void range_table_remove(struct range_table *table, const struct range *range)
{
    size_t at = below(table, range->address);
    if (at == table->count || table->ranges[at] != range)
        return;
    table->count--;
    memmove(&table->ranges[at], &table->ranges[at + 1], (table->count - at) * sizeof(range));
}

struct range *range_table_find(const struct range_table *table, CUdeviceptr address)
{
    size_t at = below(table, address + 1);
    struct range *range = at ? table->ranges[at - 1] : NULL;
    return range && address - range->address < range->bytes ? range : NULL;
}

struct range *range_table_from(const struct range_table *table, CUdeviceptr address)
{
    size_t at = below(table, address);
    return at < table->count ? table->ranges[at] : NULL;
}

void range_table_finish(struct range_table *table)
{
    if (table->ranges)
        munmap(table->ranges, table->room * sizeof(*table->ranges));
    *table = (struct range_table){0};
}
