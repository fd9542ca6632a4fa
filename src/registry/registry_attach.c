/* SPDX-License-Identifier: Apache-2.0 */
/* Attaching to a registry's file, staying attached whatever happens to it, and a slot in it. */
#include "registry/registry.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/process.h"
#include "config/config.h"
#include "registry/registry_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_NS 100000000ull
#define LOOK_FOR_NONE_NS 1000000000ull
#define CLAIM_WAIT_NS 20000000ull
/* Locked by a process that claims a slot: two processes of a container take one. */
#define CLAIM_BYTE 0
/* Where no lock tells, a tenant that was not heard of for this time is gone. */
#define STALE_NS 10000000000ull
#define RAISE_TRIES 10
#ifndef GRND_NONBLOCK
#define GRND_NONBLOCK 1
#endif

uint64_t registry_tenant_new(void)
{
    int errno_kept = errno;
    uint64_t id = 0;
    if (syscall(SYS_getrandom, &id, sizeof(id), GRND_NONBLOCK) != (long)sizeof(id))
        id = (clock_now_ns() ^ (uint64_t)getpid() << 40 ^ (uintptr_t)&id) * 0x9e3779b97f4a7c15ull;
    errno = errno_kept;
    return id ? id : 1;
}

static off_t slot_byte(unsigned index)
{
    return (off_t)(offsetof(struct vgpu_board, slots) + index * sizeof(struct vgpu_board_slot));
}

static bool is_mapped(const struct registry *registry, const struct stat *status)
{
    return status->st_dev == registry->device && status->st_ino == registry->inode;
}

static bool fd_is_ours(const struct registry *registry)
{
    struct stat status;
    return registry->fd >= 0 && file_status(registry->fd, &status) == 0 &&
           is_mapped(registry, &status);
}

/* Maps the file where it was mapped before: other threads may be looking. */
static int map_registry(struct registry *registry, int fd)
{
    struct vgpu_board *former = registry->shared;
    void *map = mmap(former, sizeof(struct vgpu_board), PROT_READ | PROT_WRITE,
        MAP_SHARED | (former ? MAP_FIXED : 0), fd, 0);
    if (map == MAP_FAILED) {
        int error = errno;
        if (former) { /* which may be unmapped by now */
            (void)!mmap(former, sizeof(struct vgpu_board), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            store_release(&registry->lost, true);
        }
        return -error;
    }
    /* A mapping holds the open file, and so the slot's lock, also in a child. */
    registry->kept_from_children = madvise(map, sizeof(struct vgpu_board), MADV_DONTFORK) == 0;
    store_release(&registry->lost, false);
    int error = former ? 0 : guard_add(map, sizeof(struct vgpu_board), &registry->lost);
    if (error)
        munmap(map, sizeof(struct vgpu_board));
    else
        store_release(&registry->shared, (struct vgpu_board *)map);
    return error;
}

/* Others may lower it all the time. */
static void raise_high(struct vgpu_board *shared, unsigned slots)
{
    for (int i = 0; i < RAISE_TRIES; i++) {
        uint32_t high = load_acquire(&shared->slot_high);
        if (high >= slots || swap_seq_cst(&shared->slot_high, high, (uint32_t)slots))
            return;
    }
}

static bool is_ours(const struct registry *registry, const struct vgpu_board_slot *slot)
{
    return load_acquire(&slot->tenant) == registry->tenant;
}

/* The slot that another process of the container has, or that one had before. */
static int join_slot(const struct registry *registry, int fd)
{
    for (unsigned i = 0; i < VGPU_BOARD_SLOTS; i++) {
        const struct vgpu_board_slot *slot = &registry->shared->slots[i];
        if (!is_ours(registry, slot))
            continue;
        int error = file_lock_share(fd, slot_byte(i));
        if ((!error || error == -EINVAL) && is_ours(registry, slot))
            return (int)i;
        if (!error)
            file_lock_drop(fd, slot_byte(i));
    }
    return -1;
}

/* Where the kernel has no such locks. */
static bool is_stale(const struct vgpu_board_slot *slot, uint64_t now_ns)
{
    uint64_t active_ns = load_relaxed(&slot->active_ns), since_ns = load_relaxed(&slot->since_ns);
    uint64_t heard_ns = active_ns > since_ns ? active_ns : since_ns;
    return heard_ns <= now_ns ? now_ns - heard_ns > STALE_NS
                              : heard_ns - now_ns > VGPU_BOARD_FUTURE_NS;
}

static bool take_slot(
    const struct registry *registry, struct vgpu_board_slot *slot, uint64_t now_ns)
{
    uint64_t former = load_acquire(&slot->tenant);
    store_relaxed(&slot->active_ns, (uint64_t)0);
    if (!swap_seq_cst(&slot->tenant, former, registry->tenant))
        return false;
    struct vgpu_board_slot fresh = {.since_ns = now_ns};
    memcpy(fresh.name, registry->name, sizeof(fresh.name));
    /* Word by word: a thread that is late may be writing what it knew of its own there. */
    uint64_t *to = &slot->active_ns, *from = &fresh.active_ns;
    for (size_t i = 0; i < sizeof(*slot) / sizeof(*to) - 1; i++)
        store_relaxed(&to[i], from[i]);
    return true;
}

static int claim_slot(const struct registry *registry, int fd)
{
    uint64_t now = clock_now_ns();
    for (unsigned i = 0; i < VGPU_BOARD_SLOTS; i++) {
        struct vgpu_board_slot *slot = &registry->shared->slots[i];
        int error = file_lock_take(fd, slot_byte(i));
        if (error == -EINVAL ? load_relaxed(&slot->tenant) && !is_stale(slot, now) : error != 0)
            continue;
        bool taken = take_slot(registry, slot, now);
        int shared = error || !taken ? 0 : file_lock_share(fd, slot_byte(i));
        if (taken && !shared) {
            raise_high(registry->shared, i + 1);
            return (int)i;
        }
        if (!error)
            file_lock_drop(fd, slot_byte(i));
    }
    return -1;
}

/* A process that cannot have the claimers' lock in time goes on without it: at worst the container
 * is there twice, until its processes look after their slots. */
static void have_slot_locked(struct registry *registry, uint64_t wait_ns) REQUIRES(registry->lock)
{
    int error = file_lock_wait(registry->fd, CLAIM_BYTE, wait_ns);
    int former = registry->slot;
    store_release(&registry->slot, -1);
    if (former >= 0) /* somebody wrote over it, or there is one before it: free for all, and us */
        file_lock_drop(registry->fd, slot_byte((unsigned)former));
    guard_enter();
    int slot = join_slot(registry, registry->fd);
    if (slot < 0)
        slot = claim_slot(registry, registry->fd);
    guard_leave();
    store_release(&registry->slot, slot);
    if (!error)
        file_lock_drop(registry->fd, CLAIM_BYTE);
}

static int attach_locked(struct registry *registry, bool make, uint64_t wait_ns)
    REQUIRES(registry->lock)
{
    struct stat status;
    int former = fd_is_ours(registry) ? registry->fd : -1; /* before its number is given anew */
    int fd = registry_file_open(registry->path, make);
    if (fd < 0)
        return fd;
    int error = file_status(fd, &status);
    store_release(&registry->slot, -1);
    if (!error)
        error = map_registry(registry, fd);
    if (error) {
        close(fd);
        return error;
    }
    registry->device = status.st_dev;
    registry->inode = status.st_ino;
    registry->fd = file_replace(former, fd);
    if (make)
        have_slot_locked(registry, wait_ns);
    return 0;
}

/* A directory that is not there is no fault: nobody shares the GPU, or nobody wants a registry. */
static void say_failure(struct registry *registry, int error)
{
    if (registry->failure_said || error == -ENOENT)
        return;
    registry->failure_said = true;
    log_warning("cannot use the GPU's board%s%.256s: %s; containers that share the GPU do not know "
                "of this one",
        *registry->path ? " " : "", registry->path,
        error == -EPROTO ? "it is no board of this version" : strerror(-error));
}

static void put_at_start(struct registry *registry)
{
    memset(registry, 0, sizeof(*registry));
    registry->fd = registry->slot = -1;
    registry->priority = CONFIG_PRIORITY;
}

int registry_attach(struct registry *registry, const char *directory, const char *uuid,
    uint64_t tenant, const char *name)
{
    int errno_kept = errno;
    put_at_start(registry);
    registry->tenant = tenant ? tenant : registry_tenant_new();
    if (name)
        memcpy(registry->name, name, strnlen(name, sizeof(registry->name)));
    else
        process_command(registry->name, sizeof(registry->name));
    registry->looked_ns = clock_now_ns();
    int error = registry_file_path(directory, uuid, registry->path, sizeof(registry->path));
    LOCKED(registry->lock) {
        if (error)
            registry->path[0] = '\0';
        else
            error = attach_locked(registry, true, CLAIM_WAIT_NS);
    }
    if (error)
        say_failure(registry, error);
    errno = errno_kept;
    return error;
}

int registry_open(struct registry *registry, const char *directory, const char *uuid)
{
    int errno_kept = errno;
    put_at_start(registry);
    int error = registry_file_path(directory, uuid, registry->path, sizeof(registry->path));
    LOCKED(registry->lock) {
        if (!error)
            error = attach_locked(registry, false, 0);
    }
    errno = errno_kept;
    return error;
}

static void forget(struct registry *registry, bool is_mapped_here)
{
    guard_unmap(registry->shared, sizeof(struct vgpu_board), is_mapped_here);
    if (fd_is_ours(registry))
        close(registry->fd);
    put_at_start(registry);
}

void registry_detach(struct registry *registry)
{
    int errno_kept = errno;
    registry_idle(registry);
    forget(registry, true);
    errno = errno_kept;
}

/* The parent holds the same open file: its lock stays. In the mapping's place there may be
 * something of the program's by now. */
void registry_reset(struct registry *registry)
{
    int errno_kept = errno;
    forget(registry, !registry->kept_from_children);
    errno = errno_kept;
}

bool registry_is_attached(const struct registry *registry)
{
    return load_acquire(&registry->slot) >= 0 && !load_acquire(&registry->lost);
}

/* Whether the file is whole, and the one that others find. Where nothing can be seen at the path
 * there is nothing to go to. */
static bool is_well(const struct registry *registry)
{
    struct stat status;
    if (!registry->shared || load_acquire(&registry->lost) || registry->fd < 0 ||
        file_status(registry->fd, &status) != 0 || !is_mapped(registry, &status) ||
        status.st_nlink == 0 || status.st_size < (off_t)sizeof(struct vgpu_board))
        return false;
    return file_status_at(registry->path, &status) != 0 || is_mapped(registry, &status);
}

/* Ours still, the container's first, and where others see it. */
static bool slot_is_well(const struct registry *registry)
{
    int first = 0;
    guard_enter();
    while (first < registry->slot && !is_ours(registry, &registry->shared->slots[first]))
        first++;
    bool well = first == registry->slot && is_ours(registry, &registry->shared->slots[first]);
    if (well)
        raise_high(registry->shared, (unsigned)first + 1);
    guard_leave();
    return well;
}

static void keep_locked(struct registry *registry) REQUIRES(registry->lock)
{
    int error = 0;
    if (!is_well(registry))
        error = attach_locked(registry, true, 0);
    else if (!slot_is_well(registry))
        have_slot_locked(registry, 0);
    if (error)
        say_failure(registry, error);
}

void registry_keep(struct registry *registry, uint64_t now_ns)
{
    uint64_t looked = load_relaxed(&registry->looked_ns);
    uint64_t pause = load_relaxed(&registry->shared) ? LOOK_NS : LOOK_FOR_NONE_NS;
    if (now_ns - looked < pause || !registry->path[0] ||
        !swap_seq_cst(&registry->looked_ns, looked, now_ns))
        return;
    int errno_kept = errno;
    LOCKED(registry->lock)
        keep_locked(registry);
    errno = errno_kept;
}
