/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, checking and making the region's file. */
#include "region/region_file.h"

#include "base/file.h"
#include "base/file_lock.h"
#include "base/process.h"
#include "region/hami_file.h"
#include "vgpu/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OPEN_TRIES 10
#define SETTLE_WAIT_NS 200000000ull /* making a region takes some milliseconds */

struct head {
    uint64_t magic;
    uint32_t version, byte_order;
    uint64_t size;
    uint32_t device_entries, slot_entries;
};
_Static_assert(sizeof(struct head) == offsetof(struct vgpu_region, device_count), "as laid out");

bool region_file_is_pinned(void)
{
    struct stat status;
    int error = file_status_at(REGION_PINNED_PATH, &status);
    if (error) /* what may not be looked at may be there */
        return error != -ENOENT && error != -ENOTDIR;
    return S_ISREG(status.st_mode) && (status.st_uid == 0 || process_hides_owner(status.st_uid));
}

bool region_file_pins(const struct stat *status)
{
    return status->st_uid == 0 ? geteuid() != 0 : process_hides_owner(status->st_uid);
}

static bool is_ours(const struct head *head)
{
    return head->magic == VGPU_REGION_MAGIC && head->version == VGPU_REGION_VERSION &&
           head->byte_order == VGPU_REGION_BYTE_ORDER && head->size == sizeof(struct vgpu_region) &&
           head->device_entries == VGPU_REGION_DEVICES && head->slot_entries == VGPU_REGION_SLOTS;
}

static int read_head(int fd, struct head *ret_head)
{
    *ret_head = (struct head){0};
    return pread(fd, ret_head, sizeof(*ret_head), VGPU_REGION_OFFSET) < 0 ? -errno : 0;
}

/* Under the initialiser's lock: a region that is just being made gets its limits under it, too. */
static bool has_no_limits(int fd)
{
    const off_t place = (off_t)(VGPU_REGION_OFFSET + offsetof(struct vgpu_region, settings_hash));
    struct head head;
    uint64_t settings = 0;
    int lock = file_lock_wait(fd, VGPU_REGION_OFFSET, SETTLE_WAIT_NS);
    bool known = read_head(fd, &head) == 0 && is_ours(&head) &&
                 pread(fd, &settings, sizeof(settings), place) == sizeof(settings);
    if (!lock)
        file_lock_drop(fd, VGPU_REGION_OFFSET);
    return known && !settings;
}

bool region_file_is_trusted(int fd, const struct stat *status)
{
    if (!S_ISREG(status->st_mode))
        return false;
    if (status->st_uid == geteuid())
        return true;
    return status->st_uid == 0 && (status->st_mode & 06) == 06 && !process_is_on_the_host() &&
           !has_no_limits(fd);
}

/* Only root's is opened: its contents count. */
static bool is_trusted_at(const char *path, const struct stat *status)
{
    struct stat opened;
    if (!S_ISREG(status->st_mode) || status->st_uid == geteuid() || status->st_uid != 0)
        return region_file_is_trusted(-1, status);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return false;
    bool trusted = file_status(fd, &opened) == 0 && region_file_is_trusted(fd, &opened);
    close(fd);
    return trusted;
}

static bool is_somebody_elses(const char *path)
{
    struct stat status;
    return file_status_at(path, &status) == 0 && !is_trusted_at(path, &status);
}

static int path_by_default(const struct config *config, char *ret_path, size_t path_bytes)
{
    snprintf(ret_path, path_bytes, "%s", config->region_path);
    if (!is_somebody_elses(ret_path))
        return 0;
    snprintf(ret_path, path_bytes, "%s.%u", config->region_path, (unsigned)geteuid());
    return is_somebody_elses(ret_path) ? -EPERM : 0;
}

int region_file_path(const struct config *config, char *ret_path, size_t path_bytes)
{
    bool pinned = !config->grant && region_file_is_pinned(); /* a container's root can make one */
    snprintf(ret_path, path_bytes, "%s", pinned ? REGION_PINNED_PATH : config->region_path);
    if (pinned)
        return 0;
    if (config->region_too_long)
        return -ENAMETOOLONG;
    return config->region_named ? 0 : path_by_default(config, ret_path, path_bytes);
}

/* By descriptor: in a directory that is not sticky, others may exchange what was just made for a
 * link to something else of ours. */
static void open_to_all(const char *directory)
{
    struct stat status;
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    if (file_status(fd, &status) == 0 && status.st_uid == geteuid())
        (void)!fchmod(fd, 01777);
    close(fd);
}

/* mkdir -p of the path's directory; every error shows up again at open. */
static void create_directories(const char *path)
{
    char directory[PATH_MAX];
    snprintf(directory, sizeof(directory), "%s", path);
    for (char *slash = strchr(directory + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(directory, 0777) == 0)
            open_to_all(directory);
        *slash = '/';
    }
}

static int make_file(const char *path, int flags)
{
    create_directories(path);
    int fd = open(path, flags | O_CREAT | O_EXCL, 0666);
    if (fd >= 0)
        (void)!fchmod(fd, 0666);
    else if (errno == EEXIST)
        fd = open(path, flags);
    return fd;
}

/* A second name that somebody gives root's pinned file must not take it away from all others; one
 * that the node's agent has mounted has it on purpose. */
static int check_kind(const struct stat *status, bool may_have_names)
{
    if (S_ISLNK(status->st_mode))
        return -ELOOP;
    if (S_ISDIR(status->st_mode))
        return -EISDIR;
    return S_ISREG(status->st_mode) && (status->st_nlink <= 1 || may_have_names) ? 0 : -EPROTO;
}

/* Looked at before it is opened, because opening a device or a pipe can do things by itself, and
 * again after, because it may have been exchanged. Opened without O_CREAT first: where the
 * directory is sticky, the kernel may refuse O_CREAT on a file of another user
 * (fs.protected_regular). */
static int open_once(const char *path, bool create)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    const bool may_have_names =
        !strcmp(path, REGION_PINNED_PATH) || !strcmp(path, REGION_MOUNTED_PATH);
    struct stat status;
    int error = file_status_at(path, &status);
    if (!error)
        error = check_kind(&status, may_have_names);
    if (error && (error != -ENOENT || !create))
        return error;
    int fd = error ? make_file(path, flags) : open(path, flags);
    if (fd < 0)
        return -errno;
    error = file_status(fd, &status);
    if (!error)
        error = check_kind(&status, may_have_names);
    if (error) {
        close(fd);
        return error;
    }
    return file_raise(fd);
}

/* Somebody may delete it between two of these steps. */
int region_file_open(const char *path, bool create)
{
    int fd = open_once(path, create);
    for (int i = 0; fd == -ENOENT && create && i < OPEN_TRIES; i++)
        fd = open_once(path, create);
    return fd;
}

/* Storage for all but the slots and what belongs to a device, which are reserved when they are
 * taken: writing a hole of a full file system through a mapping would kill the program. */
static int reserve_storage(int fd)
{
    const off_t tail = offsetof(struct vgpu_hami, proc_num);
    int error = file_reserve(fd, 0, offsetof(struct vgpu_hami, slots));
    if (!error)
        error =
            file_reserve(fd, tail, (off_t)offsetof(struct vgpu_region_map, region.slots) - tail);
    return error;
}

static int write_all(int fd, const void *data, size_t bytes, size_t offset)
{
    ssize_t written = file_write_at(fd, data, bytes, (off_t)offset);
    if (written < 0)
        return (int)written;
    return written == (ssize_t)bytes ? 0 : -EIO;
}

/* HAMi's monitor has said nothing yet, and the semaphores are free: a program that comes by
 * HAMi-core's library would wait 5 minutes for one that is not. As HAMi's library has it in a new
 * region. */
static int write_hami_words(int fd)
{
    const struct {
        int32_t utilization_switch, recent_kernel, priority;
    } words = {1, 2, VGPU_PRIORITY_DEFAULT};
    const struct vgpu_hami_semaphore unheld = {.value = 1, .shared = VGPU_HAMI_SEMAPHORE_SHARED};
    int error =
        write_all(fd, &words, sizeof(words), offsetof(struct vgpu_hami, utilization_switch));
    if (!error)
        error = write_all(fd, &unheld, sizeof(unheld), offsetof(struct vgpu_hami, lock));
    if (!error)
        error = write_all(fd, &unheld, sizeof(unheld), offsetof(struct vgpu_hami, late_lock));
    return error;
}

/* In one piece: a process that shortens the file in between must not leave half of it. */
static int write_head(int fd)
{
    const struct head head = {.magic = VGPU_REGION_MAGIC,
        .version = VGPU_REGION_VERSION,
        .byte_order = VGPU_REGION_BYTE_ORDER,
        .size = sizeof(struct vgpu_region),
        .device_entries = VGPU_REGION_DEVICES,
        .slot_entries = VGPU_REGION_SLOTS};
    return write_all(fd, &head, sizeof(head), VGPU_REGION_OFFSET);
}

static off_t region_bytes(off_t size)
{
    return size < (off_t)VGPU_REGION_FILE_BYTES ? size : (off_t)VGPU_REGION_FILE_BYTES;
}

/* Whether a file without a head is one whose maker was killed before it wrote the head. */
static bool is_unmade(int fd, off_t size)
{
    return size == (off_t)VGPU_REGION_FILE_BYTES || file_is_blank(fd, region_bytes(size));
}

bool region_file_is_unmade(int fd)
{
    struct head head;
    struct stat status;
    return file_status(fd, &status) == 0 && read_head(fd, &head) == 0 && !head.magic &&
           is_unmade(fd, status.st_size);
}

static bool may_be_made(int fd, off_t size, const struct head *head, enum region_file_make make)
{
    if (make == REGION_FILE_KEEP || (head->magic && !is_ours(head)))
        return false;
    return make == REGION_FILE_MEND || is_ours(head) || hami_file_is(fd, size) ||
           is_unmade(fd, size);
}

/* What a file's former users left. In one of a region's size others may be at work already: ours
 * find their words gone and write them anew. */
static off_t left_bytes(off_t size)
{
    return size == (off_t)VGPU_REGION_FILE_BYTES ? (off_t)sizeof(struct vgpu_hami)
                                                 : region_bytes(size);
}

/* Of a region whose end was cut off all that is left is kept. */
static int make_region(int fd, off_t size, bool is_region)
{
    int error = 0;
    if (size < (off_t)VGPU_REGION_FILE_BYTES)
        error = file_lengthen(fd, (off_t)VGPU_REGION_FILE_BYTES);
    if (!error && !is_region)
        error = file_blank(fd, left_bytes(size));
    if (!error)
        error = reserve_storage(fd);
    if (!error && !is_region)
        error = write_hami_words(fd);
    if (!error && !is_region)
        error = write_head(fd);
    return error;
}

/* Between HAMi-core's programs. */
static int take_over(int fd, off_t size)
{
    int error = hami_file_lock(fd);
    if (error)
        return error;
    error = hami_file_user(fd, size) ? -EBUSY : make_region(fd, size, false);
    hami_file_unlock(fd);
    return error;
}

int region_file_prepare(int fd, enum region_file_make make)
{
    struct head head;
    struct stat status;
    int error = file_status(fd, &status);
    if (!error)
        error = read_head(fd, &head);
    if (error)
        return error;
    const off_t size = status.st_size;
    bool is_region = is_ours(&head);
    if (is_region && size >= (off_t)VGPU_REGION_FILE_BYTES)
        return 0;
    if (!may_be_made(fd, size, &head, make))
        return -EPROTO;
    if (!file_may_reach((off_t)VGPU_REGION_FILE_BYTES))
        return -EFBIG;
    error = is_region || make == REGION_FILE_MEND ? make_region(fd, size, is_region)
                                                  : take_over(fd, size);
    return error ? error : 1;
}
