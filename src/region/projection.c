/* SPDX-License-Identifier: Apache-2.0 */
/* What HAMi's monitors see. */
#include "region/projection.h"

#include "base/atomic.h"
#include "base/process.h"
#include "region/epoch.h"
#include "region/slot_word.h"

#include <string.h>

#define INITIAL_PID_NAMESPACE 4026531836u /* its inode on every Linux (PROC_PID_INIT_INO) */

/* ---- the head ---- */

void projection_cover(struct vgpu_region_map *map)
{
    uint32_t high = load_acquire(&map->region.slot_high);
    int32_t wanted = (int32_t)(high < VGPU_HAMI_SLOTS ? high : VGPU_HAMI_SLOTS), held;
    do {
        held = load_acquire(&map->hami.proc_num);
    } while ((held < wanted || held > (int32_t)VGPU_HAMI_SLOTS) &&
             !swap_seq_cst(&map->hami.proc_num, held, wanted));
}

static void show_device_count(struct vgpu_region_map *map)
{
    uint32_t count = load_acquire(&map->region.device_count);
    store_release(
        &map->hami.device_count, (uint64_t)(count < VGPU_HAMI_DEVICES ? count : VGPU_HAMI_DEVICES));
}

/* The magic number comes last: then all else is there. */
void projection_begin(struct vgpu_region_map *map)
{
    projection_cover(map);
    show_device_count(map);
    store_relaxed(&map->hami.major, VGPU_HAMI_MAJOR);
    store_relaxed(&map->hami.minor, VGPU_HAMI_MINOR);
    store_release(&map->hami.magic, VGPU_HAMI_MAGIC);
}

/* ---- devices and their limits ---- */

void projection_forget_devices(struct vgpu_region_map *map)
{
    store_seq_cst(&map->hami.device_count, (uint64_t)0);
    memset(map->hami.uuid, 0, sizeof(map->hami.uuid));
    memset(map->hami.limit, 0, sizeof(map->hami.limit));
    memset(map->hami.sm_limit, 0, sizeof(map->hami.sm_limit));
}

static uint64_t shown_cores(const struct vgpu_device *device)
{
    uint32_t percent = load_relaxed(&device->core_limit);
    return percent && percent < VGPU_HAMI_NO_SM_LIMIT ? percent : VGPU_HAMI_NO_SM_LIMIT;
}

/* A note that is behind means that somebody was killed: a later order might be taken for none. */
bool projection_is_settled(const struct vgpu_region_map *map, unsigned entry)
{
    const struct vgpu_device *device = &map->region.devices[entry];
    if (entry >= VGPU_HAMI_DEVICES)
        return true;
    uint64_t memory = load_acquire(&map->hami.limit[entry]);
    uint64_t cores = load_acquire(&map->hami.sm_limit[entry]);
    return memory == load_relaxed(&device->memory_limit) && cores == shown_cores(device) &&
           memory == load_relaxed(&device->hami_memory_limit) &&
           cores == load_relaxed(&device->hami_core_limit);
}

/* What was shown is noted last: a process that is killed before leaves the same limit as an order.
 */
static void show_limits(struct vgpu_region_map *map, unsigned entry)
{
    struct vgpu_device *device = &map->region.devices[entry];
    uint64_t memory = load_relaxed(&device->memory_limit), cores = shown_cores(device);
    store_seq_cst(&map->hami.limit[entry], memory);
    store_seq_cst(&map->hami.sm_limit[entry], cores);
    store_seq_cst(&device->hami_memory_limit, memory);
    store_seq_cst(&device->hami_core_limit, cores);
}

void projection_show_device(struct vgpu_region_map *map, unsigned entry)
{
    const struct vgpu_device *device = &map->region.devices[entry];
    if (entry >= VGPU_HAMI_DEVICES)
        return;
    memcpy(map->hami.uuid[entry], device->uuid, sizeof(device->uuid));
    map->hami.uuid[entry][sizeof(device->uuid) - 1] = '\0';
    show_limits(map, entry);
    show_device_count(map);
}

/* 0 is no order: somebody emptied the page, and no limit is lifted for that. The limit before the
 * end of "closed", as everywhere. */
static bool take_memory(struct vgpu_device *device, uint64_t told)
{
    if (!told || told > INT64_MAX || told == load_relaxed(&device->hami_memory_limit))
        return false;
    store_release(&device->memory_limit, told);
    store_release(&device->memory_closed, (uint64_t)0);
    return true;
}

static bool take_cores(struct vgpu_device *device, uint64_t told)
{
    if (!told || told > VGPU_HAMI_NO_SM_LIMIT || told == load_relaxed(&device->hami_core_limit))
        return false;
    store_release(&device->core_limit, told < VGPU_HAMI_NO_SM_LIMIT ? (uint32_t)told : 0u);
    return true;
}

/* No environment is to set anew what was ordered. */
static void hold_order(struct vgpu_region *shared, struct vgpu_device *device)
{
    uint64_t held = load_relaxed(&shared->settings_hash);
    if (!held)
        store_release(&shared->settings_hash, held = REGION_SET_FROM_OUTSIDE);
    store_release(&device->settings_hash, held);
}

/* The monitor may write again at any moment: what it wrote since it was read stays, as its next
 * order. */
static void settle_word(uint64_t *shown, uint64_t *noted, uint64_t told, uint64_t now)
{
    if (told != now && !swap_seq_cst(shown, told, now))
        now = told;
    store_seq_cst(noted, now);
}

void projection_settle(struct vgpu_region_map *map, unsigned entry)
{
    struct vgpu_device *device = &map->region.devices[entry];
    if (entry >= VGPU_HAMI_DEVICES)
        return;
    uint64_t memory = load_acquire(&map->hami.limit[entry]);
    uint64_t cores = load_acquire(&map->hami.sm_limit[entry]);
    bool ordered = take_memory(device, memory);
    ordered |= take_cores(device, cores);
    if (ordered)
        hold_order(&map->region, device);
    settle_word(&map->hami.limit[entry], &device->hami_memory_limit, memory,
        load_relaxed(&device->memory_limit));
    settle_word(&map->hami.sm_limit[entry], &device->hami_core_limit, cores, shown_cores(device));
    if (ordered)
        epoch_raise(&map->region);
}

/* ---- slots ---- */

void projection_claim(struct vgpu_region_map *map, unsigned slot, int pid)
{
    struct vgpu_hami_slot *here = &map->hami.slots[slot];
    memset(here, 0, sizeof(*here));
    if (process_pid_namespace() == INITIAL_PID_NAMESPACE)
        store_relaxed(&here->hostpid, pid);
    store_relaxed(&here->pid, pid);
    store_release(&here->status, VGPU_HAMI_RUNNING);
}

/* Monitors sum what they find whatever the status is. */
void projection_wipe(struct vgpu_region_map *map, unsigned slot)
{
    struct vgpu_hami_slot *here = &map->hami.slots[slot];
    if (!load_relaxed(&here->status) && !load_relaxed(&here->pid))
        return;
    store_release(&here->status, VGPU_HAMI_DEAD);
    memset(here, 0, sizeof(*here));
}

static void store_parts(struct vgpu_hami_memory *used, const struct vgpu_hami_memory *now)
{
    store_release(&used->context, now->context);
    store_release(&used->module, now->module);
    store_release(&used->data, now->data);
    store_release(&used->offset, now->offset);
}

/* A monitor subtracts the kinds from the total: the total is never the smaller one. */
static void show_usage(struct vgpu_hami_slot *here, unsigned entry, const struct vgpu_usage *usage)
{
    struct vgpu_hami_memory *used = &here->used[entry];
    uint64_t elsewhere = load_relaxed(&usage->managed) + load_relaxed(&usage->spilled);
    struct vgpu_hami_memory now = {.context = load_relaxed(&usage->context),
        .module = load_relaxed(&usage->module),
        .data = load_relaxed(&usage->buffer) + elsewhere,
        .offset = load_relaxed(&usage->unexplained)};
    now.total = now.context + now.module + now.data + now.offset;
    bool grows = now.total > load_relaxed(&used->total);
    if (grows)
        store_release(&used->total, now.total);
    store_parts(used, &now);
    if (!grows)
        store_release(&used->total, now.total);
    store_relaxed(&here->monitorused[entry], now.total - elsewhere);
}

/* A process that took this one for dead may have wiped its place when it was claimed anew, long
 * after it looked; or others wrote there. */
static void show_all(struct region *region, struct vgpu_hami_slot *here)
{
    projection_claim(region->map, (unsigned)region->slot, slot_word_pid(region->word));
    for (unsigned d = 0; d < VGPU_HAMI_DEVICES; d++)
        show_usage(here, d, &region->shared->slots[region->slot].usage[d]);
    projection_cover(region->map);
}

static struct vgpu_hami_slot *own_slot(struct region *region)
{
    struct vgpu_hami_slot *here = &region->map->hami.slots[region->slot];
    int32_t status = load_relaxed(&here->status);
    if (load_relaxed(&here->pid) != slot_word_pid(region->word) ||
        (status != VGPU_HAMI_RUNNING && status != VGPU_HAMI_SUSPENDED))
        show_all(region, here);
    return here;
}

void projection_usage(struct region *region, unsigned entry)
{
    if (region->slot < 0 || entry >= VGPU_HAMI_DEVICES)
        return;
    show_usage(own_slot(region), entry, &region->shared->slots[region->slot].usage[entry]);
}

void projection_status(struct region *region, bool paused)
{
    if (region->slot < 0)
        return;
    struct vgpu_hami_slot *here = own_slot(region);
    int32_t status = paused ? VGPU_HAMI_SUSPENDED : VGPU_HAMI_RUNNING;
    if (load_relaxed(&here->status) != status)
        store_release(&here->status, status);
}

void projection_work(struct region *region, unsigned entry, unsigned percent)
{
    if (region->slot < 0 || entry >= VGPU_HAMI_DEVICES)
        return;
    store_relaxed(&own_slot(region)->device_util[entry].sm, (uint64_t)percent);
}

/* A time ahead of ours is of a clock that was set back. */
void projection_kernel(struct vgpu_region_map *map, uint64_t now_s, uint64_t interval_s)
{
    uint64_t last = load_relaxed(&map->hami.last_kernel_time);
    if (last > now_s || now_s - last >= (interval_s ? interval_s : 1))
        (void)swap_seq_cst(&map->hami.last_kernel_time, last, now_s);
}
