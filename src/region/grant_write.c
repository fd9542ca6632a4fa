/* SPDX-License-Identifier: Apache-2.0 */
/* A grant is written through a mapping: a pwrite may be seen in parts out of order. */
#include "region/grant_write.h"

#include "base/atomic.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

static int open_file(const char *directory, int flags)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/" VGPU_GRANT_NAME, directory);
    if (length < 0 || (size_t)length >= sizeof(path))
        return -ENAMETOOLONG;
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0644);
    return fd < 0 ? -errno : fd;
}

static struct vgpu_grant *map_file(int fd, int protection)
{
    void *map = mmap(NULL, sizeof(struct vgpu_grant), protection, MAP_SHARED, fd, 0);
    return map == MAP_FAILED ? NULL : map;
}

static bool is_grant(const struct vgpu_grant *file)
{
    return load_acquire(&file->magic) == VGPU_GRANT_MAGIC && file->version == VGPU_GRANT_VERSION &&
           file->byte_order == VGPU_GRANT_BYTE_ORDER && file->size >= sizeof(*file);
}

/* Writers take turns by the lock of the directory above, which is in no container: what is mounted
 * there can be locked there too. Returns the descriptor that holds it, or -errno. */
static int take_turn(const char *directory)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/..", directory);
    if (length < 0 || (size_t)length >= sizeof(path))
        return -ENAMETOOLONG;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    int result;
    do {
        result = flock(fd, LOCK_EX);
    } while (result != 0 && errno == EINTR);
    if (result == 0)
        return fd;
    result = -errno;
    close(fd);
    return result;
}

/* All behind the sequence. */
static void store(struct vgpu_grant *file, const struct vgpu_grant *grant)
{
    const size_t from = offsetof(struct vgpu_grant, device_count);
    uint32_t sequence = load_relaxed(&file->sequence) | 1;
    store_seq_cst(&file->sequence, sequence);
    memcpy((char *)file + from, (const char *)grant + from, sizeof(*file) - from);
    store_seq_cst(&file->sequence, sequence + 1);
}

static int write_file(int fd, const struct vgpu_grant *grant)
{
    int error = file_reserve(fd, 0, sizeof(*grant));
    struct stat status;
    if (!error)
        error = file_status(fd, &status);
    if (!error && (size_t)status.st_size < sizeof(*grant))
        error = file_lengthen(fd, sizeof(*grant));
    if (error)
        return error;
    struct vgpu_grant *file = map_file(fd, PROT_READ | PROT_WRITE), all = *grant;
    if (!file)
        return -errno;
    if (is_grant(file))
        all.lifted = load_relaxed(&file->lifted);
    store(file, &all);
    file->version = VGPU_GRANT_VERSION;
    file->byte_order = VGPU_GRANT_BYTE_ORDER;
    file->size = sizeof(*file);
    store_release(&file->magic, VGPU_GRANT_MAGIC);
    munmap(file, sizeof(*file));
    return 0;
}

int grant_write(const char *directory, const struct vgpu_grant *grant)
{
    int turn = take_turn(directory);
    if (turn < 0)
        return turn;
    int fd = open_file(directory, O_RDWR | O_CREAT);
    int error = fd < 0 ? fd : write_file(fd, grant);
    if (fd >= 0)
        close(fd);
    close(turn);
    return error;
}

static int write_lifted(int fd, uint32_t lifted)
{
    struct stat status;
    int error = file_status(fd, &status);
    if (error)
        return error;
    if (!S_ISREG(status.st_mode) || (size_t)status.st_size < sizeof(struct vgpu_grant))
        return -EPROTO;
    struct vgpu_grant *file = map_file(fd, PROT_READ | PROT_WRITE);
    if (!file)
        return -errno;
    if (!is_grant(file)) {
        error = -EPROTO;
    } else if (load_relaxed(&file->lifted) != lifted) {
        uint32_t sequence = load_relaxed(&file->sequence) | 1;
        store_seq_cst(&file->sequence, sequence);
        store_seq_cst(&file->lifted, lifted);
        store_seq_cst(&file->sequence, sequence + 1);
    }
    munmap(file, sizeof(*file));
    return error;
}

int grant_write_lifted(const char *directory, bool lifted)
{
    int turn = take_turn(directory);
    if (turn < 0)
        return turn;
    int fd = open_file(directory, O_RDWR);
    int error = fd < 0 ? fd : write_lifted(fd, lifted);
    if (fd >= 0)
        close(fd);
    close(turn);
    return error;
}

int grant_write_read(const char *directory, struct vgpu_grant *ret_grant)
{
    int fd = open_file(directory, O_RDONLY);
    if (fd < 0)
        return fd;
    struct stat status;
    int error = file_status(fd, &status);
    if (!error && (!S_ISREG(status.st_mode) || (size_t)status.st_size < sizeof(*ret_grant)))
        error = -EPROTO;
    const struct vgpu_grant *file = error ? NULL : map_file(fd, PROT_READ);
    if (!error && !file)
        error = -errno;
    close(fd);
    if (!file)
        return error;
    if (is_grant(file))
        memcpy(ret_grant, file, sizeof(*ret_grant));
    else
        error = -EPROTO;
    munmap((void *)(uintptr_t)file, sizeof(*file));
    return error;
}
