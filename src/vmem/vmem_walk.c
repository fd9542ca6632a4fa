/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over all ranges, and what must not move. */
#include "vmem/vmem_parts.h"

struct range *vmem_use_next(CUdeviceptr *cursor)
{
    LOCKED_TO_END(vmem_lock);
    struct range *range;
    while ((range = range_table_from(&vmem.table, *cursor))) {
        *cursor = range->address + range->bytes;
        if (vmem_may_go_locked(range))
            continue;
        vmem_use_locked(range);
        return range;
    }
    return NULL;
}

void vmem_keep_in_place(CUdeviceptr address)
{
    LOCKED_TO_END(vmem_lock);
    struct range *range = range_table_find(&vmem.table, address);
    if (range)
        store_relaxed(&range->exported, true);
}
