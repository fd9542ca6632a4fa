/* SPDX-License-Identifier: Apache-2.0 */
/* Each value of a region against what it may be. */
#include "tool/region.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/text.h"
#include "compute/window.h"
#include "region/region_read.h"
#include "region/slot.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MOST (1ull << 50) /* more than any process of a device can hold */
#define BALANCE_MOST_NS 60000000000ll
#define SLACK_NS 1000000000ull /* the clock goes on while one reads */
#define HAMI "HAMi's words"
#define AT(field) offsetof(struct vgpu_region_map, region.field)

/* ---- the copy ---- */

/* As peers judge it (region/slot.h); a claimer says only its pid. */
static enum slot_life life_of(int fd, const struct vgpu_slot *slot, unsigned index)
{
    unsigned state = slot_word_state(slot->state);
    if (state == VGPU_SLOT_FREE)
        return SLOT_IS_FREE;
    int held = file_lock_held(fd, slot_offset(index));
    if (held > 0)
        return state == VGPU_SLOT_LIVE ? SLOT_LIVES : SLOT_IS_CLAIMED;
    if (state == VGPU_SLOT_LIVE)
        return slot_is_dead(slot, slot->state, held == 0) ? SLOT_IS_DEAD : SLOT_LIVES;
    bool gone = kill(slot_word_pid(slot->state), 0) != 0 && errno == ESRCH;
    return gone ? SLOT_IS_ABANDONED : SLOT_IS_CLAIMED;
}

static int read_copy(int fd, struct region_copy *copy)
{
    int error = file_status(fd, &copy->status);
    if (error)
        return error;
    if (!S_ISREG(copy->status.st_mode))
        return -EPROTO;
    copy->is_short = copy->status.st_size < (off_t)VGPU_REGION_FILE_BYTES;
    if (!copy->is_short) {
        error = region_read_exactly(fd, VGPU_REGION_MAP_OFFSET, &copy->map, sizeof(copy->map));
        copy->is_short = error == -EIO;
    }
    copy->read_ns = clock_now_ns();
    if (copy->is_short) {
        memset(&copy->map, 0, sizeof(copy->map));
        int32_t *magic = &copy->map.hami.magic;
        if (region_read_exactly(fd, 0, magic, sizeof(*magic)) != 0)
            *magic = 0;
        error = region_read_exactly(
            fd, VGPU_REGION_OFFSET, &copy->map.region, offsetof(struct vgpu_region, devices));
        return error == -EIO ? 0 : error;
    }
    copy->is_ours = !error && region_head_is_ours((const struct region_head *)&copy->map.region);
    for (unsigned i = 0; i < VGPU_REGION_SLOTS && copy->is_ours; i++)
        copy->life[i] = life_of(fd, &copy->map.region.slots[i], i);
    return error;
}

struct region_copy *region_copy(int fd, int *ret_error)
{
    struct region_copy *copy = calloc(1, sizeof(*copy));
    int error = copy ? read_copy(fd, copy) : -ENOMEM;
    if (!error)
        return copy;
    free(copy);
    *ret_error = error;
    return NULL;
}

const char *region_life_word(enum slot_life life)
{
    static const char *const words[] = {"free", "claiming", "abandoned", "live", "dead"};
    return words[life];
}

/* ---- findings ---- */

static struct finding *add(struct findings *findings, const char *where, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The one that has no room is counted, and written into one that no reader sees. */
static struct finding *add(struct findings *findings, const char *where, const char *format, ...)
{
    static struct finding lost;
    bool fits = findings->count < FINDINGS_MAX;
    struct finding *finding = fits ? &findings->list[findings->count++] : &lost;
    va_list arguments;
    findings->more += !fits;
    *finding = (struct finding){0};
    snprintf(finding->where, sizeof(finding->where), "%s", where);
    va_start(arguments, format);
    vsnprintf(finding->text, sizeof(finding->text), format, arguments);
    va_end(arguments);
    return finding;
}

static void fix_word(struct finding *finding, size_t offset, uint32_t former, uint32_t value)
{
    finding->fix = FIX_WORD;
    finding->offset = offset;
    finding->former = former;
    finding->value = value;
}

static void fix_wide(struct finding *finding, size_t offset, uint64_t former, uint64_t value)
{
    finding->fix = FIX_WIDE;
    finding->offset = offset;
    finding->former = former;
    finding->value = value;
}

/* A 32-bit word of the map that may be `most` at most. */
static void check_word(struct findings *findings, const struct region_copy *copy, const char *where,
    const char *name, size_t offset, uint32_t most, uint32_t value)
{
    uint32_t word;
    memcpy(&word, (const char *)&copy->map + offset, sizeof(word));
    if (word > most)
        fix_word(add(findings, where, "%s is %u, which is more than %u", name, word, most), offset,
            word, value);
}

/* A time of CLOCK_MONOTONIC that cannot be ahead. */
static void check_time(struct findings *findings, const struct region_copy *copy, const char *where,
    const char *name, size_t offset, uint64_t most_ahead_ns)
{
    uint64_t time;
    memcpy(&time, (const char *)&copy->map + offset, sizeof(time));
    if (time > copy->read_ns + most_ahead_ns + SLACK_NS)
        fix_wide(add(findings, where, "%s is %" PRIu64 " ns, a time to come", name, time), offset,
            time, 0);
}

static void check_head(struct findings *findings, const struct region_copy *copy)
{
    const struct vgpu_region *region = &copy->map.region;
    struct finding *finding;
    if (region->device_count > VGPU_REGION_DEVICES)
        add(findings, "head", "device_count is %u, which is more than %u", region->device_count,
            VGPU_REGION_DEVICES)
            ->fix = FIX_DEVICES;
    if (region->slot_high > VGPU_REGION_SLOTS)
        add(findings, "head", "slot_high is %u, which is more than %u", region->slot_high,
            VGPU_REGION_SLOTS)
            ->fix = FIX_HIGH;
    check_word(findings, copy, "head", "default_core_limit", AT(default_core_limit), 100, 0);
    check_word(
        findings, copy, "head", "default_core_soft_limit", AT(default_core_soft_limit), 100, 0);
    check_word(
        findings, copy, "head", "defaults_set", AT(defaults_set), 7, region->defaults_set & 7);
    check_word(findings, copy, "head", "paused", AT(paused), 1, 1);
    check_word(findings, copy, "head", "priority_set", AT(priority_set), VGPU_PRIORITY_LIVE,
        VGPU_PRIORITY_UNSET);
    check_time(findings, copy, "head", "window_closed_ns", AT(window_closed_ns), 0);
    check_time(
        findings, copy, "head", "window_until_ns", AT(window_until_ns), WINDOW_CLOSED_MAX_NS);
    check_time(findings, copy, "head", "coupled_ns", AT(coupled_ns), 0);
    check_time(findings, copy, "head", "ready_asked_ns", AT(ready_asked_ns), 0);
    if (copy->status.st_nlink == 0) {
        finding = add(findings, "file", "it was deleted");
        finding->advice = "its programs make it anew when they next use the GPU";
    }
}

static void check_uuid(
    struct findings *findings, const struct region_copy *copy, unsigned number, const char *where)
{
    const struct vgpu_device *device = &copy->map.region.devices[number];
    static const char advice[] =
        "'vgpu set' cannot name it; it goes when the container starts anew";
    char clean[4 * sizeof(device->uuid)];
    size_t length = strnlen(device->uuid, sizeof(device->uuid));
    text_escape(clean, sizeof(clean), device->uuid, length);
    if (length == sizeof(device->uuid))
        add(findings, where, "uuid has no end")->advice = advice;
    else if (strlen(clean) != length ||
             (strncmp(device->uuid, "GPU-", 4) != 0 && strncmp(device->uuid, "MIG-", 4) != 0))
        add(findings, where, "uuid \"%.100s\" is none", clean)->advice = advice;
    for (unsigned d = 0; d < number && length; d++) {
        if (!strncmp(copy->map.region.devices[d].uuid, device->uuid, sizeof(device->uuid)))
            add(findings, where, "uuid is that of device %u, too", d)->advice = advice;
    }
}

static void check_compute(
    struct findings *findings, const struct region_copy *copy, unsigned number, const char *where)
{
    const struct vgpu_compute *compute = &copy->map.region.compute[number];
    int64_t balance = (int64_t)(compute->granted_ns - compute->charged_ns);
    if (balance > BALANCE_MOST_NS || balance < -BALANCE_MOST_NS)
        fix_wide(
            add(findings, where, "granted_ns %" PRIu64 " and charged_ns %" PRIu64 " are far apart",
                compute->granted_ns, compute->charged_ns),
            AT(compute) + number * sizeof(*compute) + offsetof(struct vgpu_compute, charged_ns),
            compute->charged_ns, compute->granted_ns);
    check_time(findings, copy, where, "refilled_ns",
        AT(compute) + number * sizeof(*compute) + offsetof(struct vgpu_compute, refilled_ns), 0);
    for (unsigned i = 0; i < VGPU_HISTORY_MARKS; i++)
        check_time(findings, copy, where, "a mark of its history",
            AT(history) + number * sizeof(struct vgpu_history) +
                offsetof(struct vgpu_history, marks[0]) +
                i * sizeof(((struct vgpu_history *)0)->marks[0]),
            0);
}

static void check_devices(struct findings *findings, const struct region_copy *copy)
{
    unsigned count = copy->map.region.device_count;
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        char where[32];
        size_t at = AT(devices) + d * sizeof(struct vgpu_device);
        const struct vgpu_device *device = &copy->map.region.devices[d];
        snprintf(where, sizeof(where), "device %u", d);
        if (d < count && count <= VGPU_REGION_DEVICES)
            check_uuid(findings, copy, d, where);
        if (d >= count && device->uuid[0])
            add(findings, where, "it has an entry, but device_count is %u", count)->advice =
                "none is needed: no program reads it";
        if (d >= count)
            continue;
        check_word(findings, copy, where, "core_limit",
            at + offsetof(struct vgpu_device, core_limit), 100, 0);
        check_word(findings, copy, where, "core_soft_limit",
            at + offsetof(struct vgpu_device, core_soft_limit), 100, 0);
        if (device->orphaned > BYTES_MOST)
            fix_wide(add(findings, where, "orphaned is %" PRIu64 " bytes", device->orphaned),
                at + offsetof(struct vgpu_device, orphaned), device->orphaned, 0);
        check_compute(findings, copy, d, where);
    }
}

static void check_usage(struct findings *findings, const struct region_copy *copy, unsigned number,
    unsigned device, const char *slot)
{
    static const char advice[] = "only the process itself can mend it: it goes with the process";
    const struct vgpu_usage *usage = &copy->map.region.slots[number].usage[device];
    char where[48];
    snprintf(where, sizeof(where), "%.24s, device %u", slot, device);
    const struct {
        const char *name;
        uint64_t bytes;
    } words[] = {{"bytes", usage->bytes}, {"pending", usage->pending},
        {"lingering", usage->lingering}, {"imported", usage->imported}, {"context", usage->context},
        {"module", usage->module}, {"buffer", usage->buffer}, {"managed", usage->managed},
        {"unexplained", usage->unexplained}, {"exported", usage->exported},
        {"spilled", usage->spilled}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (words[i].bytes > BYTES_MOST)
            add(findings, where, "%s is %" PRIu64 " bytes", words[i].name, words[i].bytes)->advice =
                advice;
    }
    if (device >= copy->map.region.device_count && usage->bytes)
        add(findings, where, "%" PRIu64 " bytes of a device that no process has met", usage->bytes)
            ->advice = advice;
    if (usage->gate > VGPU_GATE_CHANNEL)
        add(findings, where, "gate is %" PRIu64, usage->gate)->advice = advice;
    if (usage->asked_ns > copy->read_ns + SLACK_NS)
        add(findings, where, "asked_ns is %" PRIu64 " ns, a time to come", usage->asked_ns)
            ->advice = advice;
}

static void check_live(
    struct findings *findings, const struct region_copy *copy, unsigned number, const char *where)
{
    const struct vgpu_region *region = &copy->map.region;
    if (number >= region->slot_high)
        add(findings, where, "it lives, but slot_high is %u", region->slot_high)->fix = FIX_HIGH;
    if (region->slots[number].ledger > 2)
        add(findings, where, "ledger is %" PRIu64, region->slots[number].ledger)->advice =
            "only the process itself can mend it: it goes with the process";
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++)
        check_usage(findings, copy, number, d, where);
}

static void check_slots(struct findings *findings, const struct region_copy *copy)
{
    for (unsigned i = 0; i < VGPU_REGION_SLOTS; i++) {
        const struct vgpu_slot *slot = &copy->map.region.slots[i];
        char where[32];
        struct finding *finding = NULL;
        snprintf(where, sizeof(where), "slot %u", i);
        int pid = slot_word_pid(slot->state);
        if (slot_word_state(slot->state) > VGPU_SLOT_LIVE)
            finding = add(findings, where, "its state is none: %#" PRIx64, slot->state);
        else if (copy->life[i] == SLOT_IS_DEAD)
            finding =
                add(findings, where, "its process %d is dead, as one that ends leaves it", pid);
        else if (copy->life[i] == SLOT_IS_ABANDONED)
            finding = add(findings, where, "process %d, which claimed it, is gone", pid);
        else if (copy->life[i] == SLOT_LIVES)
            check_live(findings, copy, i, where);
        if (!finding)
            continue;
        finding->fix = FIX_SLOT;
        finding->usual =
            slot_word_state(slot->state) == VGPU_SLOT_LIVE && copy->life[i] == SLOT_IS_DEAD;
        finding->index = i;
        finding->former = slot->state;
    }
}

/* How many devices of ours HAMi's monitors ought to see. */
static unsigned shown_devices(const struct vgpu_region *region)
{
    unsigned count = 0;
    while (count < VGPU_HAMI_DEVICES && region->devices[count].uuid[0])
        count++;
    bool fewer = region->device_count < count;
    return fewer ? region->device_count : count;
}

/* What the next program writes anew; those that run write it no more. A device of which a program
 * writes just now may look as if it were not there. */
static void check_hami_devices(struct findings *findings, const struct region_copy *copy)
{
    const struct vgpu_hami *hami = &copy->map.hami;
    unsigned count = shown_devices(&copy->map.region);
    if (hami->device_count != count)
        fix_wide(
            add(findings, HAMI, "device_count is %" PRIu64 ", not %u", hami->device_count, count),
            offsetof(struct vgpu_region_map, hami.device_count), hami->device_count, count);
    for (unsigned d = 0; d < count; d++) {
        char wanted[sizeof(hami->uuid[d])] = "", clean[4 * sizeof(hami->uuid[d])];
        const char *ours = copy->map.region.devices[d].uuid;
        struct finding *finding;
        memcpy(wanted, ours, sizeof(copy->map.region.devices[d].uuid) - 1);
        if (!strncmp(hami->uuid[d], wanted, sizeof(wanted)))
            continue;
        text_escape(clean, sizeof(clean), hami->uuid[d], strnlen(hami->uuid[d], sizeof(wanted)));
        finding = add(findings, HAMI, "uuid of device %u is \"%.100s\", not ours", d, clean);
        finding->fix = FIX_UUID;
        finding->index = d;
    }
}

/* The magic number is mended last, as projection_begin writes it. */
static void check_hami(struct findings *findings, const struct region_copy *copy)
{
    const struct vgpu_hami *hami = &copy->map.hami;
    const struct {
        const char *name;
        uint32_t value, wanted;
        size_t offset;
    } words[] = {
        {"major", hami->major, VGPU_HAMI_MAJOR, offsetof(struct vgpu_region_map, hami.major)},
        {"minor", hami->minor, VGPU_HAMI_MINOR, offsetof(struct vgpu_region_map, hami.minor)},
        {"magic", (uint32_t)hami->magic, VGPU_HAMI_MAGIC,
            offsetof(struct vgpu_region_map, hami.magic)}};
    check_hami_devices(findings, copy);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (words[i].value != words[i].wanted)
            fix_word(add(findings, HAMI, "%s is %" PRIu32 ", not %" PRIu32, words[i].name,
                         words[i].value, words[i].wanted),
                words[i].offset, words[i].value, words[i].wanted);
    }
    int32_t on = hami->utilization_switch;
    if (on != 0 && on != 1)
        fix_word(add(findings, HAMI, "utilization_switch is %d", on),
            offsetof(struct vgpu_region_map, hami.utilization_switch), (uint32_t)on, 1);
}

static void check_identity(struct findings *findings, const struct region_copy *copy)
{
    const struct vgpu_identity *identity = &copy->map.region.identity;
    if (identity->state > 2)
        fix_wide(add(findings, "identity", "its state is %" PRIu64, identity->state),
            AT(identity.state), identity->state, 0);
    const struct {
        const char *name, *text;
        size_t bytes;
    } texts[] = {{"pod_name", identity->pod_name, sizeof(identity->pod_name)},
        {"pod_namespace", identity->pod_namespace, sizeof(identity->pod_namespace)},
        {"pod_uid", identity->pod_uid, sizeof(identity->pod_uid)},
        {"container_name", identity->container_name, sizeof(identity->container_name)}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (identity->state == 2 && !memchr(texts[i].text, '\0', texts[i].bytes))
            fix_wide(add(findings, "identity", "%s has no end", texts[i].name), AT(identity.state),
                2, 0);
    }
}

static void check_foreign(struct findings *findings, const struct region_copy *copy)
{
    const struct vgpu_region *region = &copy->map.region;
    const struct vgpu_hami *hami = &copy->map.hami;
    struct finding *finding;
    if (region->magic != VGPU_REGION_MAGIC && hami->magic == VGPU_HAMI_MAGIC &&
        copy->status.st_size == sizeof(*hami)) {
        finding = add(findings, "file", "it is a region of HAMi-core's");
        finding->advice = "the next program under libvgpu.so makes it ours";
        return;
    }
    if (region->magic != VGPU_REGION_MAGIC)
        finding = add(findings, "file",
            copy->is_short ? "it is no region, or was cut off" : "it is no region");
    else if (region->version != VGPU_REGION_VERSION)
        finding =
            add(findings, "head", "version is %u, not %u", region->version, VGPU_REGION_VERSION);
    else if (copy->is_short)
        finding = add(
            findings, "file", "it was shortened to %lld bytes", (long long)copy->status.st_size);
    else
        finding = add(findings, "head",
            "byte_order %#x, size %" PRIu64 ", %u devices, %u slots are not this version's",
            region->byte_order, region->size, region->device_entries, region->slot_entries);
    finding->advice = copy->is_short && region->magic == VGPU_REGION_MAGIC
                          ? "its programs mend it at their next call; with none left, delete it"
                          : "if it ought to be a region, delete it: the next program makes it anew";
}

void region_check(const struct region_copy *copy, struct findings *ret_findings)
{
    ret_findings->count = ret_findings->more = 0;
    if (!copy->is_ours) {
        check_foreign(ret_findings, copy);
        return;
    }
    check_head(ret_findings, copy);
    check_devices(ret_findings, copy);
    check_slots(ret_findings, copy);
    check_identity(ret_findings, copy);
    check_hami(ret_findings, copy);
}

size_t region_faults(const struct findings *findings, bool repaired)
{
    size_t faults = findings->more;
    for (size_t i = 0; i < findings->count; i++) {
        const struct finding *finding = &findings->list[i];
        faults += repaired ? finding->outcome != NULL : !finding->usual;
    }
    return faults;
}
