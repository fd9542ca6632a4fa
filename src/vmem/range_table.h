/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges by address, which overlap nowhere. Not synchronised: the owner's lock guards it. Zero is
 * empty; the ranges themselves have the links, so that nothing can fail. O(log n) all. */
#ifndef VGPU_VMEM_RANGE_TABLE_H
#define VGPU_VMEM_RANGE_TABLE_H

#include "vmem/range.h"

#include <stddef.h>

struct range_table {
    struct range *root;
    size_t count;
};

void range_table_add(struct range_table *table, struct range *range);

/* The range may be one that is not in the table: then nothing is done. */
void range_table_remove(struct range_table *table, struct range *range);

/* The range that the address lies in; NULL: none. */
struct range *range_table_find(const struct range_table *table, CUdeviceptr address);

/* The range with the lowest address that is not below `address`; NULL: none. */
struct range *range_table_from(const struct range_table *table, CUdeviceptr address);

/* The range behind `range`, of NULL the first; NULL: there are no more. */
static inline struct range *range_table_next(
    const struct range_table *table, const struct range *range)
{
    return range_table_from(table, range ? range->address + range->bytes : 0);
}

#endif
