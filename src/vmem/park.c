/* SPDX-License-Identifier: Apache-2.0 */
#include "vmem/park.h"

#include "account/account.h"
#include "base/atomic.h"
#include "base/log.h"
#include "driver/cuda.h"
#include "memory/memory.h"
#include "pace/capture.h"
#include "rm/rm_away.h"
#include "vmem/descriptor.h"
#include "vmem/host_pool.h"
#include "vmem/range_access.h"
#include "vmem/undo.h"
#include "vmem/vmem_parts.h"

#include <stdint.h>

static uint64_t parked_bytes;
static const char *forbidden;

void park_reset(void)
{
    descriptor_reset();
    parked_bytes = 0;
    forbidden = NULL;
}

void park_forbid(const char *why)
{
    store_release(&forbidden, why);
}

bool park_holds(void)
{
    return parked_bytes != 0;
}

/* ---- parts ---- */

/* One that was parked before has its descriptor still: the driver exports no imported memory. */
static bool export_part(struct range_part *part, const struct descriptor_room *room)
{
    int fd;
    if (!part->spilled || part->descriptor)
        return true;
    if (cuda.cuMemExportToShareableHandle(
            &fd, part->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
        return false;
    part->descriptor = descriptor_keep(fd, room);
    return part->descriptor != 0;
}

static bool let_go(struct range_part *part, CUdeviceptr address)
{
    if (!part->spilled)
        return true;
    if (undo_map(address, part->bytes) != CUDA_SUCCESS)
        return false;
    part->parked = true;
    parked_bytes += part->bytes;
    (void)memory_take(MEMORY_VMM, part->handle); /* its bytes stay charged */
    return undo_create(part->handle) == CUDA_SUCCESS;
}

static void take_handle(int device, struct range_part *part, CUmemGenericAllocationHandle handle)
{
    memory_put_charged(MEMORY_VMM, handle, device, part->bytes, ACCOUNT_SPILLED);
    part->handle = handle;
    part->parked = false;
    parked_bytes -= part->bytes;
}

static CUresult map_again(
    int device, struct range_part *part, CUdeviceptr address, const struct range_access *access)
{
    CUmemGenericAllocationHandle handle;
    uint64_t mapped = 0;
    CUresult result = cuda.cuMemImportFromShareableHandle(
        &handle, (void *)(intptr_t)part->descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda.cuMemMap(address, part->bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS) {
        mapped = part->bytes;
        result = range_access_let(access, address, part->bytes);
    }
    if (result == CUDA_SUCCESS) {
        take_handle(device, part, handle);
    } else {
        (void)undo_map(address, mapped);
        (void)undo_create(handle);
    }
    return result;
}

/* ---- ranges ---- */

/* What others hold as well is not parked: the account has noted to whom it was exported. */
static bool export_range(struct range *range, const struct descriptor_room *room)
{
    bool exported = !load_relaxed(&range->exported) || !range->spilled_bytes;
    for (unsigned i = 0; i < range->part_count && exported; i++)
        exported = export_part(&range->parts[i], room);
    return exported;
}

static bool let_go_range(struct range *range)
{
    CUdeviceptr address = range->address;
    bool gone = true;
    for (unsigned i = 0; i < range->part_count && gone; i++) {
        gone = let_go(&range->parts[i], address);
        address += range->parts[i].bytes;
    }
    return gone;
}

static bool take_back_range(struct range *range)
{
    struct range_access access = range_access_of(range);
    CUdeviceptr address = range->address;
    bool back = true;
    for (unsigned i = 0; i < range->part_count; i++) {
        struct range_part *part = &range->parts[i];
        /* Once more where it fails, as all that undoes. */
        if (part->parked && map_again(range->device, part, address, &access) != CUDA_SUCCESS)
            back &= map_again(range->device, part, address, &access) == CUDA_SUCCESS;
        address += part->bytes;
    }
    return back;
}

/* ---- all of them ---- */

static bool export_all(void)
{
    struct descriptor_room room;
    struct range *range;
    CUdeviceptr cursor = 0;
    bool exported = true;
    descriptor_make_room(&room);
    while (exported && (range = vmem_use_next(&cursor))) {
        exported = export_range(range, &room);
        (void)vmem_leave(range);
    }
    descriptor_end_room(&room);
    return exported;
}

static bool let_go_all(void)
{
    struct range *range;
    CUdeviceptr cursor = 0;
    bool gone = true;
    while (gone && (range = vmem_use_next(&cursor))) {
        gone = let_go_range(range);
        (void)vmem_leave(range);
    }
    return gone;
}

static uint64_t own_spilled_bytes(void)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < VGPU_REGION_DEVICES; i++)
        bytes += account_own_bytes(i, ACCOUNT_SPILLED);
    return bytes;
}

static bool park_all(void)
{
    const char *why = load_acquire(&forbidden);
    if (why) {
        log_warning("not parked: %s, which the driver does not restore", why);
        return false;
    }
    (void)host_pool_empty();
    if (!export_all()) {
        log_warning("not parked: host memory cannot be exported as descriptors: the driver or the "
                    "hard limit of open files refuses");
        return false;
    }
    bool gone = let_go_all();
    uint64_t spilled = own_spilled_bytes();
    if (gone && parked_bytes == spilled)
        return true;
    log_warning("not parked: %llu of %llu KiB of host memory are out of use",
        (unsigned long long)(parked_bytes >> 10), (unsigned long long)(spilled >> 10));
    return false;
}

bool park_out(void)
{
    struct capture_relaxed former = capture_relax();
    bool parked = park_all();
    capture_restore(&former);
    if (parked)
        rm_away_begin();
    else if (!park_in())
        log_error("the driver does not map all of its host memory again");
    return parked;
}

bool park_in(void)
{
    struct capture_relaxed former = capture_relax();
    struct range *range;
    CUdeviceptr cursor = 0;
    bool back = true;
    while ((range = vmem_use_next(&cursor))) {
        back &= take_back_range(range);
        (void)vmem_leave(range);
    }
    if (back) /* what the driver needs for its mappings, no limit refuses */
        rm_away_end();
    capture_restore(&former);
    return back;
}
