/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemCreate, cuMemMap and their kin (facts of the driver: docs/memory.md). */
#include "vmem/range.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/saturating.h"
#include "driver/cuda.h"
#include "memory/memory.h"
#include "memory/pools.h"
#include "pace/capture.h"
#include "rm/rm_memory.h"
#include "vmem/address.h"
#include "vmem/descriptor.h"
#include "vmem/host_memory.h"
#include "vmem/host_pool.h"
#include "vmem/undo.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define PAGE_BYTES ((uint64_t)BLOCK_BYTES)
#define LOG_EVERY_NS 1000000000ull
#define ORDINALS_MAX 64
/* At once, of a full card, for page tables: those of 1 TiB in pages of 2 MiB take 4 MiB. */
#define YIELDED_MAX (8 * PAGE_BYTES)
#define MIB_OF(bytes) ((unsigned long long)((bytes) >> 20))

/* ---- what the driver can ---- */

struct support {
    bool asked, spills, exports, rdma;
    int numa_node;
};
static struct support supports[ORDINALS_MAX];

static int ask(CUdevice_attribute attribute, CUdevice ordinal)
{
    int value = 0;
    return cuda.cuDeviceGetAttribute(&value, attribute, ordinal) == CUDA_SUCCESS ? value : 0;
}

static bool can_map(CUmemGenericAllocationHandle handle, CUdevice ordinal)
{
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = ordinal;
    if (cuda.cuMemAddressReserve(&address, PAGE_BYTES, 0, 0, 0) != CUDA_SUCCESS)
        return false;
    bool can = cuda.cuMemMap(address, PAGE_BYTES, 0, handle, 0) == CUDA_SUCCESS;
    if (can) {
        can = cuda.cuMemSetAccess(address, PAGE_BYTES, &access, 1) == CUDA_SUCCESS;
        (void)cuda.cuMemUnmap(address, PAGE_BYTES);
    }
    (void)cuda.cuMemAddressFree(address, PAGE_BYTES);
    return can;
}

/* A container's filter of system calls, or a node without memory, refuses what the attributes
 * promise: one page is made, mapped and given back. */
static bool can_spill(CUdevice ordinal, int numa_node, CUmemAllocationHandleType exported_as)
{
    CUmemAllocationProp property = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = exported_as};
    CUmemGenericAllocationHandle handle;
    property.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    property.location.id = numa_node;
    struct capture_relaxed former = capture_relax();
    bool can = cuda.cuMemCreate(&handle, PAGE_BYTES, &property, 0) == CUDA_SUCCESS;
    if (can) {
        can = can_map(handle, ordinal);
        (void)cuda.cuMemRelease(handle);
    }
    capture_restore(&former);
    return can;
}

/* Two threads that ask at once write the same. */
static const struct support *support_of(CUdevice ordinal)
{
    struct support *support = &supports[ordinal];
    if (load_acquire(&support->asked))
        return support;
    int node = ask(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, ordinal);
    support->numa_node = node > 0 ? node : 0; /* below 0: the machine has no NUMA */
    support->rdma = ask(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, ordinal) != 0;
    bool may_spill =
        ask(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal) &&
        ask(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal);
    support->exports =
        may_spill &&
        ask(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, ordinal) &&
        can_spill(ordinal, support->numa_node, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    support->spills = support->exports || (may_spill && can_spill(ordinal, support->numa_node, 0));
    store_release(&support->asked, true);
    return support;
}

bool range_is_supported(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < ORDINALS_MAX && support_of(ordinal)->spills;
}

/* cuMemAlloc's memory can be registered for RDMA, so a mapping's should. */
CUmemAllocationProp range_property(CUdevice ordinal, bool spilled)
{
    const struct support *support = support_of(ordinal);
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    property.location.type = spilled ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
    property.location.id = spilled ? support->numa_node : ordinal;
    property.allocFlags.gpuDirectRDMACapable = !spilled && support->rdma;
    if (spilled && support->exports) /* so that it can be parked (vmem/park.h) */
        property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return property;
}

/* ---- parts ---- */

/* True at most once a second. */
static bool may_log(void)
{
    static uint64_t logged_ns;
    uint64_t now = clock_now_ns(), last = load_relaxed(&logged_ns);
    return (!last || now - last >= LOG_EVERY_NS) && swap_seq_cst(&logged_ns, last, now);
}

static void say_refused(const struct range *range, uint64_t bytes, const char *bound, uint64_t left)
{
    if (may_log())
        log_error("Device %d OOM: %llu MiB cannot be backed by host memory: %s leaves %llu MiB",
            range->device, MIB_OF(bytes), bound, MIB_OF(left));
}

static void say_pool_is_used_up(const struct range *range, uint64_t bytes)
{
    struct account_host host = account_host();
    uint64_t used = saturating_sum(host.spilled_bytes, host.ready_bytes);
    say_refused(
        range, bytes, "VGPU_HOST_POOL", host.budget_bytes > used ? host.budget_bytes - used : 0);
}

/* The bytes are charged already, so that of two that look at once each sees the other's. */
static struct host_memory look_at_host(uint64_t bytes)
{
    struct account_host host = account_host();
    uint64_t spilled = host.spilled_bytes > bytes ? host.spilled_bytes - bytes : 0;
    return host_memory_look(saturating_sum(spilled, host.ready_bytes));
}

/* As memory_begin; -EDQUOT where the host has no room. `last`: the log says so. */
static int try_begin_spilled(
    struct memory_request *request, const struct range *range, uint64_t bytes, bool last)
{
    int error = memory_begin(request, range->device, bytes, ACCOUNT_SPILLED);
    if (error) {
        if (last && error == -EDQUOT)
            say_pool_is_used_up(range, bytes);
        return error;
    }
    struct host_memory host = look_at_host(bytes);
    if (bytes <= host.free_bytes)
        return 0;
    memory_end(request, false, MEMORY_VMM, 0);
    if (last)
        say_refused(range, bytes, host.bound, host.free_bytes);
    return -EDQUOT;
}

/* Other processes may have taken the room meanwhile, to have it ready. */
static int begin_spilled(struct memory_request *request, const struct range *range, uint64_t bytes)
{
    int error = try_begin_spilled(request, range, bytes, false);
    if (error != -EDQUOT)
        return error;
    (void)host_pool_make_room(bytes, true);
    return try_begin_spilled(request, range, bytes, true);
}

static CUresult add_part(struct range *range, uint64_t bytes, bool spilled)
{
    CUmemAllocationProp property = range_property(range->ordinal, spilled);
    CUmemGenericAllocationHandle handle = 0;
    struct memory_request request;
    if (range->part_count == RANGE_PARTS_MAX) /* never: see its number */
        return CUDA_ERROR_OUT_OF_MEMORY;
    int error = spilled ? begin_spilled(&request, range, bytes)
                        : memory_begin(&request, range->device, bytes, ACCOUNT_MOVABLE);
    if (error) {
        range->over_limit |= error == -ENOMEM;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    unsigned over_limit = rm_memory_thread_over_limit();
    CUresult result = cuda.cuMemCreate(&handle, bytes, &property, 0);
    range->over_limit |= over_limit != rm_memory_thread_over_limit();
    memory_end(&request, result == CUDA_SUCCESS, MEMORY_VMM, handle);
    if (result != CUDA_SUCCESS)
        return result;
    range->parts[range->part_count++] =
        (struct range_part){.handle = handle, .bytes = bytes, .spilled = spilled};
    range->bytes += bytes;
    range->spilled_bytes += spilled ? bytes : 0;
    return CUDA_SUCCESS;
}

/* False where another place is not to be tried: the limit refuses, which others may have reached
 * meanwhile, or the driver says anything but that there is no room. */
static bool try_resident(struct range *range, uint64_t bytes, CUresult *ret_result)
{
    *ret_result = add_part(range, bytes, false);
    return *ret_result == CUDA_SUCCESS ||
           (*ret_result == CUDA_ERROR_OUT_OF_MEMORY && !range->over_limit);
}

/* What of the share is left, in whole pages, and no more than the bytes. */
static uint64_t room_for(const struct range *range, uint64_t bytes)
{
    uint64_t room = account_resident_room((unsigned)range->device, bytes);
    return room < bytes ? room / PAGE_BYTES * PAGE_BYTES : bytes;
}

/* All in one piece. Where there is no room for that, less is free: each power of two below it,
 * tried once, fills the card, or the share, to the last page. What pools hold unused is asked back
 * first. */
static CUresult add_resident(struct range *range, uint64_t bytes)
{
    uint64_t whole = room_for(range, bytes);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (whole == bytes && (!try_resident(range, bytes, &result) || result == CUDA_SUCCESS))
        return result;
    bool made_room = pools_make_room(range->ordinal);
    if (made_room)
        whole = room_for(range, bytes);
    if (whole && (made_room || whole < bytes) &&
        (!try_resident(range, whole, &result) || result == CUDA_SUCCESS))
        return result;
    uint64_t piece = PAGE_BYTES;
    while (piece < whole)
        piece *= 2;
    while ((piece /= 2) >= PAGE_BYTES && range->bytes < whole) {
        if (piece <= whole - range->bytes && !try_resident(range, piece, &result))
            return result;
    }
    return CUDA_SUCCESS;
}

/* Whether all of it can be backed, before a part is made: 0.3 s a GiB. */
static bool may_spill(const struct range *range, uint64_t bytes)
{
    unsigned device = (unsigned)range->device;
    int error = account_reserve(device, bytes, ACCOUNT_SPILLED);
    if (error == -EDQUOT && host_pool_make_room(bytes, true))
        error = account_reserve(device, bytes, ACCOUNT_SPILLED);
    if (error == -EDQUOT)
        say_pool_is_used_up(range, bytes);
    if (error) /* beyond the limit: its parts are refused for that */
        return error == -ENOMEM;
    struct host_memory host = look_at_host(bytes);
    if (bytes > host.free_bytes)
        say_refused(range, bytes, host.bound, host.free_bytes);
    account_release(device, bytes, ACCOUNT_SPILLED); /* pending until it is gone: others wait */
    account_commit(device, bytes);
    return bytes <= host.free_bytes;
}

static CUresult add_spilled(struct range *range, uint64_t bytes)
{
    (void)host_pool_make_room(bytes, false);
    if (!may_spill(range, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CUDA_SUCCESS;
    uint64_t piece = range_piece_bytes(bytes);
    for (uint64_t at = 0; at < bytes && result == CUDA_SUCCESS; at += piece)
        result = add_part(range, bytes - at < piece ? bytes - at : piece, true);
    if (result != CUDA_SUCCESS && !range->over_limit && may_log())
        log_error("Device %d OOM: %llu MiB cannot be backed by host memory: the driver does "
                  "not allow it (%d)",
            range->device, MIB_OF(bytes), (int)result);
    return result == CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult range_release_part(const struct range_part *part)
{
    CUresult result = undo_create(part->handle);
    if (part->descriptor)
        descriptor_close(part->descriptor);
    return result;
}

static void release_part(const struct range_part *part)
{
    struct memory_record record = memory_take(MEMORY_VMM, part->handle);
    CUresult result = range_release_part(part);
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_VMM, part->handle);
}

static void release_parts(struct range *range)
{
    while (range->part_count)
        release_part(&range->parts[--range->part_count]);
}

/* Gives `bytes` of the last part on the card, or all of it, back to the card: the host takes their
 * place. False where there is no such part. */
static bool yield_resident(struct range *range, uint64_t bytes, CUresult *ret_result)
{
    uint64_t wanted = range->bytes;
    unsigned at = range->part_count;
    while (at && range->parts[at - 1].spilled)
        at--;
    if (!at)
        return false;
    struct range_part part = range->parts[at - 1];
    for (; at < range->part_count; at++)
        range->parts[at - 1] = range->parts[at];
    range->part_count--;
    range->bytes -= part.bytes;
    release_part(&part);
    *ret_result = CUDA_SUCCESS;
    if (part.bytes <= bytes || try_resident(range, part.bytes - bytes, ret_result))
        *ret_result = add_spilled(range, wanted - range->bytes);
    return true;
}

/* ---- the range ---- */

CUresult range_set_access(const struct range *range, CUdevice ordinal, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.flags = flags};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = ordinal;
    return cuda.cuMemSetAccess(range->address, range->bytes, &access, 1);
}

/* Parts that stay mapped keep their memory, released or not: they stay charged. */
static void forget_parts(struct range *range)
{
    range->part_count = 0;
}

static CUresult map_parts(struct range *range)
{
    CUresult result = address_take(range->bytes, &range->address);
    CUdeviceptr end = range->address;
    if (result != CUDA_SUCCESS)
        return result;
    for (unsigned i = 0; i < range->part_count && result == CUDA_SUCCESS; i++) {
        result = cuda.cuMemMap(end, range->parts[i].bytes, 0, range->parts[i].handle, 0);
        end += result == CUDA_SUCCESS ? range->parts[i].bytes : 0;
    }
    if (result == CUDA_SUCCESS)
        result = range_set_access(range, range->ordinal, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (result != CUDA_SUCCESS) {
        if (end > range->address && undo_map(range->address, end - range->address) != CUDA_SUCCESS)
            forget_parts(range);
        else
            address_give(range->address, range->bytes);
    }
    return result;
}

CUresult range_make(struct range *range, uint64_t bytes)
{
    range->bytes = range->spilled_bytes = 0;
    CUresult result = add_resident(range, bytes);
    if (result == CUDA_SUCCESS && range->bytes < bytes)
        result = add_spilled(range, bytes - range->bytes);
    if (result == CUDA_SUCCESS)
        result = map_parts(range);
    /* Page tables lie on the card, which the range itself may have filled. */
    for (uint64_t less = PAGE_BYTES; result == CUDA_ERROR_OUT_OF_MEMORY && !range->over_limit &&
                                     range->bytes == bytes && less <= YIELDED_MAX;
         less *= 2) {
        if (!yield_resident(range, less, &result))
            break;
        if (result == CUDA_SUCCESS)
            result = map_parts(range);
    }
    if (result != CUDA_SUCCESS)
        release_parts(range);
    return result;
}

CUresult range_drop(struct range *range)
{
    CUresult result = undo_map(range->address, range->bytes);
    if (result != CUDA_SUCCESS)
        return result;
    address_give(range->address, range->bytes);
    release_parts(range);
    return CUDA_SUCCESS;
}

void range_mark_exported(struct range *range, struct rm_export_fd to)
{
    store_relaxed(&range->exported, true);
    for (unsigned i = 0; i < range->part_count; i++)
        memory_mark_exported(MEMORY_VMM, range->parts[i].handle, to);
}
