/* SPDX-License-Identifier: Apache-2.0 */
/* A region whose bytes are anybody's: attach, account, and read it, while it changes. */
#include "account/account.h"

#include "base/guard.h"
#include "region/slot.h"

#include "fuzz.h"
#include "scratch.h"

#include <fcntl.h>
#include <sys/mman.h>

#define UUID "GPU-00000000-0000-0000-0000-000000000001"
#define HAMI_BYTES 2008952
#define PROCESS_OTHER 1 /* a process that lives on */

static char path[128], limit_text[24];
static bool has_limit;

static char *lookup(const char *name)
{
    if (!strcmp(name, "CUDA_DEVICE_MEMORY_SHARED_CACHE"))
        return path;
    return has_limit && !strcmp(name, "CUDA_DEVICE_MEMORY_LIMIT") ? limit_text : NULL;
}

static void write_at(int fd, size_t offset, const void *bytes, size_t size)
{
    (void)!pwrite(fd, bytes, size, (off_t)(VGPU_REGION_OFFSET + offset));
}

/* A slot as a hostile peer fills it: who it says it is, and what it says it holds. */
static void patch_slot(int fd, struct fuzz_input *input)
{
    size_t slot = offsetof(struct vgpu_region, slots) +
                  fuzz_number(input, 2) % VGPU_REGION_SLOTS * sizeof(struct vgpu_slot);
    unsigned what = fuzz_byte(input);
    uint64_t pid = what & 4    ? (uint64_t)getpid()
                   : what & 8  ? PROCESS_OTHER
                   : what & 16 ? fuzz_number(input, 4)
                               : 0;
    uint64_t word = (uint64_t)(what >> 5) << 32 | (uint32_t)(pid << 2) | (what & 3);
    write_at(fd, slot, &word, sizeof(word));
    uint64_t usage[4] = {fuzz_size(input), fuzz_size(input), fuzz_size(input), fuzz_size(input)};
    write_at(fd, slot + offsetof(struct vgpu_slot, usage), usage, sizeof(usage));
}

static void patch(int fd, struct fuzz_input *input)
{
    static const uint64_t boundaries[] = {0, 1, 63, 64, 65, 1023, 1024, 1025, INT32_MAX, UINT32_MAX,
        INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    unsigned kind = fuzz_byte(input);
    if (kind % 4 == 0) {
        patch_slot(fd, input);
        return;
    }
    size_t offset = kind % 4 == 1 ? fuzz_byte(input)
                    : kind % 4 == 2
                        ? offsetof(struct vgpu_region, devices) + fuzz_number(input, 2) % 8192
                        : fuzz_number(input, 4) % sizeof(struct vgpu_region);
    unsigned choice = fuzz_byte(input);
    uint64_t value = choice < sizeof(boundaries) / sizeof(boundaries[0]) ? boundaries[choice]
                                                                         : fuzz_number(input, 8);
    size_t left = sizeof(struct vgpu_region) - offset, size = kind & 4 ? 4 : 8;
    write_at(fd, offset, &value, size < left ? size : left);
}

static int make_file(struct fuzz_input *input)
{
    static const off_t sizes[] = {
        0, HAMI_BYTES, (off_t)VGPU_REGION_FILE_BYTES, (off_t)VGPU_REGION_FILE_BYTES - 1};
    static const struct vgpu_region head = {.magic = VGPU_REGION_MAGIC,
        .version = VGPU_REGION_VERSION,
        .byte_order = VGPU_REGION_BYTE_ORDER,
        .size = sizeof(head),
        .device_entries = VGPU_REGION_DEVICES,
        .slot_entries = VGPU_REGION_SLOTS};
    unsigned form = fuzz_byte(input);
    static const char *first;
    if (!first)
        first = scratch_path("region");
    snprintf(path, sizeof(path), "%.100s.XXXXXX", first);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        abort();
    off_t size = form & 1 ? (off_t)VGPU_REGION_FILE_BYTES : sizes[form >> 1 & 3];
    if (ftruncate(fd, size) != 0)
        abort();
    if (form & 1)
        write_at(fd, 0, &head, offsetof(struct vgpu_region, devices));
    for (unsigned i = form >> 4; i && size == (off_t)VGPU_REGION_FILE_BYTES; i--)
        patch(fd, input);
    has_limit = form & 8;
    if (has_limit)
        snprintf(limit_text, sizeof(limit_text), "%llu",
            (unsigned long long)(fuzz_size(input) & INT64_MAX));
    return fd;
}

static void look(unsigned device)
{
    static struct account_process processes[ACCOUNT_PROCESSES_MAX];
    struct account_view view;
    account_view(device, &view);
    FUZZ_CHECK(account_processes(device, processes) <= ACCOUNT_PROCESSES_MAX);
}

static bool any_live(struct region *region)
{
    guard_enter();
    bool live = slot_any_live(region);
    FUZZ_CHECK(mapping_slot_bound(region) <= VGPU_REGION_SLOTS);
    guard_leave();
    return live;
}

static void step(struct region *region, struct fuzz_input *input, int fd)
{
    unsigned op = fuzz_byte(input), device = fuzz_byte(input) % region->device_count;
    enum account_kind kind = op >> 4 & 3;
    char uuid[80];
    switch (op & 15) {
    case 0:
        if (account_reserve(device, fuzz_size(input), kind) == 0 && op & 128)
            account_commit(device, fuzz_size(input));
        break;
    case 1:
        account_release(device, fuzz_size(input), kind);
        break;
    case 2:
        account_add(device, fuzz_size(input) & INT64_MAX >> 8, kind);
        break;
    case 3:
        (void)!account_check(device, fuzz_size(input));
        break;
    case 4:
        account_set_imported(device, fuzz_size(input));
        break;
    case 5:
        account_add_lingering(device, fuzz_size(input));
        break;
    case 6:
        account_add_exported(device, (int64_t)fuzz_size(input));
        break;
    case 7:
        account_set_ledger(op);
        break;
    case 8:
        snprintf(uuid, sizeof(uuid), "GPU-%0*u", (int)(op >> 4) * 4, device);
        (void)!account_device(uuid, (int)(op >> 5) - 2);
        break;
    case 9:
        (void)any_live(region);
        break;
    case 11:
        if (ftruncate(fd, (off_t)(op & 128 ? fuzz_number(input, 4) % VGPU_REGION_FILE_BYTES : 0)) !=
            0)
            abort();
        break;
    case 12:
        (void)!unlink(path);
        break;
    case 10:
        look(device);
        break;
    default:
        patch(fd, input);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct config config;
    static struct region region, other;
    struct fuzz_input input = {data, size};
    int fd = make_file(&input);
    config_read(&config, lookup);
    if (region_attach(&region, &config) == 0) {
        account_start(&region, 0);
        int device = account_device(UUID, 0);
        FUZZ_CHECK(device < (int)VGPU_REGION_DEVICES);
        for (int steps = 0; region.device_count && input.left && steps < 64; steps++)
            step(&region, &input, fd);
        if (region_open(&other, path) == 0)
            (void)any_live(&other);
        region_detach(&other);
        account_start(NULL, 0);
    }
    region_detach(&region);
    close(fd);
    unlink(path);
    return 0;
}
