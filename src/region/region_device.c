/* SPDX-License-Identifier: Apache-2.0 */
/* The container's devices in the region, and where their limits come from. */
#include "region/region_device.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "region/grant.h"
#include "region/projection.h"
#include "region/region_file.h"
#include "region/slot.h"
#include "registry/registry.h"

#include <errno.h>
#include <string.h>

#define MEND_WAIT_NS 100000000ull
#define MEND_RETRY_NS 1000000000ull

/* FNV-1a over the limits that the environment sets; 0 where it sets none, which leaves the region
 * as it is: a shell that lost the variables must not lift its container's limits. */
static uint64_t settings_hash(const struct config *config)
{
    uint64_t hash = 14695981039346656037ull;
    bool any = false;
    for (int i = -1; i < CONFIG_DEVICES; i++) {
        struct config_value values[3] = {config_memory_limit(config, i),
            config_core_limit(config, i), config_core_soft_limit(config, i)};
        for (int v = 0; v < 3; v++) {
            any |= values[v].state != VALUE_UNSET;
            hash = (hash ^ values[v].state) * 1099511628211ull;
            hash = (hash ^ values[v].value) * 1099511628211ull;
        }
    }
    for (const char *const *list = config->device_lists; any && *list; list++) {
        if (list != config->device_lists)
            hash = (hash ^ ',') * 1099511628211ull;
        for (const char *c = *list; *c; c++)
            hash = (hash ^ (unsigned char)*c) * 1099511628211ull;
    }
    return any ? hash | 1 : 0;
}

static struct region_settings settings_read(const struct vgpu_region *shared)
{
    return (struct region_settings){.hash = load_acquire(&shared->settings_hash),
        .memory_limit = load_relaxed(&shared->default_memory_limit),
        .core_limit = load_relaxed(&shared->default_core_limit),
        .core_soft_limit = load_relaxed(&shared->default_core_soft_limit),
        .set = load_relaxed(&shared->defaults_set)};
}

static uint32_t percent_of(struct config_value value)
{
    return value.state == VALUE_SET ? (uint32_t)value.value : 0u;
}

static void store_default(struct vgpu_region *shared, const struct config *config)
{
    struct config_value memory = config_memory_limit(config, -1);
    store_relaxed(&shared->default_memory_limit, memory.state == VALUE_SET ? memory.value : 0);
    store_relaxed(&shared->default_core_limit, percent_of(config_core_limit(config, -1)));
    store_relaxed(&shared->default_core_soft_limit, percent_of(config_core_soft_limit(config, -1)));
    store_relaxed(&shared->defaults_set, 0u);
}

/* What lies at the pinned path holds nobody's limits but root's: without any it is closed. */
static bool is_unset_pin(const struct region *region)
{
    return !load_relaxed(&region->shared->settings_hash) &&
           !strcmp(region->path, REGION_PINNED_PATH) && (region->pinned || !region->settings_hash);
}

/* Limits hold for as long as somebody lives under them; only a region that never had any takes
 * some while others live, and then their devices take them too (region_device_entry). */
static void take_environment(struct region *region)
{
    struct vgpu_region *shared = region->shared;
    uint64_t hash = region->settings_hash, held = load_relaxed(&shared->settings_hash);
    if (!hash || held == hash)
        return;
    bool live = slot_any_live(region);
    if (!held && is_unset_pin(region))
        return;
    if (held && (live || region->pinned)) {
        if (live)
            log_info("the container's programs run under other limits than this environment asks "
                     "for; the running ones hold");
        else
            log_info("the region is root's and has other limits than this environment asks for; "
                     "root's hold");
        return;
    }
    if (!live) {
        store_relaxed(&shared->device_count, 0u);
        memset(shared->devices, 0, sizeof(shared->devices));
        projection_forget_devices(region->map);
    }
    store_default(shared, region->config);
    store_release(&shared->settings_hash, hash);
}

void region_settings_take(struct region *region, bool fresh)
{
    region->settings_hash = settings_hash(region->config);
    const struct region_settings *known = &region->known_settings;
    /* A file that took another's place has that one's limits, whatever changed them since. */
    if (fresh && known->hash) {
        store_relaxed(&region->shared->default_memory_limit, known->memory_limit);
        store_relaxed(&region->shared->default_core_limit, known->core_limit);
        store_relaxed(&region->shared->default_core_soft_limit, known->core_soft_limit);
        store_relaxed(&region->shared->defaults_set, known->set);
        store_release(&region->shared->settings_hash, known->hash);
    } else {
        take_environment(region);
    }
    struct region_settings seen = settings_read(region->shared);
    if (!load_acquire(&region->lost))
        region->known_settings = seen;
}

static int entry_find(const struct region *region, const char *uuid)
{
    const struct vgpu_region *shared = region->shared;
    unsigned count = load_acquire(&shared->device_count);
    if (count > VGPU_REGION_DEVICES)
        count = VGPU_REGION_DEVICES;
    for (unsigned i = 0; i < count; i++) {
        if (strncmp(shared->devices[i].uuid, uuid, sizeof(shared->devices[i].uuid)) == 0)
            return (int)i;
    }
    return -ENOENT;
}

/* A reader in between sees the device closed rather than without a limit: see limits_read. */
static void limits_write(struct vgpu_device *device, uint64_t memory_limit, bool closed)
{
    if (closed)
        store_release(&device->memory_closed, (uint64_t)1);
    store_release(&device->memory_limit, memory_limit);
    if (!closed)
        store_release(&device->memory_closed, (uint64_t)0);
}

static void limits_read(const struct vgpu_device *device, struct vgpu_device *ret_limits)
{
    uint64_t closed = load_acquire(&device->memory_closed);
    ret_limits->memory_limit = load_acquire(&device->memory_limit);
    ret_limits->memory_closed = closed | load_acquire(&device->memory_closed);
}

static const struct grant *grant_of(const struct region *region)
{
    return region->config ? region->config->grant : NULL;
}

static void set_limits_granted(
    const struct region *region, struct vgpu_device *device, const char *uuid)
{
    struct grant_limits limits = grant_limits(grant_of(region), uuid);
    limits_write(device, limits.memory_limit, limits.memory_closed);
    store_relaxed(&device->core_limit, limits.core_limit);
    store_relaxed(&device->core_soft_limit, limits.core_soft_limit);
}

/* Whether the device's entry says what the grant says: a process of the container may have changed
 * it, or the node the grant. */
static bool is_as_granted(const struct region *region, const struct vgpu_device *device)
{
    struct grant_limits limits = grant_limits(grant_of(region), device->uuid);
    return load_relaxed(&device->memory_limit) == limits.memory_limit &&
           (load_relaxed(&device->memory_closed) != 0) == limits.memory_closed &&
           load_relaxed(&device->core_limit) == limits.core_limit &&
           load_relaxed(&device->core_soft_limit) == limits.core_soft_limit;
}

/* Root's region has the last word also on devices that root's programs have not met. */
static void set_limits_pinned(const struct vgpu_region *shared, struct vgpu_device *device)
{
    uint64_t memory = load_relaxed(&shared->default_memory_limit);
    limits_write(device, memory, !memory);
    store_relaxed(&device->core_limit, load_relaxed(&shared->default_core_limit));
    store_relaxed(&device->core_soft_limit, load_relaxed(&shared->default_core_soft_limit));
}

/* What was set for all devices while programs ran goes before an environment's word. */
static void set_limits_from_outside(const struct vgpu_region *shared, struct vgpu_device *device)
{
    uint32_t set = load_relaxed(&shared->defaults_set);
    if (set & VGPU_DEFAULTS_MEMORY)
        limits_write(device, load_relaxed(&shared->default_memory_limit), false);
    if (set & VGPU_DEFAULTS_CORES)
        store_relaxed(&device->core_limit, load_relaxed(&shared->default_core_limit));
    if (set & VGPU_DEFAULTS_SOFT_CORES)
        store_relaxed(&device->core_soft_limit, load_relaxed(&shared->default_core_soft_limit));
}

static void set_limits(
    struct region *region, struct vgpu_device *device, const char *uuid, int index)
{
    if (grant_of(region)) {
        set_limits_granted(region, device, uuid);
        return;
    }
    const struct config *config = region->config;
    struct config_value memory = config_memory_limit(config, index);
    uint64_t held = load_relaxed(&region->shared->settings_hash);
    /* A process under other limits than the region's says nothing about its devices. */
    bool ours = region->settings_hash == held;
    if (is_unset_pin(region) || (region->pinned && held && !ours)) {
        set_limits_pinned(region->shared, device);
    } else {
        limits_write(
            device, memory.state == VALUE_SET ? memory.value : 0, memory.state == VALUE_INVALID);
        store_relaxed(&device->core_limit, percent_of(config_core_limit(config, index)));
        store_relaxed(&device->core_soft_limit, percent_of(config_core_soft_limit(config, index)));
    }
    set_limits_from_outside(region->shared, device);
    store_release(&device->settings_hash, ours ? held : 0);
}

/* False where the entry never got limits and this process's environment is the one that has them.
 */
static bool is_settled(const struct region *region, const struct vgpu_device *device)
{
    if (grant_of(region))
        return is_as_granted(region, device);
    uint64_t held = load_relaxed(&region->shared->settings_hash);
    return region->settings_hash != held || load_acquire(&device->settings_hash) == held;
}

/* Storage for what belongs to the device beside its entry: see region_file.c. */
static int reserve_storage(struct region *region, unsigned entry)
{
    size_t compute = offsetof(struct vgpu_region, compute) + entry * sizeof(struct vgpu_compute);
    size_t history = offsetof(struct vgpu_region, history) + entry * sizeof(struct vgpu_history);
    int error = file_reserve(
        region->fd, (off_t)(VGPU_REGION_OFFSET + compute), sizeof(struct vgpu_compute));
    if (!error)
        error = file_reserve(
            region->fd, (off_t)(VGPU_REGION_OFFSET + history), sizeof(struct vgpu_history));
    return error == -ENOSPC || error == -EDQUOT ? error : 0;
}

/* `known`: as it was in a file that is gone, NULL where the device is new here. */
static int entry_add_locked(
    struct region *region, const char *uuid, int index, const struct vgpu_device *known)
{
    struct vgpu_region *shared = region->shared;
    unsigned entry = load_relaxed(&shared->device_count);
    if (entry >= VGPU_REGION_DEVICES)
        return -ENOSPC;
    if (index == REGION_INDEX_AS_MET)
        index = (int)entry;
    int error = reserve_storage(region, entry);
    if (error)
        return error;
    struct vgpu_device *device = &shared->devices[entry];
    memset(device, 0, sizeof(*device));
    memset(&shared->compute[entry], 0, sizeof(shared->compute[entry]));
    memset(&shared->history[entry], 0, sizeof(shared->history[entry]));
    if (known)
        memcpy(device, known, offsetof(struct vgpu_device, orphaned));
    else
        set_limits(region, device, uuid, index);
    memcpy(device->uuid, uuid, strlen(uuid));
    store_release(&shared->device_count, entry + 1);
    projection_show_device(region->map, entry);
    return (int)entry;
}

/* What was read is the file's only if it was still there afterwards. */
static void remember(
    struct region *region, struct region_device *device, const struct vgpu_device *entry)
{
    struct vgpu_device seen;
    struct region_settings settings = settings_read(region->shared);
    memcpy(&seen, entry, sizeof(seen));
    limits_read(entry, &seen);
    if (load_acquire(&region->lost) ||
        strncmp(seen.uuid, device->known.uuid, sizeof(seen.uuid)) != 0)
        return;
    region->known_settings = settings;
    if (!seen.tenant)
        seen.tenant = device->known.tenant;
    memcpy((char *)&device->known + sizeof(seen.uuid), (char *)&seen + sizeof(seen.uuid),
        sizeof(seen) - sizeof(seen.uuid));
    if (grant_of(region)) /* the entry may have been changed again since it was mended */
        set_limits_granted(region, &device->known, device->known.uuid);
}

static void enter_again_locked(struct region *region, struct region_device *device)
{
    int entry = entry_find(region, device->known.uuid);
    if (entry < 0)
        entry = entry_add_locked(region, device->known.uuid, device->index, &device->known);
    device->entry = entry;
    if (entry >= 0 && device->known.tenant)
        (void)swap_seq_cst(
            &region->shared->devices[entry].tenant, (uint64_t)0, device->known.tenant);
}

void region_devices_again(struct region *region)
{
    for (unsigned i = 0; i < region->device_count; i++)
        enter_again_locked(region, &region->devices[i]);
}

int region_device_known(const struct region *region, const char *uuid)
{
    unsigned count = load_acquire(&region->device_count);
    for (unsigned i = 0; i < count; i++) {
        if (!strcmp(region->devices[i].known.uuid, uuid))
            return (int)i;
    }
    return -ENOENT;
}

static int entry_make(struct region *region, const char *uuid, int index)
{
    int entry = entry_find(region, uuid);
    if (entry >= 0)
        return entry;
    if (!mapping_fd_is_ours(region))
        return -EBADF;
    int error = file_lock_wait(region->fd, VGPU_REGION_OFFSET, REGION_INITIALISER_WAIT_NS);
    if (error)
        return error;
    entry = entry_find(region, uuid);
    if (entry < 0)
        entry = entry_add_locked(region, uuid, index, NULL);
    file_lock_drop(region->fd, VGPU_REGION_OFFSET);
    return entry;
}

int region_device(struct region *region, const char *uuid, int index)
{
    int number = region_device_known(region, uuid);
    if (number >= 0)
        return number;
    unsigned count = region->device_count;
    if (strlen(uuid) >= sizeof(region->devices[0].known.uuid))
        return -ENAMETOOLONG;
    if (count >= VGPU_REGION_DEVICES)
        return -ENOSPC;
    struct region_device *device = &region->devices[count];
    int entry = entry_make(region, uuid, index);
    if (entry < 0)
        return entry;
    *device = (struct region_device){
        .index = index == REGION_INDEX_AS_MET ? entry : index, .entry = entry};
    memcpy(device->known.uuid, uuid, strlen(uuid));
    remember(region, device, &region->shared->devices[entry]);
    if (load_acquire(&region->lost))
        return -EAGAIN;
    store_release(&region->device_count, count + 1);
    return (int)count;
}

/* The usual case, at the price of one comparison: the entry is ours, and says what it said. */
static bool is_as_known(const struct region *region, const struct region_device *device)
{
    const struct vgpu_region *shared = region->shared;
    struct region_settings settings = settings_read(shared);
    return device->entry >= 0 && settings.hash == region->known_settings.hash &&
           settings.memory_limit == region->known_settings.memory_limit &&
           settings.core_limit == region->known_settings.core_limit &&
           settings.core_soft_limit == region->known_settings.core_soft_limit &&
           settings.set == region->known_settings.set &&
           memcmp(&shared->devices[device->entry], &device->known,
               offsetof(struct vgpu_device, orphaned)) == 0 &&
           is_settled(region, &device->known) &&
           projection_is_settled(region->map, (unsigned)device->entry);
}

static bool is_in_place(const struct region *region, const struct region_device *device)
{
    const struct vgpu_device *entry = &region->shared->devices[device->entry];
    return strncmp(entry->uuid, device->known.uuid, sizeof(entry->uuid)) == 0;
}

static void mend_entry(struct region *region, struct region_device *device)
{
    uint64_t now = clock_now_ns();
    if (region->mend_failed_ns && now - region->mend_failed_ns < MEND_RETRY_NS)
        return;
    region->mend_failed_ns = now;
    if (!mapping_fd_is_ours(region) ||
        file_lock_wait(region->fd, VGPU_REGION_OFFSET, MEND_WAIT_NS) != 0)
        return;
    region->mend_failed_ns = 0;
    if (device->entry < 0 || !is_in_place(region, device))
        enter_again_locked(region, device);
    if (device->entry >= 0 && !is_settled(region, &region->shared->devices[device->entry]))
        set_limits(
            region, &region->shared->devices[device->entry], device->known.uuid, device->index);
    if (device->entry >= 0)
        projection_settle(region->map, (unsigned)device->entry);
    file_lock_drop(region->fd, VGPU_REGION_OFFSET);
}

struct vgpu_device *region_device_entry(struct region *region, unsigned number)
{
    struct region_device *device = &region->devices[number];
    if (is_as_known(region, device))
        return &region->shared->devices[device->entry];
    if (device->entry < 0 || !is_in_place(region, device) ||
        !is_settled(region, &region->shared->devices[device->entry]) ||
        !projection_is_settled(region->map, (unsigned)device->entry))
        mend_entry(region, device);
    if (device->entry < 0 || !is_in_place(region, device))
        return NULL;
    remember(region, device, &region->shared->devices[device->entry]);
    return &region->shared->devices[device->entry];
}

/* Others that make one at the same time all take the first. */
uint64_t region_device_tenant(struct region *region, unsigned number)
{
    uint64_t *known = &region->devices[number].known.tenant;
    struct vgpu_device *entry = region_device_entry(region, number);
    if (!entry)
        return *known;
    uint64_t tenant = load_relaxed(&entry->tenant);
    if (!tenant) {
        (void)swap_seq_cst(&entry->tenant, (uint64_t)0, *known ? *known : registry_tenant_new());
        tenant = load_relaxed(&entry->tenant);
    }
    if (tenant && !load_acquire(&region->lost))
        *known = tenant;
    return *known;
}
