/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over all ranges. */
#include "vmem/vmem_parts.h"

struct range *vmem_use_next(CUdeviceptr *cursor)
{
    LOCKED_TO_END(vmem_lock);
    struct range *range = range_table_from(&vmem.table, *cursor);
    if (range) {
        *cursor = range->address + range->bytes;
        vmem_use_locked(range);
    }
    return range;
}
