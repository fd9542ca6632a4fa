/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges by address. Not synchronised: the owner's lock guards it. Zero is empty. */
#ifndef VGPU_VMEM_RANGE_TABLE_H
#define VGPU_VMEM_RANGE_TABLE_H

#include "vmem/range.h"

#include <stddef.h>

struct range_table {
    struct range **ranges; /* sorted; in pages of its own */
    size_t count, room;
};

/* 0 or -ENOMEM. A range that was removed finds room again. */
int range_table_add(struct range_table *table, struct range *range)
    __attribute__((warn_unused_result));
void range_table_remove(struct range_table *table, const struct range *range);

/* The range that the address lies in; NULL: none. O(log n). */
struct range *range_table_find(const struct range_table *table, CUdeviceptr address);

/* The first range at or above the address; NULL: none. */
struct range *range_table_from(const struct range_table *table, CUdeviceptr address);

void range_table_finish(struct range_table *table);

#endif
