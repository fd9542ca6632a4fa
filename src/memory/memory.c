/* SPDX-License-Identifier: Apache-2.0 */
/* Early refusal, managed memory, and the API ledger. */
#include "memory/memory.h"

#include "base/atomic.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/slab.h"
#include "config/config_oversubscription.h"
#include "container/container.h"
#include "rm/rm_audit.h"
#include "rm/rm_charging.h"
#include "rm/rm_export.h"
#include "rm/rm_memory.h"

#include <errno.h>
#include <stddef.h>

#define BLOCK_BYTES (2ull << 20)  /* the driver's granule (H200, driver 580.159.04) */
#define IMPORT_BYTES (1ull << 50) /* more than any card has: the size of an import is not told */
#define SMALL_BYTES (1ull << 20)  /* below, allocations share a block */

enum memory_ledger memory_ledger_in_use;
bool memory_looks_at_launches;
static bool ledger_told;
size_t memory_record_count;
int (*memory_current_context)(uint64_t *ret_context);

static struct lock memory_lock;
static uint64_t last_born; /* of all that goes with a context */

static struct {
    struct slab slab;
    struct map index;
    /* API ledger: what shares blocks, and the blocks that are charged for it. */
    uint64_t small_bytes[VGPU_REGION_DEVICES], small_charged[VGPU_REGION_DEVICES];
    unsigned imports[VGPU_REGION_DEVICES]; /* API ledger: handles on exported memory */
} memory GUARDED_BY(memory_lock) = {.slab = {.object_bytes = sizeof(struct memory_record)}};

static void reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&memory_lock);
    slab_finish(&memory.slab);
    map_finish(&memory.index);
    memory_record_count = 0;
    for (unsigned i = 0; i < VGPU_REGION_DEVICES; i++)
        memory.small_bytes[i] = memory.small_charged[i] = memory.imports[i] = 0;
    ledger_told = false;
    memory_ledger_in_use = container_config()->ledger == LEDGER_API  ? MEMORY_LEDGER_API
                           : container_config()->ledger == LEDGER_RM ? MEMORY_LEDGER_RM
                                                                     : MEMORY_LEDGER_UNDECIDED;
    memory_looks_at_launches =
        memory_ledger_in_use == MEMORY_LEDGER_API || config_oversubscribes(container_config());
    rm_charging_set(memory_ledger_in_use != MEMORY_LEDGER_API);
}

__attribute__((constructor)) static void register_reset(void)
{
    container_on_reset(reset);
}

/* Once a process. A ledger that was fallen back on is told to all, the others to those who ask. */
static void tell_ledger(enum memory_ledger chosen, bool asked_for)
{
    if (exchange_acq_rel(&ledger_told, true))
        return;
    if (chosen == MEMORY_LEDGER_RM)
        log_info("memory is counted by the RM ledger: the driver's allocations pass ioctl; %s",
            rm_audit_has_figure() ? "they are compared with the driver's own figure"
                                  : "the driver has no figure of this process to compare with");
    else if (asked_for)
        log_info("memory is counted by the API ledger: VGPU_LEDGER asks for it");
    else
        log_message("memory is counted by the API ledger: %s", rm_memory_blindness());
}

void memory_choose_ledger(bool made)
{
    enum memory_ledger chosen = memory_ledger();
    bool asked_for = chosen == MEMORY_LEDGER_API;
    bool sees = made ? rm_memory_is_active() : rm_memory_may_see();
    if (!made && (sees || asked_for))
        return;
    if (chosen == MEMORY_LEDGER_UNDECIDED || (chosen == MEMORY_LEDGER_RM && !sees)) {
        chosen = sees ? MEMORY_LEDGER_RM : MEMORY_LEDGER_API;
        store_relaxed(&memory_ledger_in_use, chosen);
        if (chosen == MEMORY_LEDGER_API) {
            store_relaxed(&memory_looks_at_launches, true);
            rm_charging_set(false);
        }
    }
    tell_ledger(chosen, asked_for);
    account_set_ledger(chosen == MEMORY_LEDGER_RM ? 1 : 2);
}

static uint64_t key_of(enum memory_handle type, uint64_t handle)
{
    /* Never 0, which the map keeps for itself; addresses have no more than 56 bits. */
    return handle ^ (uint64_t)(type + 1) << 56;
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return bytes > UINT64_MAX - unit ? bytes : (bytes + unit - 1) / unit * unit;
}

static bool is_counted_here(enum account_kind kind)
{
    return kind == ACCOUNT_MANAGED || kind == ACCOUNT_SPILLED ||
           memory_ledger() == MEMORY_LEDGER_API;
}

/* A block holds whole allocations only, each rounded to 512 bytes: what is left of it is lost. */
static uint64_t block_share(uint64_t bytes)
{
    uint64_t fit = BLOCK_BYTES / round_up(bytes, 512);
    return BLOCK_BYTES / fit;
}

/* What the blocks that are charged lack for `bytes` more; 0: they are taken. */
static uint64_t take_small(unsigned device, uint64_t bytes)
{
    LOCKED_TO_END(memory_lock);
    uint64_t wanted = memory.small_bytes[device] + bytes;
    uint64_t blocks = round_up(wanted, BLOCK_BYTES);
    uint64_t lack =
        blocks > memory.small_charged[device] ? blocks - memory.small_charged[device] : 0;
    if (!lack)
        memory.small_bytes[device] = wanted;
    return lack;
}

/* Charged before it is used: another thread may use a block that this one charged, which then
 * charges another. */
static int reserve_small(unsigned device, uint64_t bytes)
{
    for (uint64_t lack; (lack = take_small(device, bytes)) != 0;) {
        int error = account_reserve(device, lack, ACCOUNT_BUFFER);
        if (error)
            return error;
        account_commit(device, lack);
        LOCKED(memory_lock)
            memory.small_charged[device] += lack;
    }
    return 0;
}

static void release_small(unsigned device, uint64_t bytes)
{
    uint64_t surplus = 0;
    LOCKED(memory_lock) {
        memory.small_bytes[device] -= bytes;
        uint64_t blocks = round_up(memory.small_bytes[device], BLOCK_BYTES);
        surplus = memory.small_charged[device] - blocks;
        memory.small_charged[device] = blocks;
    }
    if (surplus)
        account_release(device, surplus, ACCOUNT_BUFFER);
}

static int reserve_counted(struct memory_request *request)
{
    unsigned device = (unsigned)request->device;
    request->reserved = true;
    request->shares_block =
        request->kind == ACCOUNT_BUFFER && request->bytes < SMALL_BYTES && request->bytes;
    if (request->shares_block) {
        request->bytes = block_share(request->bytes);
        return reserve_small(device, request->bytes);
    }
    if (request->kind != ACCOUNT_MANAGED)
        request->bytes = round_up(request->bytes, BLOCK_BYTES);
    return account_reserve(device, request->bytes, request->kind);
}

static int begin_counted(struct memory_request *request)
{
    uint64_t bytes = request->bytes;
    int error = reserve_counted(request);
    if (error && rm_export_sweep()) {
        request->bytes = bytes;
        error = reserve_counted(request);
    }
    return error;
}

/* What cannot fit is refused here; what might is judged by the ledger below. */
static int begin_ahead(const struct memory_request *request)
{
    if (request->bytes < BLOCK_BYTES ||
        account_seems_free((unsigned)request->device, request->bytes))
        return 0;
    int error = account_check((unsigned)request->device, request->bytes);
    if (error && rm_export_sweep())
        error = account_check((unsigned)request->device, request->bytes);
    return error;
}

/* The context was made in a way that is not hooked: a newer function, a private table. */
static void choose_late(enum account_kind kind)
{
    uint64_t context = 0;
    if (kind != ACCOUNT_CONTEXT && memory_current_context &&
        memory_current_context(&context) == 0 && context)
        memory_choose_ledger(true);
}

static uint64_t next_born(void)
{
    return add_seq_cst(&last_born, (uint64_t)1);
}

int memory_begin(struct memory_request *request, int device, uint64_t bytes, enum account_kind kind)
{
    if (memory_ledger() == MEMORY_LEDGER_UNDECIDED)
        choose_late(kind);
    *request = (struct memory_request){.device = device, .bytes = bytes, .kind = kind};
    if (device == CONTAINER_DEVICE_CLOSED)
        return -ENOMEM;
    if (device != CONTAINER_DEVICE_UNKNOWN) {
        bool counted = is_counted_here(kind);
        /* Asked before: memory whose context is not known would never be given back with it. */
        if (counted && memory_current_context && memory_current_context(&request->context) != 0 &&
            container_unidentified_device() == CONTAINER_DEVICE_CLOSED)
            return -ENOMEM;
        if (request->context)
            request->born = next_born();
        int error = counted ? begin_counted(request) : begin_ahead(request);
        if (error)
            return error;
    }
    /* What the driver takes of the card for memory of the host stays on the card. */
    request->former_kind = rm_memory_set_kind(kind == ACCOUNT_SPILLED ? ACCOUNT_BUFFER : kind);
    return 0;
}

static void count_import(unsigned device, int by)
{
    unsigned count = 0;
    LOCKED(memory_lock)
        count = memory.imports[device] += (unsigned)by;
    account_set_imported(device, count ? IMPORT_BYTES : 0);
}

static void give_back(const struct memory_record *record)
{
    unsigned device = (unsigned)record->device;
    if (record->imported) {
        count_import(device, -1);
    } else if (record->exported) {
        struct rm_freed freed = {.device = device,
            .bytes = record->bytes,
            .kind = record->kind,
            .exported = true,
            .importable = record->importable,
            .fds = {record->to, {.fd = -1}, {.fd = -1}, {.fd = -1}}};
        rm_export_freed(&freed);
    } else if (record->shares_block) {
        release_small(device, record->bytes);
    } else {
        account_release(device, record->bytes, record->kind);
    }
}

/* Pools, physical handles and contexts themselves do not go with the current context. */
static bool goes_with_context(enum memory_handle type)
{
    return type == MEMORY_POINTER || type == MEMORY_ARRAY || type == MEMORY_MIPMAP ||
           type == MEMORY_MODULE;
}

/* The next record of the context's, so that it is given back without the lock. Removal moves later
 * entries back, so the cursor goes back with them; what other threads add meanwhile may be missed.
 */
static bool take_owned(
    uint64_t context, uint64_t born, size_t *cursor, struct memory_record *ret_record)
{
    bool found = false;
    uint64_t key;
    LOCKED_TO_END(memory_lock);
    for (struct memory_record *kept; !found && (kept = map_next(&memory.index, cursor, &key));) {
        found = kept->owner == context && kept->born <= born;
        if (found) {
            *ret_record = *kept;
            map_remove(&memory.index, key);
            (*cursor)--;
            slab_give(&memory.slab, kept);
            store_relaxed(&memory_record_count, memory.index.count);
        }
    }
    return found;
}

uint64_t memory_context_ends(void)
{
    return load_seq_cst(&last_born);
}

void memory_context_gone(uint64_t context, uint64_t born)
{
    struct memory_record record;
    size_t cursor = 0;
    while (context && load_relaxed(&memory_record_count) &&
           take_owned(context, born, &cursor, &record))
        give_back(&record);
}

static void put_record(enum memory_handle type, uint64_t handle, const struct memory_record *record)
{
    struct memory_record stale = {0};
    bool replaces = false;
    LOCKED(memory_lock) {
        struct memory_record *kept = map_get(&memory.index, key_of(type, handle));
        replaces = kept != NULL;
        if (kept) {
            stale = *kept;
        } else {
            kept = slab_take(&memory.slab);
            if (kept && map_put(&memory.index, key_of(type, handle), kept) != 0) {
                slab_give(&memory.slab, kept);
                kept = NULL;
            }
        }
        /* Without room for the record its bytes stay charged: too much is safe, too little is not.
         */
        if (kept)
            *kept = *record;
        store_relaxed(&memory_record_count, memory.index.count);
    }
    if (replaces)
        give_back(&stale);
}

void memory_end(struct memory_request *request, bool made, enum memory_handle type, uint64_t handle)
{
    rm_memory_set_kind(request->former_kind);
    if (!request->reserved)
        return;
    struct memory_record record = {.device = request->device,
        .bytes = request->bytes,
        .kind = request->kind,
        .references = 1,
        .shares_block = request->shares_block,
        .to = {.fd = -1},
        .owner = goes_with_context(type) ? request->context : 0,
        .born = request->born};
    if (!request->shares_block)
        account_commit((unsigned)request->device, request->bytes);
    if (made)
        put_record(type, handle, &record);
    else
        give_back(&record);
}

struct memory_record memory_take_slow(enum memory_handle type, uint64_t handle)
{
    struct memory_record record = {.device = CONTAINER_DEVICE_UNKNOWN};
    LOCKED_TO_END(memory_lock);
    struct memory_record *kept = map_get(&memory.index, key_of(type, handle));
    if (kept && kept->references > 1) {
        kept->references--;
        record.references = 1;
    } else if (kept) {
        record = *kept;
        map_remove(&memory.index, key_of(type, handle));
        slab_give(&memory.slab, kept);
        store_relaxed(&memory_record_count, memory.index.count);
    }
    return record;
}

uint64_t memory_recorded_bytes(enum memory_handle type, uint64_t handle)
{
    if (!load_relaxed(&memory_record_count))
        return 0;
    LOCKED_TO_END(memory_lock);
    const struct memory_record *kept = map_get(&memory.index, key_of(type, handle));
    return kept ? kept->bytes : 0;
}

void memory_retain(enum memory_handle type, uint64_t handle)
{
    if (!load_relaxed(&memory_record_count))
        return;
    LOCKED_TO_END(memory_lock);
    struct memory_record *kept = map_get(&memory.index, key_of(type, handle));
    if (kept)
        kept->references++;
}

void memory_taken(
    const struct memory_record *record, bool freed, enum memory_handle type, uint64_t handle)
{
    if (record->device != CONTAINER_DEVICE_UNKNOWN) {
        if (freed)
            give_back(record);
        else
            put_record(type, handle, record);
    } else if (record->references && !freed) {
        memory_retain(type, handle);
    }
}

/* What shares its block lives and dies with the block, which a descriptor keeps whole: the record
 * becomes one of the block. Another thread may free the handle meanwhile, so the block is charged
 * before. */
static void widen_to_block(enum memory_handle type, uint64_t handle)
{
    struct memory_record small = {0};
    LOCKED(memory_lock) {
        const struct memory_record *seen = map_get(&memory.index, key_of(type, handle));
        if (seen && seen->shares_block)
            small = *seen;
    }
    if (!small.shares_block)
        return;
    account_add((unsigned)small.device, BLOCK_BYTES, ACCOUNT_BUFFER);
    bool widens = false;
    LOCKED(memory_lock) {
        struct memory_record *kept = map_get(&memory.index, key_of(type, handle));
        widens = kept && kept->shares_block && kept->device == small.device;
        if (widens) {
            small = *kept;
            kept->shares_block = false;
            kept->bytes = BLOCK_BYTES;
        }
    }
    if (widens)
        release_small((unsigned)small.device, small.bytes);
    else
        account_release((unsigned)small.device, BLOCK_BYTES, ACCOUNT_BUFFER);
}

void memory_mark_exported(enum memory_handle type, uint64_t handle, struct rm_export_fd to)
{
    if (!load_relaxed(&memory_record_count))
        return;
    if (to.fd >= 0)
        widen_to_block(type, handle);
    struct memory_record record = {0};
    bool newly = false;
    LOCKED(memory_lock) {
        struct memory_record *kept = map_get(&memory.index, key_of(type, handle));
        bool is_own = kept && !kept->imported && !kept->shares_block;
        newly = is_own && !to.is_dmabuf && !kept->importable;
        if (is_own) {
            kept->exported = true;
            kept->importable |= newly;
            record = *kept;
        }
        if (kept && to.fd >= 0)
            kept->to = to;
    }
    if (newly)
        account_add_exported((unsigned)record.device, (int64_t)record.bytes);
}

void memory_add_import(enum memory_handle type, uint64_t handle, int device)
{
    if (device < 0)
        return;
    struct memory_record *known = NULL;
    LOCKED(memory_lock) {
        known = map_get(&memory.index, key_of(type, handle));
        if (known)
            known->references++;
    }
    if (known)
        return;
    put_record(type, handle,
        &(struct memory_record){
            .device = device, .references = 1, .imported = true, .to = {.fd = -1}});
    count_import((unsigned)device, 1);
}

void memory_set(
    enum memory_handle type, uint64_t handle, int device, uint64_t bytes, enum account_kind kind)
{
    memory_set_owned(type, handle, device, bytes, kind, 0);
}

void memory_set_owned(enum memory_handle type, uint64_t handle, int device, uint64_t bytes,
    enum account_kind kind, uint64_t context)
{
    if (device < 0 || !is_counted_here(kind))
        return;
    struct memory_record record = memory_take(type, handle);
    bool moves = record.device >= 0 && record.device != device;
    uint64_t from = record.device < 0 || moves ? 0 : record.bytes;
    if (bytes > from)
        account_add((unsigned)device, bytes - from, kind);
    else if (bytes < from)
        account_release((unsigned)device, from - bytes, kind);
    if (moves)
        give_back(&record);
    if (bytes)
        put_record(type, handle,
            &(struct memory_record){.device = device,
                .bytes = bytes,
                .kind = kind,
                .references = 1,
                .to = {.fd = -1},
                .owner = context,
                .born = next_born()});
}

void memory_put_charged(
    enum memory_handle type, uint64_t handle, int device, uint64_t bytes, enum account_kind kind)
{
    put_record(type, handle,
        &(struct memory_record){
            .device = device, .bytes = bytes, .kind = kind, .references = 1, .to = {.fd = -1}});
}
