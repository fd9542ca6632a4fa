/* SPDX-License-Identifier: Apache-2.0 */
/* Attaching to the region's file, and staying attached whatever happens to it. */
#include "region/region.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/guard.h"
#include "base/log.h"
#include "region/epoch.h"
#include "region/projection.h"
#include "region/region_control.h"
#include "region/region_device.h"
#include "region/region_file.h"
#include "region/region_identity.h"
#include "region/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RETRY_NS 10000000ull
#define SEEN_WHOLE_NS 250000ull
#define ATTACH_AGAIN_WAIT_NS 100000000ull

/* The file that takes this one's place has what this one says last, unless it is this one itself,
 * made whole again; a process that sleeps on this one would never notice. */
static void leave_file(struct region *region, const struct stat *next)
{
    if (!region->shared)
        return;
    guard_enter();
    struct region_control last = control_read(region);
    bool whole = load_relaxed(&region->shared->magic) == VGPU_REGION_MAGIC;
    if (whole && !mapping_is_of(region, next) && !load_acquire(&region->lost)) {
        region->known_control = last;
        identity_remember(region);
    }
    epoch_raise(region->shared);
    guard_leave();
}

/* Maps the file where it was mapped before: other threads may be looking. */
static int map_file(struct region *region, int fd, const struct stat *status)
{
    int flags = MAP_SHARED | (region->map ? MAP_FIXED : 0);
    void *map = mmap(region->map, sizeof(struct vgpu_region_map), PROT_READ | PROT_WRITE, flags, fd,
        VGPU_REGION_MAP_OFFSET);
    if (map == MAP_FAILED) {
        int error = errno;
        if (region->map) { /* which may be unmapped by now */
            (void)!mmap(region->map, sizeof(struct vgpu_region_map), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            store_release(&region->lost, true);
        }
        return -error;
    }
    /* Without this the first touch reads ahead through the sparse file: 2 ms on ext4. */
    (void)madvise(map, sizeof(struct vgpu_region_map), MADV_RANDOM);
    /* A mapping holds the open file, and so the lock that says that we live, also in a child that
     * has closed all descriptors. */
    region->kept_from_children = madvise(map, sizeof(struct vgpu_region_map), MADV_DONTFORK) == 0;
    store_release(&region->lost, false);
    if (!region->map) {
        int error = guard_add(map, sizeof(struct vgpu_region_map), &region->lost);
        if (error) {
            munmap(map, sizeof(struct vgpu_region_map));
            return error;
        }
        region->map = map;
        region->shared = &region->map->region;
    }
    region->device = status->st_dev;
    region->inode = status->st_ino;
    region->pinned = region_file_pins(status);
    return 0;
}

/* Another file's slot of that number, and maybe of that very word, is another process's. */
static void join(struct region *region, bool fresh, bool same_file)
{
    guard_enter();
    if (same_file && region->slot >= 0) /* a file that was shortened may still have it */
        slot_leave(region, (unsigned)region->slot, region->word);
    region_settings_take(region, fresh);
    control_take(region, fresh);
    identity_take(region);
    region_devices_again(region);
    epoch_arrive(region->shared, fresh);
    projection_begin(region->map);
    slot_reap_all(region, -1); /* monitors sum what the dead left */
    region->slot = slot_claim(region, &region->word);
    region->slot_is_empty = true;
    guard_leave();
}

/* Under the initialiser's lock. Keeps `fd`, maybe under another number, where it succeeds. */
static int attach_locked(struct region *region, int fd, enum region_file_make make)
{
    struct stat status;
    int made = region_file_prepare(fd, make);
    int error = made < 0 ? made : file_status(fd, &status);
    int former = mapping_fd_is_ours(region) ? region->fd : -1;
    bool same_file = !error && region->shared && mapping_is_of(region, &status);
    if (!error) {
        leave_file(region, &status);
        error = map_file(region, fd, &status);
    }
    if (error)
        return error;
    region->fd = file_replace(former, fd);
    if (make != REGION_FILE_KEEP)
        join(region, made > 0, same_file);
    return 0;
}

static int attach_path(struct region *region, enum region_file_make make)
{
    struct stat status;
    int fd = region_file_open(region->path, make != REGION_FILE_KEEP);
    if (fd < 0)
        return fd;
    int error = file_status(fd, &status);
    if (!error && region->own_only && !region_file_is_trusted(fd, &status))
        error = -EPERM;
    if (!error)
        error = file_lock_wait(fd, VGPU_REGION_OFFSET, region->lock_wait_ns);
    if (!error) {
        error = attach_locked(region, fd, make);
        file_lock_drop(error ? fd : region->fd, VGPU_REGION_OFFSET);
    }
    if (error)
        close(fd);
    return error;
}

static const char *explain(int error)
{
    if (error == -EPROTO)
        return "not a region of this version; delete it once no program uses it";
    return error == -EBUSY ? "a program still uses it by HAMi-core's library" : strerror(-error);
}

static void say_failure(const struct region *region, int error)
{
    bool limited =
        config_limits_memory(region->config) || !strcmp(region->path, REGION_PINNED_PATH);
    log_at(limited ? LOG_ERROR : LOG_WARNING, "cannot use the shared region %.256s: %s%s",
        region->path, explain(error),
        limited ? "; the memory limit cannot be kept without it: the device is treated as full"
                : "");
}

static int attach(
    struct region *region, const struct config *config, uint64_t lock_wait_ns, bool say)
{
    *region = (struct region){.fd = -1, .slot = -1, .config = config, .lock_wait_ns = lock_wait_ns};
    int error = region_file_path(config, region->path, sizeof(region->path));
    region->own_only = !config->region_named && strcmp(region->path, REGION_PINNED_PATH) != 0;
    if (!error)
        error = attach_path(region, REGION_FILE_MAKE);
    region->lock_wait_ns = REGION_INITIALISER_WAIT_NS;
    if (error && say)
        say_failure(region, error);
    if (error)
        region_detach(region);
    return error;
}

int region_attach(struct region *region, const struct config *config)
{
    return attach(region, config, REGION_INITIALISER_WAIT_NS, true);
}

int region_attach_again(struct region *region, const struct config *config)
{
    return attach(region, config, ATTACH_AGAIN_WAIT_NS, false);
}

int region_open(struct region *region, const char *path)
{
    *region = (struct region){.fd = -1, .slot = -1, .lock_wait_ns = REGION_INITIALISER_WAIT_NS};
    int length = snprintf(region->path, sizeof(region->path), "%s", path);
    int error = (size_t)length < sizeof(region->path) ? 0 : -ENAMETOOLONG;
    if (!error)
        error = attach_path(region, REGION_FILE_KEEP);
    if (error)
        region_detach(region);
    return error;
}

static void forget(struct region *region, bool is_mapped_here)
{
    guard_unmap(region->map, sizeof(struct vgpu_region_map), is_mapped_here);
    *region = (struct region){.fd = -1, .slot = -1};
}

/* In its place there may be something of the program's by now. */
void region_abandon(struct region *region)
{
    forget(region, !region->kept_from_children);
}

void region_detach(struct region *region)
{
    if (region->shared && region->slot >= 0) {
        guard_enter();
        slot_leave(region, (unsigned)region->slot, region->word);
        guard_leave();
    }
    if (region->fd >= 0 && mapping_fd_is_ours(region))
        close(region->fd);
    forget(region, true);
}

enum file_state {
    FILE_WHOLE,
    FILE_CLOSED,  /* our descriptor was closed */
    FILE_DELETED, /* or something else lies in its place */
    FILE_SHORT,
};

static enum file_state file_state(const struct region *region)
{
    struct stat status;
    if (region->fd < 0 || file_status(region->fd, &status) != 0 || !mapping_is_of(region, &status))
        return FILE_CLOSED;
    if (status.st_nlink == 0)
        return FILE_DELETED;
    return status.st_size < (off_t)VGPU_REGION_FILE_BYTES ? FILE_SHORT : FILE_WHOLE;
}

static enum file_state state_by_path(const struct region *region)
{
    struct stat status;
    if (file_status_at(region->path, &status) != 0)
        return FILE_CLOSED;
    if (!mapping_is_of(region, &status))
        return FILE_DELETED;
    return status.st_size < (off_t)VGPU_REGION_FILE_BYTES ? FILE_SHORT : FILE_WHOLE;
}

/* The program closed our descriptor. */
static int open_again(struct region *region)
{
    struct stat status;
    int fd = region_file_open(region->path, false);
    if (fd < 0)
        return fd;
    if (file_status(fd, &status) != 0 || !mapping_is_of(region, &status)) {
        close(fd);
        return -ENOENT;
    }
    region->fd = fd;
    guard_enter();
    if (region->slot >= 0 &&
        load_acquire(&region->shared->slots[region->slot].state) == region->word)
        slot_lock_again(region, (unsigned)region->slot);
    guard_leave();
    return 0;
}

/* The old file, where it is still mapped, keeps the others that map it to the limit. Without it
 * there is nothing to share. */
static int stay(struct region *region, enum file_state state, int error, uint64_t now)
{
    region->failed_ns = now;
    if (error && !region->failure_said) {
        region->failure_said = true;
        log_warning("the shared region %s was taken away and cannot be had again: %s", region->path,
            explain(error));
    }
    return region->lost || state == FILE_SHORT ? -ENOENT : 0;
}

/* What lies at the path decides; after a chroot, say, nothing may lie there, or nothing that we may
 * see. */
static int come_back(struct region *region, enum file_state state)
{
    uint64_t now = clock_now_ns();
    if (region->failed_ns && now - region->failed_ns < RETRY_NS)
        return region->lost || state == FILE_SHORT ? -ENOENT : 0;
    if (state == FILE_CLOSED) {
        state = state_by_path(region);
        if (state == FILE_WHOLE && !region->lost)
            return open_again(region) ? stay(region, state, 0, now) : 0;
        if (state == FILE_CLOSED && !region->lost)
            return stay(region, state, 0, now);
    }
    int error = attach_path(region, state == FILE_SHORT ? REGION_FILE_MEND : REGION_FILE_MAKE);
    if (error)
        return stay(region, state, error, clock_now_ns());
    region->failed_ns = 0;
    region->failure_said = false;
    return 0;
}

/* A file that was renamed away lives on under its other name, while newcomers make another. */
static bool is_displaced(struct region *region, uint64_t now)
{
    struct stat status;
    if (now - region->path_seen_ns < RETRY_NS)
        return false;
    region->path_seen_ns = now;
    return file_status_at(region->path, &status) == 0 && S_ISREG(status.st_mode) &&
           !mapping_is_of(region, &status);
}

bool region_was_kept(const struct region *region)
{
    return !load_acquire(&region->lost) && clock_now_ns() - region->whole_seen_ns < SEEN_WHOLE_NS;
}

int region_keep(struct region *region)
{
    bool lost = load_acquire(&region->lost);
    uint64_t now = clock_now_ns();
    enum file_state state = file_state(region);
    if (state == FILE_WHOLE && is_displaced(region, now))
        state = FILE_DELETED;
    if (state == FILE_WHOLE && !lost) {
        region->whole_seen_ns = now;
        return 0;
    }
    int errno_kept = errno;
    int error = come_back(region, state);
    errno = errno_kept;
    return error;
}
