/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, creating and validating the region's file. */
#include "region/region.h"

#include "base/atomic.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/log.h"
#include "region/file_lock.h"
#include "region/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define HAMI_REGION_BYTES 2008952
#define DESCRIPTOR_FLOOR 300 /* out of the way of programs that count on low numbers */
#define INITIALISER_WAIT_NS 2000000000ull

/* mkdir -p of the path's directory; every error shows up again at open. */
static void create_directories(const char *path)
{
    char directory[PATH_MAX];
    snprintf(directory, sizeof(directory), "%s", path);
    for (char *slash = strchr(directory + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(directory, 0777) == 0)
            (void)!chmod(directory, 01777);
        *slash = '/';
    }
}

/* Opened without O_CREAT first: where the directory is sticky, the kernel may refuse O_CREAT on a
 * file of another user (fs.protected_regular). */
static int open_file(const char *path, int flags)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | flags);
    if (fd < 0 && errno == ENOENT) {
        create_directories(path);
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | flags, 0666);
        if (fd >= 0)
            (void)!fchmod(fd, 0666);
        else if (errno == EEXIST)
            fd = open(path, O_RDWR | O_CLOEXEC | flags);
    }
    return fd < 0 ? -errno : fd;
}

/* Under the default name a file of another user that we may not open: a path per user then. */
static int open_configured(const struct config *config, char *path, size_t path_bytes)
{
    if (config->region_too_long)
        return -ENAMETOOLONG;
    snprintf(path, path_bytes, "%s", config->region_path);
    if (config->region_named)
        return open_file(path, 0);
    int fd = open_file(path, O_NOFOLLOW);
    if (fd == -EACCES || fd == -EPERM || fd == -ELOOP) {
        snprintf(path, path_bytes, "%s.%u", config->region_path, (unsigned)geteuid());
        fd = open_file(path, O_NOFOLLOW);
    }
    return fd;
}

static int raise_descriptor(int fd)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur <= DESCRIPTOR_FLOOR + 16)
        return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, DESCRIPTOR_FLOOR);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

static int map_file(struct region *region, int fd)
{
    struct stat status;
    int error = file_status(fd, &status);
    if (error)
        return error;
    if (!S_ISREG(status.st_mode))
        return -EPROTO;
    if (status.st_size < (off_t)VGPU_REGION_FILE_BYTES)
        return -EAGAIN;
    void *map = mmap(NULL, sizeof(struct vgpu_region), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
        VGPU_REGION_OFFSET);
    if (map == MAP_FAILED)
        return -errno;
    /* Without this the first touch reads ahead through the sparse file: 2 ms on ext4. */
    (void)madvise(map, sizeof(struct vgpu_region), MADV_RANDOM);
    region->shared = map;
    region->fd = fd;
    region->device = status.st_dev;
    region->inode = status.st_ino;
    return 0;
}

static int validate(const struct vgpu_region *shared)
{
    if (load_acquire(&shared->magic) != VGPU_REGION_MAGIC)
        return -EAGAIN;
    bool good =
        shared->version == VGPU_REGION_VERSION && shared->byte_order == VGPU_REGION_BYTE_ORDER &&
        shared->size == sizeof(struct vgpu_region) &&
        shared->device_entries == VGPU_REGION_DEVICES && shared->slot_entries == VGPU_REGION_SLOTS;
    return good ? 0 : -EPROTO;
}

/* Storage for all that is touched before a slot is claimed: writing a hole of a full file system
 * through a mapping would kill the program. */
static int reserve_storage(int fd)
{
    if (fallocate(fd, 0, VGPU_REGION_OFFSET, offsetof(struct vgpu_region, slots)) == 0)
        return 0;
    return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -errno;
}

/* Caller holds the initialisation lock. A file of another size or with other contents is not
 * touched. */
static int initialise_locked(struct region *region, int fd)
{
    struct stat status;
    int error = file_status(fd, &status);
    if (error)
        return error;
    if (status.st_size != 0 && status.st_size != HAMI_REGION_BYTES &&
        status.st_size != (off_t)VGPU_REGION_FILE_BYTES)
        return -EPROTO;
    if (status.st_size < (off_t)VGPU_REGION_FILE_BYTES &&
        ftruncate(fd, (off_t)VGPU_REGION_FILE_BYTES) != 0)
        return -errno;
    error = reserve_storage(fd);
    if (!error)
        error = map_file(region, fd);
    struct vgpu_region *shared = region->shared;
    if (error || !shared)
        return error;
    if (shared->magic != 0 && shared->magic != VGPU_REGION_MAGIC)
        return -EPROTO;
    if (shared->magic == VGPU_REGION_MAGIC)
        return validate(shared);
    shared->version = VGPU_REGION_VERSION;
    shared->byte_order = VGPU_REGION_BYTE_ORDER;
    shared->size = sizeof(struct vgpu_region);
    shared->device_entries = VGPU_REGION_DEVICES;
    shared->slot_entries = VGPU_REGION_SLOTS;
    store_release(&shared->magic, VGPU_REGION_MAGIC);
    return 0;
}

/* FNV-1a over the limits that the environment sets; 0 where it sets none, which leaves the region
 * as it is: a shell that lost the variables must not lift its container's limits. */
static uint64_t settings_hash(const struct config *config)
{
    uint64_t hash = 14695981039346656037ull;
    bool any = false;
    for (int i = -1; i < CONFIG_DEVICES; i++) {
        struct config_value values[2] = {
            config_memory_limit(config, i), config_core_limit(config, i)};
        for (int v = 0; v < 2; v++) {
            any |= values[v].state != VALUE_UNSET;
            hash = (hash ^ values[v].state) * 1099511628211ull;
            hash = (hash ^ values[v].value) * 1099511628211ull;
        }
    }
    for (const char *c = config->device_list; any && c && *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211ull;
    return any ? hash | 1 : 0;
}

/* Limits hold for as long as somebody lives under them; only a region that never had any takes
 * some while others live, and then their devices take them too (region_device). */
static void apply_settings_locked(struct region *region, const struct config *config)
{
    struct vgpu_region *shared = region->shared;
    uint64_t hash = settings_hash(config), held = load_relaxed(&shared->settings_hash);
    region->settings_hash = hash;
    if (!hash || held == hash)
        return;
    bool live = slot_any_live(region);
    if (live && held) {
        log_info("the container's programs run under other limits than this environment asks for; "
                 "the running ones hold");
        return;
    }
    if (!live) {
        store_relaxed(&shared->device_count, 0u);
        memset(shared->devices, 0, sizeof(shared->devices));
    }
    store_release(&shared->settings_hash, hash);
}

static int attach_fd(struct region *region, int fd, const struct config *config)
{
    int error = file_lock_wait(fd, VGPU_REGION_OFFSET, INITIALISER_WAIT_NS);
    if (error)
        return error;
    error = map_file(region, fd);
    if (!error)
        error = validate(region->shared);
    if (error == -EAGAIN) {
        if (region->shared)
            munmap(region->shared, sizeof(struct vgpu_region));
        region->shared = NULL;
        error = config ? initialise_locked(region, fd) : -EPROTO;
    }
    if (!error && config && region->shared) {
        apply_settings_locked(region, config);
        region->slot = slot_claim(region, &region->word);
    }
    file_lock_drop(fd, VGPU_REGION_OFFSET);
    return error;
}

static const char *explain(int error)
{
    return error == -EPROTO ? "not a region of this version" : strerror(-error);
}

static int attach_path(struct region *region, int fd, const char *path, const struct config *config)
{
    *region = (struct region){.fd = -1, .slot = -1};
    snprintf(region->path, sizeof(region->path), "%s", path);
    if (fd >= 0)
        fd = raise_descriptor(fd);
    int error = fd < 0 ? fd : attach_fd(region, fd, config);
    if (!error)
        return 0;
    if (fd >= 0 && region->fd < 0)
        close(fd);
    region_detach(region);
    log_warning("cannot use the shared region %s: %s", path, explain(error));
    return error;
}

int region_attach(struct region *region, const struct config *config)
{
    char path[PATH_MAX + 16] = "";
    int fd = open_configured(config, path, sizeof(path));
    return attach_path(region, fd, path, config);
}

int region_open(struct region *region, const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    return attach_path(region, fd < 0 ? -errno : fd, path, NULL);
}

void region_detach(struct region *region)
{
    if (region->shared)
        munmap(region->shared, sizeof(struct vgpu_region));
    if (region->fd >= 0 && region_fd_is_ours(region))
        close(region->fd);
    *region = (struct region){.fd = -1, .slot = -1};
}

int region_reopen(struct region *region)
{
    struct stat status;
    int fd = open(region->path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -ENOENT;
    if (file_status(fd, &status) != 0 || status.st_dev != region->device ||
        status.st_ino != region->inode) {
        close(fd);
        return -ENOENT;
    }
    region->fd = raise_descriptor(fd);
    if (region->slot >= 0 &&
        load_acquire(&region->shared->slots[region->slot].state) == region->word)
        slot_lock_again(region, (unsigned)region->slot);
    return 0;
}

bool region_fd_is_ours(const struct region *region)
{
    struct stat status;
    return region->fd >= 0 && file_status(region->fd, &status) == 0 &&
           status.st_dev == region->device && status.st_ino == region->inode;
}

int region_device_find(const struct region *region, const char *uuid)
{
    const struct vgpu_region *shared = region->shared;
    unsigned count = load_acquire(&shared->device_count);
    if (count > VGPU_REGION_DEVICES)
        count = VGPU_REGION_DEVICES;
    for (unsigned i = 0; i < count; i++) {
        if (!strncmp(shared->devices[i].uuid, uuid, sizeof(shared->devices[i].uuid)))
            return (int)i;
    }
    return -ENOENT;
}

static void set_limits_locked(
    struct region *region, struct vgpu_device *device, int index, const struct config *config)
{
    struct config_value memory = config_memory_limit(config, index);
    struct config_value cores = config_core_limit(config, index);
    store_relaxed(&device->memory_limit, memory.state == VALUE_SET ? memory.value : 0);
    store_relaxed(&device->memory_closed, memory.state == VALUE_INVALID ? 1u : 0u);
    store_relaxed(&device->core_limit, cores.state == VALUE_SET ? (uint32_t)cores.value : 0u);
    /* Who runs under other limits than the region's says nothing about its devices. */
    uint64_t hash = settings_hash(config);
    store_release(
        &device->settings_hash, hash == load_relaxed(&region->shared->settings_hash) ? hash : 0);
}

static int add_device_locked(
    struct region *region, const char *uuid, int index, const struct config *config)
{
    struct vgpu_region *shared = region->shared;
    unsigned entry = load_relaxed(&shared->device_count);
    if (entry >= VGPU_REGION_DEVICES)
        return -ENOSPC;
    struct vgpu_device *device = &shared->devices[entry];
    memset(device, 0, sizeof(*device));
    set_limits_locked(region, device, index, config);
    memcpy(device->uuid, uuid, strlen(uuid));
    store_release(&shared->device_count, entry + 1);
    return (int)entry;
}

bool region_device_is_settled(const struct region *region, int entry)
{
    uint64_t held = load_relaxed(&region->shared->settings_hash);
    return region->settings_hash != held ||
           load_acquire(&region->shared->devices[entry].settings_hash) == held;
}

int region_device(struct region *region, const char *uuid, int index, const struct config *config)
{
    if (strlen(uuid) >= sizeof(region->shared->devices[0].uuid))
        return -ENAMETOOLONG;
    if (!region_fd_is_ours(region)) {
        int lost = region_reopen(region);
        if (lost)
            return lost;
    }
    int error = file_lock_wait(region->fd, VGPU_REGION_OFFSET, INITIALISER_WAIT_NS);
    if (error)
        return error;
    int entry = region_device_find(region, uuid);
    if (entry < 0)
        entry = add_device_locked(region, uuid, index, config);
    else if (!region_device_is_settled(region, entry))
        set_limits_locked(region, &region->shared->devices[entry], index, config);
    file_lock_drop(region->fd, VGPU_REGION_OFFSET);
    return entry;
}

unsigned region_slot_bound(const struct region *region)
{
    unsigned high = load_seq_cst(&region->shared->slot_high);
    return high < VGPU_REGION_SLOTS ? high : VGPU_REGION_SLOTS;
}
