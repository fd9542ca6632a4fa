/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped handles by address. */
#include "memory/mappings.h"

#include "base/lock.h"
#include "base/map.h"
#include "base/slab.h"

static struct lock mappings_lock;
static struct slab slab GUARDED_BY(mappings_lock) = {.object_bytes = sizeof(struct mapping)};
static struct map by_address GUARDED_BY(mappings_lock);

void mappings_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&mappings_lock);
    slab_finish(&slab);
    map_finish(&by_address);
}

void mappings_add(const struct mapping *mapping)
{
    LOCKED_TO_END(mappings_lock);
    struct mapping *kept = slab_take(&slab);
    if (!kept)
        return;
    *kept = *mapping;
    if (map_put(&by_address, mapping->address, kept) != 0)
        slab_give(&slab, kept);
}

bool mappings_take(CUdeviceptr address, struct mapping *ret_mapping)
{
    LOCKED_TO_END(mappings_lock);
    struct mapping *kept = map_remove(&by_address, address);
    if (!kept)
        return false;
    *ret_mapping = *kept;
    slab_give(&slab, kept);
    return true;
}

bool mappings_find(CUdeviceptr address, struct mapping *ret_mapping)
{
    const struct mapping *kept;
    size_t cursor = 0;
    LOCKED_TO_END(mappings_lock);
    while ((kept = map_next(&by_address, &cursor, &(uint64_t){0}))) {
        if (address >= kept->address && address - kept->address < kept->bytes) {
            *ret_mapping = *kept;
            return true;
        }
    }
    return false;
}
