/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a region by pread. */
#include "region/region_read.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "region/slot.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define READ_TRIES 8 /* of a slot that changes hands meanwhile */

_Static_assert(
    offsetof(struct region_compute_words, waited_ns) == offsetof(struct vgpu_compute, waited_ns),
    "as laid out");

#define SAME(field)                                                                                \
    _Static_assert(                                                                                \
        offsetof(struct region_head, field) == offsetof(struct vgpu_region, field), "as laid out")
SAME(device_count);
SAME(paused);
SAME(window_until_ns);
SAME(default_core_soft_limit);
SAME(coupled_ns);
SAME(ready_asked_ns);
_Static_assert(sizeof(struct region_head) == offsetof(struct vgpu_region, devices), "as laid out");
_Static_assert(sizeof(struct region_hami_words) ==
                   offsetof(struct vgpu_hami, late_lock) - offsetof(struct vgpu_hami, proc_num),
    "as laid out");

int region_read_exactly(int fd, uint64_t offset, void *target, size_t bytes)
{
    for (char *to = target; bytes;) {
        ssize_t got = pread(fd, to, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        to += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return 0;
}

static int read_part(int fd, size_t offset, void *target, size_t bytes)
{
    return region_read_exactly(fd, VGPU_REGION_OFFSET + offset, target, bytes);
}

bool region_head_is_ours(const struct region_head *head)
{
    return head->magic == VGPU_REGION_MAGIC && head->version == VGPU_REGION_VERSION &&
           head->byte_order == VGPU_REGION_BYTE_ORDER && head->size == sizeof(struct vgpu_region) &&
           head->device_entries == VGPU_REGION_DEVICES && head->slot_entries == VGPU_REGION_SLOTS;
}

static unsigned at_most(uint32_t count, unsigned bound)
{
    return count < bound ? count : bound;
}

static int read_devices(struct region_reading *reading)
{
    int error = read_part(reading->fd, offsetof(struct vgpu_region, devices), reading->devices,
        reading->device_count * sizeof(reading->devices[0]));
    for (unsigned d = 0; d < reading->device_count && !error; d++) {
        reading->devices[d].uuid[sizeof(reading->devices[d].uuid) - 1] = '\0';
        error = read_part(reading->fd,
            offsetof(struct vgpu_region, compute) + d * sizeof(struct vgpu_compute),
            &reading->compute[d], sizeof(reading->compute[d]));
    }
    return error;
}

int region_read(int fd, struct region_reading *ret_reading)
{
    *ret_reading = (struct region_reading){.fd = fd};
    int error = file_status(fd, &ret_reading->status);
    if (error)
        return error;
    if (!S_ISREG(ret_reading->status.st_mode) ||
        ret_reading->status.st_size < (off_t)VGPU_REGION_FILE_BYTES)
        return -EPROTO;
    error = read_part(fd, 0, &ret_reading->head, sizeof(ret_reading->head));
    if (error)
        return error;
    if (!region_head_is_ours(&ret_reading->head))
        return -EPROTO;
    ret_reading->device_count = at_most(ret_reading->head.device_count, VGPU_REGION_DEVICES);
    ret_reading->slot_bound = at_most(ret_reading->head.slot_high, VGPU_REGION_SLOTS);
    error = region_read_exactly(
        fd, offsetof(struct vgpu_hami, proc_num), &ret_reading->hami, sizeof(ret_reading->hami));
    ret_reading->read_ns = clock_now_ns();
    return error ? error : read_devices(ret_reading);
}

/* The word before and after are one: then what lies between is one process's, and the lock was
 * asked for while it had the slot. */
static int read_slot_once(
    const struct region_reading *reading, unsigned index, struct vgpu_slot *slot, int *ret_held)
{
    size_t offset = offsetof(struct vgpu_region, slots) + index * sizeof(*slot);
    size_t bytes = offsetof(struct vgpu_slot, usage) +
                   (reading->device_count ? reading->device_count : 1) * sizeof(slot->usage[0]);
    uint64_t word;
    int error = read_part(reading->fd, offset, slot, bytes);
    if (error || slot_word_state(slot->state) != VGPU_SLOT_LIVE)
        return error;
    *ret_held = file_lock_held(reading->fd, slot_offset(index));
    error = read_part(reading->fd, offset, &word, sizeof(word));
    if (error)
        return error;
    return word == slot->state ? 1 : -EAGAIN;
}

int region_read_slot(const struct region_reading *reading, unsigned index,
    struct vgpu_slot *ret_slot, bool *ret_locked)
{
    int held = 0, live = -EAGAIN;
    for (int i = 0; i < READ_TRIES && live == -EAGAIN; i++)
        live = read_slot_once(reading, index, ret_slot, &held);
    if (live != 1)
        return live == -EAGAIN ? 0 : live;
    *ret_locked = held > 0;
    return held > 0 || !slot_is_dead(ret_slot, ret_slot->state, held == 0);
}

int region_read_history(
    const struct region_reading *reading, unsigned device, struct vgpu_history *ret_history)
{
    return read_part(reading->fd,
        offsetof(struct vgpu_region, history) + device * sizeof(*ret_history), ret_history,
        sizeof(*ret_history));
}

/* Two looks that are the same have seen no half of a new one. */
int region_read_identity(const struct region_reading *reading, struct region_identity *ret_identity)
{
    const size_t offset = offsetof(struct vgpu_region, identity);
    struct vgpu_identity looks[2];
    int error = read_part(reading->fd, offset, &looks[0], sizeof(looks[0]));
    for (int i = 1; i < READ_TRIES && !error; i++) {
        error = read_part(reading->fd, offset, &looks[i % 2], sizeof(looks[0]));
        if (!error && memcmp(&looks[0], &looks[1], sizeof(looks[0])) == 0)
            break;
    }
    if (!error && !region_identity_read(&looks[0], ret_identity))
        memset(ret_identity, 0, sizeof(*ret_identity));
    return error;
}
