/* SPDX-License-Identifier: Apache-2.0 */
#include "node/monitor/hami_region.h"

#include "base/file.h"
#include "base/saturating.h"
#include "region/hami_file.h"
#include "region/region_read.h"
#include "vgpu/hami.h"
#include "vgpu/region.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define UUID_FIELD_BYTES 96
#define SLOT_BYTES_MAX sizeof(struct vgpu_hami_slot)
#define INITIALISING 1 /* in the magic number's place */

/* Offsets in the file, and in a slot. */
static const struct layout {
    uint32_t bytes; /* the structure's: the file is one byte longer, or ours */
    uint32_t count, uuids, limits, core_limits, slots, slot_bytes;
    uint32_t used, used_bytes, sm, sm_bytes, status; /* status 0: not looked at */
    uint32_t tail;                                   /* proc_num and three words more */
    uint32_t time;                                   /* 0: none */
} layouts[] = {
    [HAMI_REGION_V0] = {1197896, 48, 56, 1592, 1720, 1848, 1168, 8, 40, 776 + 16, 24, 0, 1197880,
        0},
    [HAMI_REGION_V1] = {sizeof(struct vgpu_hami), offsetof(struct vgpu_hami, device_count),
        offsetof(struct vgpu_hami, uuid), offsetof(struct vgpu_hami, limit),
        offsetof(struct vgpu_hami, sm_limit), offsetof(struct vgpu_hami, slots),
        sizeof(struct vgpu_hami_slot), offsetof(struct vgpu_hami_slot, used),
        sizeof(struct vgpu_hami_memory),
        offsetof(struct vgpu_hami_slot, device_util) + offsetof(struct vgpu_hami_util, sm),
        sizeof(struct vgpu_hami_util), offsetof(struct vgpu_hami_slot, status),
        offsetof(struct vgpu_hami, proc_num), offsetof(struct vgpu_hami, last_kernel_time)},
    [HAMI_REGION_V1_LONG] = {2008984, 88, 96, 1632, 1760, 1888, 1960, 8, 64, 1160 + 16, 48, 1928,
        2008928, 2008944},
};

static const struct layout *layout_of(enum hami_region_kind kind)
{
    return &layouts[kind == HAMI_REGION_VGPU ? HAMI_REGION_V1 : kind];
}

static bool is_ours(int fd, off_t size)
{
    uint64_t magic;
    return size >= (off_t)VGPU_REGION_FILE_BYTES &&
           region_read_exactly(fd, VGPU_REGION_OFFSET, &magic, sizeof(magic)) == 0 &&
           magic == VGPU_REGION_MAGIC;
}

static int hami_kind(const int32_t head[3], off_t size)
{
    if (head[0] == 0 || head[0] == INITIALISING)
        return HAMI_REGION_NONE;
    if (head[0] != VGPU_HAMI_MAGIC)
        return -EPROTO;
    if (size < (off_t)layouts[HAMI_REGION_V1].bytes)
        return size >= (off_t)layouts[HAMI_REGION_V0].bytes ? HAMI_REGION_V0 : -EPROTO;
    if (head[1] != (int32_t)VGPU_HAMI_MAJOR)
        return -EPROTO;
    off_t longer = (off_t)layouts[HAMI_REGION_V1_LONG].bytes;
    return size == longer || size == longer + 1 ? HAMI_REGION_V1_LONG : HAMI_REGION_V1;
}

int hami_region_kind(int fd)
{
    struct stat status;
    int32_t head[3];
    int error = file_status(fd, &status);
    if (error)
        return error;
    if (!S_ISREG(status.st_mode))
        return -EPROTO;
    if (is_ours(fd, status.st_size))
        return HAMI_REGION_VGPU;
    if (status.st_size == 0)
        return HAMI_REGION_NONE;
    error = region_read_exactly(fd, 0, head, sizeof(head));
    if (error)
        return error == -EIO ? -EPROTO : error;
    return hami_kind(head, status.st_size);
}

static void take_uuid(const char *field, char uuid[HAMI_REGION_UUID_BYTES])
{
    size_t length = strnlen(field, HAMI_REGION_UUID_BYTES - 1);
    for (size_t i = 0; i < length; i++)
        if (field[i] <= ' ' || field[i] > '~')
            length = 0;
    memcpy(uuid, field, length);
    uuid[length] = '\0';
}

static int read_uuids(int fd, const struct layout *layout, unsigned *ret_count,
    char uuids[HAMI_REGION_DEVICES][HAMI_REGION_UUID_BYTES])
{
    uint64_t count;
    char fields[HAMI_REGION_DEVICES][UUID_FIELD_BYTES];
    int error = region_read_exactly(fd, layout->count, &count, sizeof(count));
    if (!error)
        error = region_read_exactly(fd, layout->uuids, fields, sizeof(fields));
    if (error)
        return error;
    *ret_count = count < HAMI_REGION_DEVICES ? (unsigned)count : HAMI_REGION_DEVICES;
    for (unsigned d = 0; d < *ret_count; d++)
        take_uuid(fields[d], uuids[d]);
    return 0;
}

static uint64_t word_at(const char *bytes, size_t offset)
{
    uint64_t word;
    memcpy(&word, bytes + offset, sizeof(word));
    return word;
}

static void add_slot(const struct layout *layout, const char *slot, struct hami_region *region)
{
    int32_t status;
    memcpy(&status, slot + layout->status, sizeof(status));
    if (layout->status && status == VGPU_HAMI_DEAD)
        return;
    for (unsigned d = 0; d < region->device_count; d++) {
        struct hami_region_device *device = &region->devices[d];
        size_t used = layout->used + d * layout->used_bytes;
        uint64_t *const sums[] = {
            &device->context, &device->module, &device->data, &device->offset, &device->total};
        for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
            *sums[i] = saturating_sum(*sums[i], word_at(slot, used + i * sizeof(uint64_t)));
        device->sm_percent =
            saturating_sum(device->sm_percent, word_at(slot, layout->sm + d * layout->sm_bytes));
    }
}

static int read_slots(int fd, const struct layout *layout, struct hami_region *region)
{
    char slot[SLOT_BYTES_MAX];
    int32_t count;
    int error = region_read_exactly(fd, layout->tail, &count, sizeof(count));
    for (int32_t i = 0; i < count && i < (int32_t)VGPU_HAMI_SLOTS && !error; i++) {
        error = region_read_exactly(
            fd, layout->slots + (uint64_t)i * layout->slot_bytes, slot, layout->slot_bytes);
        if (!error)
            add_slot(layout, slot, region);
    }
    return error;
}

int hami_region_read(int fd, enum hami_region_kind kind, struct hami_region *ret_region)
{
    const struct layout *layout = layout_of(kind);
    char uuids[HAMI_REGION_DEVICES][HAMI_REGION_UUID_BYTES];
    uint64_t limits[HAMI_REGION_DEVICES], cores[HAMI_REGION_DEVICES];
    *ret_region = (struct hami_region){0};
    int error = read_uuids(fd, layout, &ret_region->device_count, uuids);
    if (!error)
        error = region_read_exactly(fd, layout->limits, limits, sizeof(limits));
    if (!error)
        error = region_read_exactly(fd, layout->core_limits, cores, sizeof(cores));
    for (unsigned d = 0; d < ret_region->device_count && !error; d++) {
        memcpy(ret_region->devices[d].uuid, uuids[d], sizeof(uuids[d]));
        ret_region->devices[d].memory_limit = limits[d];
        ret_region->devices[d].core_limit = cores[d];
    }
    if (!error)
        error = read_slots(fd, layout, ret_region);
    if (!error && layout->time)
        error = region_read_exactly(
            fd, layout->time, &ret_region->last_kernel_s, sizeof(ret_region->last_kernel_s));
    return error;
}

int hami_region_read_words(int fd, enum hami_region_kind kind, struct hami_region_words *ret_words)
{
    const struct layout *layout = layout_of(kind);
    int32_t tail[4];
    *ret_words = (struct hami_region_words){0};
    int error = read_uuids(fd, layout, &ret_words->device_count, ret_words->uuids);
    if (!error)
        error = region_read_exactly(fd, layout->tail, tail, sizeof(tail));
    if (error)
        return error;
    ret_words->utilization_switch = tail[1];
    ret_words->recent_kernel = tail[2];
    ret_words->priority = tail[3];
    return 0;
}

/* Whoever shortens the file between the look and the write gets zeroes at its end. */
static int write_word(int fd, enum hami_region_kind kind, unsigned word, int32_t value)
{
    const struct layout *layout = layout_of(kind);
    struct stat status;
    int error = file_status(fd, &status);
    if (error)
        return error;
    if (status.st_size < (off_t)layout->bytes)
        return -EIO;
    ssize_t wrote =
        file_write_at(fd, &value, sizeof(value), (off_t)(layout->tail + word * sizeof(value)));
    return wrote == (ssize_t)sizeof(value) ? 0 : wrote < 0 ? (int)wrote : -EIO;
}

int hami_region_write_switch(int fd, enum hami_region_kind kind, int32_t before, int32_t value)
{
    return before == value ? 0 : write_word(fd, kind, 1, value);
}

int hami_region_write_recent(int fd, enum hami_region_kind kind, int32_t before, int32_t value)
{
    return before == value ? 0 : write_word(fd, kind, 2, value);
}

/* ---- who uses it ---- */

static bool maps_file(int pid, const struct stat *status)
{
    char path[64], line[512], wanted[64];
    bool found = false;
    if (pid <= 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    snprintf(wanted, sizeof(wanted), " %02x:%02x %llu ", major(status->st_dev),
        minor(status->st_dev), (unsigned long long)status->st_ino);
    FILE *maps = fopen(path, "re");
    while (maps && !found && fgets(line, sizeof(line), maps))
        found = strstr(line, wanted) != NULL;
    if (maps)
        fclose(maps);
    return found;
}

int hami_region_is_used(int fd, enum hami_region_kind kind)
{
    const struct layout *layout = layout_of(kind);
    struct stat status;
    int32_t count, pids[2];
    int error = file_status(fd, &status);
    if (!error && hami_file_user(fd, status.st_size) > 0)
        return 1;
    if (!error)
        error = region_read_exactly(fd, layout->tail, &count, sizeof(count));
    for (int32_t i = 0; !error && i < count && i < (int32_t)VGPU_HAMI_SLOTS; i++) {
        error = region_read_exactly(
            fd, layout->slots + (uint64_t)i * layout->slot_bytes, pids, sizeof(pids));
        if (!error && maps_file(pids[1], &status))
            return 1;
    }
    return error;
}
