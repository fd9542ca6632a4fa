/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations, and the use of ranges. */
#include "vmem/vmem.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sleep.h"
#include "config/config_oversubscription.h"
#include "container/container.h"
#include "container/device.h"
#include "driver/cuda.h"
#include "memory/memory.h"
#include "memory/pools.h"
#include "pace/capture.h"
#include "vmem/address.h"
#include "vmem/host_pool.h"
#include "vmem/vmem_parts.h"
#include "vmem/world.h"

#include <errno.h>
#include <stddef.h>

/* Requests of no more share blocks, as the driver's do. */
#define SMALL_BYTES (1u << 20)

/* The driver's buffer ids count up from 1. */
#define OWN_ID (1ull << 63)

bool vmem_is_asked_for;
size_t vmem_range_count;
bool vmem_is_placed;
struct lock vmem_lock;
struct vmem vmem;

/* Once a process. */
static struct {
    bool not_shared, not_limited;
} said;

void vmem_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&vmem_lock);
    world_reset();
    slab_finish(&vmem.ranges);
    slab_finish(&vmem.blocks);
    slab_finish(&vmem.ended);
    slab_finish(&vmem.captures);
    vmem = (struct vmem){.ranges = {.object_bytes = sizeof(struct range)},
        .blocks = {.object_bytes = sizeof(struct block)},
        .ended = {.object_bytes = sizeof(struct vmem_ended)},
        .captures = {.object_bytes = sizeof(struct vmem_capture)}};
    vmem_range_count = 0;
    address_reset();
    said.not_shared = said.not_limited = false;
    vmem_is_placed = false;
    vmem_is_asked_for = config_oversubscribes(container_config());
}

/* ---- ranges ---- */

void vmem_use_locked(struct range *range) REQUIRES(vmem_lock)
{
    range->users++;
}

void vmem_forget_locked(struct range *range) REQUIRES(vmem_lock)
{
    if (range->block)
        slab_give(&vmem.blocks, range->block);
    slab_give(&vmem.ranges, range);
}

/* What stays goes with its context, or is freed once more. */
static CUresult drop_now(struct range *range)
{
    struct capture_relaxed former = capture_relax();
    CUresult result = range_drop(range);
    capture_restore(&former);
    LOCKED(vmem_lock) {
        range->gone = range->ended = false;
        if (result == CUDA_SUCCESS)
            vmem_forget_locked(range);
        else
            vmem_add_locked(range);
    }
    return result;
}

CUresult vmem_leave(struct range *range)
{
    bool last = false;
    LOCKED(vmem_lock)
        last = --range->users == 0 && range->gone;
    return last ? drop_now(range) : CUDA_SUCCESS;
}

/* Nanoseconds between two looks, at first and at most, and in all. */
#define USED_LOOK_NS 20000ull
#define USED_LOOK_MOST_NS 1000000ull
#define USED_WAIT_NS 10000000000ull

void vmem_wait_while_used(bool (*is_used_locked)(const void *of), const void *of)
{
    uint64_t pause_ns = USED_LOOK_NS, until_ns = clock_now_ns() + USED_WAIT_NS;
    for (;;) {
        bool used = true;
        LOCKED(vmem_lock)
            used = is_used_locked(of);
        if (!used || clock_now_ns() >= until_ns)
            return;
        sleep_ns(pause_ns);
        pause_ns = 2 * pause_ns < USED_LOOK_MOST_NS ? 2 * pause_ns : USED_LOOK_MOST_NS;
    }
}

void vmem_drop(struct range *range)
{
    bool now = false;
    LOCKED(vmem_lock) {
        range->gone = true;
        now = range->users == 0;
    }
    if (now)
        (void)drop_now(range);
}

void vmem_count_locked(void) REQUIRES(vmem_lock)
{
    store_relaxed(&vmem_range_count, vmem.table.count + (vmem.deferred != NULL));
}

void vmem_remove_locked(struct range *range) REQUIRES(vmem_lock)
{
    range_table_remove(&vmem.table, range);
    for (struct range **at = &vmem.block_list; range->block && *at; at = &(*at)->next) {
        if (*at == range) {
            *at = range->next;
            break;
        }
    }
    vmem_count_locked();
}

/* ---- allocations ---- */

/* The current context, and whose device it is. */
struct place {
    uint64_t context;
    CUdevice ordinal;
    int device;
};

static void say_not_supported(CUdevice ordinal)
{
    log_warning("oversubscription was asked for, but the driver cannot back memory of device %d by "
                "the host's; the limit of physical memory is kept",
        (int)ordinal);
}

static void say_not_limited(const struct place *place)
{
    if (account_ratio((unsigned)place->device) && !exchange_acq_rel(&said.not_limited, true))
        log_warning("oversubscription was asked for, but device %d has no memory limit: it is as "
                    "large as the card",
            place->device);
}

/* False where the driver is to serve the call. */
static bool find_place(struct place *place)
{
    if (cuda.cuCtxGetDevice(&place->ordinal) != CUDA_SUCCESS ||
        device_identify(place->ordinal, &place->device) != CUDA_SUCCESS || place->device < 0)
        return false;
    if (!account_is_oversubscribed((unsigned)place->device)) {
        say_not_limited(place);
        return false;
    }
    if (!range_is_supported(place->ordinal)) {
        account_set_ratio((unsigned)place->device, 0);
        say_not_supported(place->ordinal);
        return false;
    }
    return memory_current_context && memory_current_context(&place->context) == 0 && place->context;
}

bool vmem_room_slow(uint64_t card_free, uint64_t left, uint64_t *ret_free)
{
    struct place place;
    if (!find_place(&place))
        return false;
    uint64_t room = account_resident_room((unsigned)place.device, card_free);
    uint64_t on_card = room < card_free ? room : card_free;
    if (on_card < left) {
        uint64_t on_host = host_pool_room();
        left = left - on_card < on_host ? left : on_card + on_host;
    }
    *ret_free = left;
    return true;
}

static struct range *take_storage(const struct place *place, bool is_block)
{
    LOCKED_TO_END(vmem_lock);
    struct range *range = slab_take(&vmem.ranges);
    if (!range)
        return NULL;
    range->serial = ++vmem.last_serial & INT32_MAX;
    range->context = place->context;
    range->born = ++vmem.last_born;
    range->ordinal = place->ordinal;
    range->device = place->device;
    range->block = is_block ? slab_take(&vmem.blocks) : NULL;
    if (!is_block || range->block)
        return range;
    slab_give(&vmem.ranges, range);
    return NULL;
}

void vmem_add_locked(struct range *range) REQUIRES(vmem_lock)
{
    range_table_add(&vmem.table, range);
    if (range->block) {
        range->next = vmem.block_list;
        vmem.block_list = range;
    }
    vmem_count_locked();
}

/* Others find it from now on, and may drop it once it is left. */
static void publish(struct range *range)
{
    LOCKED_TO_END(vmem_lock);
    vmem_add_locked(range);
    vmem_use_locked(range);
}

/* Makes the range and has others find it; where that fails its storage is gone. */
static CUresult add_range(struct range *range, uint64_t bytes, CUdeviceptr *ret_address)
{
    uint64_t changes = 0;
    bool is_stuck = false;
    world_add_context(range->context);
    struct capture_relaxed former = capture_relax();
    CUresult result = range_make(range, bytes);
    if (result == CUDA_SUCCESS) {
        *ret_address = range->address;
        result = vmem_let_peers(range, &changes);
        if (result != CUDA_SUCCESS && range_drop(range) != CUDA_SUCCESS)
            is_stuck = true; /* nobody knows it, and it stays charged */
    }
    if (result != CUDA_SUCCESS) {
        LOCKED(vmem_lock) {
            if (!is_stuck)
                vmem_forget_locked(range);
        }
    } else {
        range->use.made_ns = clock_now_ns();
        if (range->spilled_bytes || account_share((unsigned)range->device) != UINT64_MAX)
            store_relaxed(&vmem_is_placed, true);
        publish(range);
        if (vmem_peers_changed(changes))
            (void)vmem_let_peers(range, &changes);
        (void)vmem_leave(range);
    }
    capture_restore(&former);
    return result;
}

/* In a block that the context has already. */
static bool allocate_in_block(const struct place *place, uint32_t bytes, CUdeviceptr *ret_address)
{
    uint32_t offset;
    LOCKED_TO_END(vmem_lock);
    for (struct range *range = vmem.block_list; range; range = range->next) {
        if (range->context == place->context && range->ordinal == place->ordinal &&
            !vmem_may_go_locked(range) && block_take(range->block, bytes, &offset)) {
            *ret_address = range->address + offset;
            return true;
        }
    }
    return false;
}

static CUresult allocate_at(const struct place *place, uint64_t bytes, CUdeviceptr *ret_address)
{
    bool small = bytes <= SMALL_BYTES;
    uint32_t offset = 0;
    if (small && allocate_in_block(place, (uint32_t)bytes, ret_address))
        return CUDA_SUCCESS;
    uint64_t rounded = (bytes - 1) / BLOCK_BYTES * BLOCK_BYTES + BLOCK_BYTES;
    int refused = rounded < bytes ? -ENOMEM : account_check((unsigned)place->device, rounded);
    if (rounded >= bytes && refused &&
        rm_export_sweep()) /* what was kept for a closed descriptor */
        refused = account_check((unsigned)place->device, rounded);
    if (refused)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct range *range = take_storage(place, small);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->asked_bytes = bytes;
    if (small) /* at its beginning: it is empty */
        (void)!block_take(range->block, (uint32_t)bytes, &offset);
    return add_range(range, rounded, ret_address);
}

bool vmem_allocate_slow(CUdeviceptr *dptr, size_t bytes, CUresult *ret_result)
{
    struct place place;
    CUdeviceptr address = 0;
    unsigned attempts = 0;
    CUresult result = CUDA_SUCCESS;
    if (!dptr || !bytes || !find_place(&place))
        return false;
    if (load_relaxed(&vmem.deferred))
        vmem_free_deferred(place.context);
    while (pools_allow_attempt(&attempts, result, place.ordinal))
        result = allocate_at(&place, bytes, &address);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && vmem_free_all_deferred())
        result = allocate_at(&place, bytes, &address);
    if (result == CUDA_SUCCESS)
        *dptr = address;
    *ret_result = result;
    return true;
}

/* ---- what an address lies in ---- */

bool vmem_find_slow(CUdeviceptr address, struct vmem_allocation *ret_allocation)
{
    struct block_part part = {0};
    LOCKED_TO_END(vmem_lock);
    const struct range *range = range_table_find(&vmem.table, address);
    if (!range)
        return false;
    uint64_t offset = address - range->address;
    if (range->block ? !block_find(range->block, (uint32_t)offset, &part)
                     : range->ended || offset >= range->asked_bytes)
        return false;
    *ret_allocation = (struct vmem_allocation){.address = range->address + part.offset,
        .bytes = range->block ? part.bytes : range->asked_bytes,
        .context = range->context,
        .ordinal = range->ordinal,
        .id = OWN_ID | (unsigned long long)range->serial << 32 | part.serial};
    return true;
}

bool vmem_has_slow(CUdeviceptr address)
{
    LOCKED_TO_END(vmem_lock);
    return range_table_find(&vmem.table, address) != NULL;
}

bool vmem_mark_exported(CUdeviceptr address, struct rm_export_fd to)
{
    struct range *range = NULL;
    LOCKED(vmem_lock) {
        range = range_table_find(&vmem.table, address);
        if (range)
            vmem_use_locked(range);
    }
    if (range) {
        range_mark_exported(range, to);
        (void)vmem_leave(range);
    }
    return range != NULL;
}

void vmem_say_not_shared(const char *function)
{
    if (!exchange_acq_rel(&said.not_shared, true))
        log_warning("%s: memory that may be backed by the host's cannot be shared between "
                    "processes by a legacy handle; programs that need that (PyTorch's "
                    "multiprocessing, MPI, UCX) are to run without CUDA_MEMORY_OVERSUBSCRIBE",
            function);
}
