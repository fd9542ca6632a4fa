/* SPDX-License-Identifier: Apache-2.0 */
/* Mending a region in which programs may live: each word by compare-and-swap from what was found,
 * so that a value that was set meanwhile stays. */
#include "tool/region.h"

#include "base/atomic.h"
#include "region/epoch.h"
#include "region/region_edit.h"
#include "region/slot.h"

#include <errno.h>
#include <string.h>

static const char changed[] = "it has changed meanwhile";

/* Another finding may have been about the same word. */
static const char *mend_word(struct region *region, const struct finding *finding)
{
    void *at = (char *)region->map + finding->offset;
    if (finding->fix == FIX_WORD) {
        uint32_t *word = at, value = (uint32_t)finding->value;
        bool done = swap_seq_cst(word, (uint32_t)finding->former, value);
        return done || load_acquire(word) == value ? NULL : changed;
    }
    uint64_t *word = at;
    bool done = swap_seq_cst(word, finding->former, finding->value);
    return done || load_acquire(word) == finding->value ? NULL : changed;
}

/* To the entries in use from 0 up: what lives never loses its own. */
static const char *mend_device_count(struct vgpu_region *shared)
{
    uint32_t was = load_acquire(&shared->device_count), count = 0;
    while (count < VGPU_REGION_DEVICES && shared->devices[count].uuid[0])
        count++;
    if (was <= VGPU_REGION_DEVICES)
        return changed;
    return swap_seq_cst(&shared->device_count, was, count) ? NULL : changed;
}

/* Under the initialiser's lock no other process writes it. */
static const char *mend_uuid(struct vgpu_region_map *map, unsigned index)
{
    const struct vgpu_device *device = &map->region.devices[index];
    char *shown = map->hami.uuid[index];
    memset(shown, 0, sizeof(map->hami.uuid[index]));
    memcpy(shown, device->uuid, sizeof(device->uuid) - 1);
    return NULL;
}

/* Above the last that is not free. */
static const char *mend_slot_high(struct vgpu_region *shared)
{
    uint32_t was = load_acquire(&shared->slot_high), high = VGPU_REGION_SLOTS;
    while (high && slot_word_state(load_acquire(&shared->slots[high - 1].state)) == VGPU_SLOT_FREE)
        high--;
    if (was >= high && was <= VGPU_REGION_SLOTS)
        return NULL; /* with another finding, or by its process */
    return swap_seq_cst(&shared->slot_high, was, high) ? NULL : changed;
}

static const char *mend_slot(struct region *region, const struct finding *finding)
{
    switch (slot_free_dead(region, finding->index, finding->former)) {
    case 0:
        return NULL;
    case -EBUSY:
        return "an open file of a process holds its lock: it may live";
    default:
        return changed;
    }
}

static const char *mend(struct region *region, const struct finding *finding)
{
    switch (finding->fix) {
    case FIX_SLOT:
        return mend_slot(region, finding);
    case FIX_HIGH:
        return mend_slot_high(region->shared);
    case FIX_DEVICES:
        return mend_device_count(region->shared);
    case FIX_UUID:
        return mend_uuid(region->map, finding->index);
    case FIX_WORD:
    case FIX_WIDE:
        return mend_word(region, finding);
    default:
        return finding->advice;
    }
}

int region_repair(struct region *region, struct findings *findings)
{
    int error = region_edit_begin(region);
    if (error)
        return error;
    for (size_t i = 0; i < findings->count; i++)
        findings->list[i].outcome = mend(region, &findings->list[i]);
    epoch_raise(region->shared);
    return region_edit_end(region, 0);
}
