/* SPDX-License-Identifier: Apache-2.0 */
/* Mapping a grant, and reading it whole while its writer may change it. */
#include "region/grant.h"

#include "base/atomic.h"
#include "base/file.h"
#include "base/guard.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PAGE_BYTES 4096u
#define MAP_BYTES ((sizeof(struct vgpu_grant) + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES)
/* Readings until one is whole. A change is a few stores: a second reading is rare, and a writer
 * that died in the midst of one leaves an odd sequence for good. */
#define READ_TRIES 1000

/* Whether no process of the container can have written the file. In a user namespace root's files
 * show the overflow id as their owner; the mount is read-only there all the same. */
static bool is_out_of_reach(int fd, const struct stat *status)
{
    struct statvfs mount;
    if (fstatvfs(fd, &mount) == 0 && (mount.f_flag & ST_RDONLY))
        return true;
    return status->st_uid == 0 && geteuid() != 0 && !(status->st_mode & (S_IWGRP | S_IWOTH));
}

static bool is_understood(const struct vgpu_grant *file)
{
    return load_acquire(&file->magic) == VGPU_GRANT_MAGIC && file->version == VGPU_GRANT_VERSION &&
           file->byte_order == VGPU_GRANT_BYTE_ORDER && file->size >= sizeof(*file);
}

static const char *map_file(struct grant *grant, int fd, const struct stat *status)
{
    if ((size_t)status->st_size < sizeof(struct vgpu_grant))
        return "it is too short";
    void *map = mmap(NULL, MAP_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return strerror(errno);
    if (guard_add(map, MAP_BYTES, &grant->lost) != 0) {
        munmap(map, MAP_BYTES);
        return "too many files are guarded";
    }
    guard_enter();
    bool understood = is_understood(map);
    guard_leave();
    if (understood && !load_acquire(&grant->lost)) {
        grant->file = map;
        return NULL;
    }
    guard_remove(map);
    munmap(map, MAP_BYTES);
    return "it is of another version, or damaged";
}

static void open_file(struct grant *grant, const char *path)
{
    /* By the name first: a process without a free descriptor learns that there is none, too. */
    struct stat status;
    int missing = file_status_at(path, &status);
    if (missing == -ENOENT || missing == -ENOTDIR)
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const char *fault = fd < 0 ? strerror(errno) : NULL;
    if (fault || file_status(fd, &status) != 0) {
        fault = fault ? fault : "its status cannot be read";
    } else if (!S_ISREG(status.st_mode) || !is_out_of_reach(fd, &status)) {
        log_warning("%s is not used: a grant is a regular file on a read-only mount, or one that "
                    "only root may write",
            path);
        close(fd);
        return;
    } else {
        fault = map_file(grant, fd, &status);
    }
    if (fd >= 0)
        close(fd);
    grant->closed = fault != NULL;
    if (fault)
        log_error("%s: %s; all devices count as full", path, fault);
}

void grant_open(struct grant *grant, const char *path)
{
    int errno_kept = errno;
    *grant = (struct grant){0};
    open_file(grant, path);
    errno = errno_kept;
}

void grant_close(struct grant *grant)
{
    if (grant->file) {
        guard_remove((void *)(uintptr_t)grant->file);
        munmap((void *)(uintptr_t)grant->file, MAP_BYTES);
    }
    *grant = (struct grant){0};
}

uint32_t grant_sequence(const struct grant *grant)
{
    return grant->file ? load_acquire(&grant->file->sequence) : 0;
}

uint32_t *grant_word(const struct grant *grant)
{
    return grant->file ? (uint32_t *)(uintptr_t)&grant->file->sequence : NULL;
}

/* ---- reading it whole ---- */

/* The sequence before a reading, even; false where the file cannot be read whole. */
static bool begin(const struct grant *grant, uint32_t *ret_sequence)
{
    if (!grant->file)
        return false;
    *ret_sequence = load_acquire(&grant->file->sequence);
    return true;
}

static bool is_whole(const struct grant *grant, uint32_t sequence)
{
    fence_acquire();
    return !(sequence & 1) && load_relaxed(&grant->file->sequence) == sequence;
}

static unsigned device_count(const struct vgpu_grant *file)
{
    uint32_t count = load_relaxed(&file->device_count);
    return count < VGPU_GRANT_DEVICES ? count : VGPU_GRANT_DEVICES;
}

static struct grant_limits read_limits(const struct vgpu_grant *file, const char *uuid)
{
    for (unsigned i = 0; i < device_count(file); i++) {
        const struct vgpu_grant_device *device = &file->devices[i];
        if (strncmp(device->uuid, uuid, sizeof(device->uuid)) == 0)
            return (struct grant_limits){.memory_limit = load_relaxed(&device->memory_limit),
                .core_limit = load_relaxed(&device->core_limit),
                .core_soft_limit = load_relaxed(&device->core_soft_limit)};
    }
    return (struct grant_limits){.memory_closed = true};
}

struct grant_limits grant_limits(const struct grant *grant, const char *uuid)
{
    uint32_t sequence;
    for (unsigned i = 0; i < READ_TRIES && begin(grant, &sequence); i++) {
        struct grant_limits limits = read_limits(grant->file, uuid);
        if (is_whole(grant, sequence) && !load_acquire(&grant->lost))
            return limits;
    }
    return (struct grant_limits){.memory_closed = true};
}

static bool has_limit(const struct vgpu_grant *file)
{
    bool any = false;
    for (unsigned i = 0; i < device_count(file); i++)
        any |= load_relaxed(&file->devices[i].memory_limit) ||
               load_relaxed(&file->devices[i].core_limit);
    return any;
}

struct grant_control grant_control(const struct grant *grant)
{
    uint32_t sequence;
    for (unsigned i = 0; i < READ_TRIES && begin(grant, &sequence); i++) {
        const struct vgpu_grant *file = grant->file;
        uint32_t policy = load_relaxed(&file->policy);
        struct grant_control control = {.priority = load_relaxed(&file->priority),
            .priority_set = load_relaxed(&file->priority_set) != 0,
            .in_force = policy == VGPU_GRANT_POLICY_FORCE ||
                        (policy != VGPU_GRANT_POLICY_DISABLE && !load_relaxed(&file->lifted)),
            .limited = has_limit(file)};
        if (is_whole(grant, sequence) && !load_acquire(&grant->lost))
            return control;
    }
    return (struct grant_control){.in_force = true, .limited = true};
}

static void copy_text(char *to, const char *from, size_t bytes)
{
    memcpy(to, from, bytes);
    to[bytes - 1] = '\0';
}

void grant_texts(const struct grant *grant, struct grant_texts *ret_texts)
{
    *ret_texts = (struct grant_texts){0};
    if (!grant->file)
        return;
    const struct vgpu_grant *file = grant->file;
    guard_enter();
    ret_texts->memory_ratio = load_relaxed(&file->memory_ratio);
    copy_text(ret_texts->region_path, file->region_path, sizeof(ret_texts->region_path));
    copy_text(ret_texts->pod_name, file->pod_name, sizeof(ret_texts->pod_name));
    copy_text(ret_texts->pod_namespace, file->pod_namespace, sizeof(ret_texts->pod_namespace));
    copy_text(ret_texts->pod_uid, file->pod_uid, sizeof(ret_texts->pod_uid));
    copy_text(ret_texts->container_name, file->container_name, sizeof(ret_texts->container_name));
    guard_leave();
}
