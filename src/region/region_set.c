/* SPDX-License-Identifier: Apache-2.0 */
/* Setting limits in a region that others live in. */
#include "region/region_set.h"

#include "base/atomic.h"
#include "base/file.h"
#include "base/guard.h"
#include "base/saturating.h"
#include "region/epoch.h"
#include "region/projection.h"
#include "region/region_control.h"
#include "region/region_edit.h"
#include "region/region_file.h"
#include "region/slot.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int check_file(int fd, struct stat *ret_status)
{
    int error = file_status(fd, ret_status);
    if (error)
        return error;
    if (!S_ISREG(ret_status->st_mode))
        return -EPROTO;
    return ret_status->st_nlink ? region_file_prepare(fd, REGION_FILE_KEEP) : -ESTALE;
}

int region_set_open(struct region *region, int fd)
{
    struct stat status;
    *region = (struct region){.fd = -1, .slot = -1};
    int error = check_file(fd, &status);
    void *map = error ? MAP_FAILED
                      : mmap(NULL, sizeof(struct vgpu_region_map), PROT_READ | PROT_WRITE,
                            MAP_SHARED, fd, VGPU_REGION_MAP_OFFSET);
    if (!error && map == MAP_FAILED)
        error = -errno;
    if (!error)
        error = guard_add(map, sizeof(struct vgpu_region_map), &region->lost);
    if (error) {
        if (map != MAP_FAILED)
            munmap(map, sizeof(struct vgpu_region_map));
        close(fd);
        return error;
    }
    (void)madvise(map, sizeof(struct vgpu_region_map), MADV_RANDOM); /* as in region.c */
    region->map = map;
    region->shared = &region->map->region;
    region->fd = fd;
    region->device = status.st_dev;
    region->inode = status.st_ino;
    /* Here: any other user's. */
    region->pinned = region_file_pins(&status) || (geteuid() != 0 && geteuid() != status.st_uid);
    return 0;
}

/* Within a window: bounded, whatever the file says. */
static int device_count(const struct region *region)
{
    unsigned count = load_acquire(&region->shared->device_count);
    return (int)(count < VGPU_REGION_DEVICES ? count : VGPU_REGION_DEVICES);
}

int region_set_device_count(struct region *region)
{
    guard_enter();
    int count = device_count(region);
    guard_leave();
    return load_acquire(&region->lost) ? -EIO : count;
}

static uint64_t at_most(uint64_t value, uint64_t bound)
{
    return value < bound ? value : bound;
}

static uint64_t used_bytes(struct region *region, unsigned device)
{
    uint64_t bytes = 0, imported = 0;
    uint64_t lingering = load_relaxed(&region->shared->devices[device].orphaned);
    unsigned bound = mapping_slot_bound(region);
    slot_reap_dead(region, -1, device);
    for (unsigned i = 0; i < bound; i++) {
        const struct vgpu_slot *slot = &region->shared->slots[i];
        if (slot_word_state(load_seq_cst(&slot->state)) != VGPU_SLOT_LIVE)
            continue;
        bytes = saturating_sum(bytes, load_seq_cst(&slot->usage[device].bytes));
        lingering = saturating_sum(lingering, load_relaxed(&slot->usage[device].lingering));
        imported = saturating_sum(imported, load_relaxed(&slot->usage[device].imported));
    }
    return saturating_sum(bytes, at_most(lingering, imported));
}

int region_set_look(struct region *region, int device, struct region_look *ret_look)
{
    struct region_look look = {0};
    guard_enter();
    const struct vgpu_region *shared = region->shared;
    bool known = device < device_count(region);
    if (device == REGION_ALL_DEVICES) {
        look.device.memory_limit = load_relaxed(&shared->default_memory_limit);
        look.device.core_limit = load_relaxed(&shared->default_core_limit);
        look.device.core_soft_limit = load_relaxed(&shared->default_core_soft_limit);
    } else if (known && device >= 0) {
        memcpy(&look.device, &shared->devices[device], sizeof(look.device));
        look.device.uuid[sizeof(look.device.uuid) - 1] = '\0';
        look.used_bytes = used_bytes(region, (unsigned)device);
    }
    guard_leave();
    if (load_acquire(&region->lost))
        return -EIO;
    if (device != REGION_ALL_DEVICES && (device < 0 || !known))
        return -ENODEV;
    *ret_look = look;
    return 0;
}

/* The limit before the end of "closed": nobody may read no limit in between. */
static void set_device(
    struct vgpu_device *device, const struct region_change *change, uint64_t held)
{
    if (change->memory) {
        store_release(&device->memory_limit, change->memory_bytes);
        store_release(&device->memory_closed, (uint64_t)0);
    }
    if (change->cores)
        store_release(&device->core_limit, change->core_percent);
    if (change->soft_cores)
        store_release(&device->core_soft_limit, change->soft_percent);
    /* Settled: the first process of the region's environment must not set it anew. */
    store_release(&device->settings_hash, held);
}

static void set_default(struct vgpu_region *shared, const struct region_change *change)
{
    if (change->memory)
        store_release(&shared->default_memory_limit, change->memory_bytes);
    if (change->cores)
        store_release(&shared->default_core_limit, change->core_percent);
    if (change->soft_cores)
        store_release(&shared->default_core_soft_limit, change->soft_percent);
    uint32_t set = (change->memory ? VGPU_DEFAULTS_MEMORY : 0u) |
                   (change->cores ? VGPU_DEFAULTS_CORES : 0u) |
                   (change->soft_cores ? VGPU_DEFAULTS_SOFT_CORES : 0u);
    store_release(&shared->defaults_set, load_relaxed(&shared->defaults_set) | set);
}

static void set_devices(
    struct vgpu_region_map *map, int device, int count, const struct region_change *change)
{
    struct vgpu_region *shared = &map->region;
    uint64_t held = load_relaxed(&shared->settings_hash);
    if (device == REGION_ALL_DEVICES)
        set_default(shared, change);
    if (!held)
        store_release(&shared->settings_hash, held = REGION_SET_FROM_OUTSIDE);
    for (int i = 0; i < count; i++) {
        if (device != REGION_ALL_DEVICES && device != i)
            continue;
        set_device(&shared->devices[i], change, held);
        projection_show_device(map, (unsigned)i);
    }
}

/* Within a window, under the initialiser's lock. */
static int set_locked(struct region *region, int device, const struct region_change *change)
{
    int count = device_count(region);
    if (device != REGION_ALL_DEVICES && (device < 0 || device >= count))
        return -ENODEV;
    /* A priority alone does not make the region one that has limits. */
    if (change->memory || change->cores || change->soft_cores)
        set_devices(region->map, device, count, change);
    if (change->priority)
        control_set_priority(region, change->priority_level, VGPU_PRIORITY_LIVE);
    epoch_raise(region->shared);
    return 0;
}

int region_set_state(struct region *region, struct region_state *ret_state)
{
    guard_enter();
    struct region_control words = control_read(region);
    guard_leave();
    if (load_acquire(&region->lost))
        return -EIO;
    *ret_state = (struct region_state){.paused = words.paused,
        .release = (enum vgpu_release)(words.release & 3),
        .held = words.held,
        .lifted = words.switched_off,
        .has_priority = words.priority_set != VGPU_PRIORITY_UNSET,
        .priority = words.priority};
    return 0;
}

int region_set_paused(struct region *region, bool paused, bool *ret_was)
{
    if (region->pinned)
        return -EPERM;
    guard_enter();
    uint32_t was = exchange_acq_rel(&region->shared->paused, paused ? 1u : 0u);
    epoch_raise(region->shared);
    guard_leave();
    if (load_acquire(&region->lost))
        return -EIO;
    *ret_was = was != 0;
    return 0;
}

/* An order for what is in force already gets a new number all the same: one that ended without
 * effect is tried again. */
int region_set_release(struct region *region, enum vgpu_release release, uint32_t *ret_order)
{
    uint32_t was, order;
    if (region->pinned)
        return -EPERM;
    guard_enter();
    do {
        was = load_acquire(&region->shared->release);
        order = (was / 4 + 1) << 2 | (uint32_t)release;
    } while (!load_acquire(&region->lost) && !swap_seq_cst(&region->shared->release, was, order));
    epoch_raise(region->shared);
    guard_leave();
    if (load_acquire(&region->lost))
        return -EIO;
    *ret_order = order;
    return 0;
}

/* The slot may be another's by now: the state says so then, too. */
static int change_state(struct vgpu_slot *slot, int pid, uint64_t pid_namespace,
    enum vgpu_release_state from, enum vgpu_release_state to)
{
    uint64_t state = load_acquire(&slot->state), was = load_acquire(&slot->release);
    if (slot_word_state(state) != VGPU_SLOT_LIVE || slot_word_pid(state) != pid ||
        load_relaxed(&slot->pid_namespace) != pid_namespace || (uint32_t)was != (uint32_t)from)
        return -ESRCH;
    return swap_seq_cst(&slot->release, was, (was & ~(uint64_t)UINT32_MAX) | (uint64_t)to) ? 0
                                                                                           : -ESRCH;
}

int region_set_release_state(struct region *region, int pid, uint64_t pid_namespace,
    enum vgpu_release_state from, enum vgpu_release_state to)
{
    int error = -ESRCH;
    if (region->pinned)
        return -EPERM;
    guard_enter();
    unsigned bound = mapping_slot_bound(region);
    for (unsigned i = 0; i < bound && error == -ESRCH; i++)
        error = change_state(&region->shared->slots[i], pid, pid_namespace, from, to);
    epoch_raise(region->shared);
    guard_leave();
    return load_acquire(&region->lost) ? -EIO : error;
}

int region_set_limits(struct region *region, int device, const struct region_change *change)
{
    int error = region_edit_begin(region);
    return error ? error : region_edit_end(region, set_locked(region, device, change));
}
