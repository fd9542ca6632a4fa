/* SPDX-License-Identifier: Apache-2.0 */
/* The process's account and its place in the region. */
#include "account/account_self.h"

#include "base/guard.h"
#include "base/log.h"
#include "region/region_device.h"
#include "region/slot.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

struct lock account_lock;
struct account account;

void account_start(struct region *region, int without) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&account_lock);
    account.region = region;
    account.without = without;
    account.ledger = 0;
    account.refusal_logged_ns = 0;
    account.full_logged = false;
    account.ended = false;
    account.works = false;
    memset(account.work, 0, sizeof(account.work));
    account_show_until_end();
    memset(account.holdings, 0, sizeof(account.holdings));
    memset(account.seen_free_bytes, 0, sizeof(account.seen_free_bytes));
    memset(account.ratio, 0, sizeof(account.ratio));
    account.host_budget_bytes = UINT64_MAX;
    account.ready_bytes = 0;
    account.release = (struct account_release){0};
}

void account_start_late(struct region *region)
{
    store_release(&account.region, region);
}

bool account_look_begin(void) REQUIRES(account_lock)
{
    if (load_acquire(&account.region->lost))
        return false;
    guard_enter();
    return true;
}

bool account_look_end(void) REQUIRES(account_lock)
{
    guard_leave();
    return !load_acquire(&account.region->lost);
}

uint64_t *account_kind_word(struct vgpu_usage *usage, enum account_kind kind)
{
    switch (kind) {
    case ACCOUNT_CONTEXT:
        return &usage->context;
    case ACCOUNT_MODULE:
        return &usage->module;
    case ACCOUNT_MANAGED:
        return &usage->managed;
    case ACCOUNT_UNEXPLAINED:
        return &usage->unexplained;
    case ACCOUNT_SPILLED:
        return &usage->spilled;
    default:
        return &usage->buffer;
    }
}

static void show_release_locked(struct vgpu_slot *slot) REQUIRES(account_lock)
{
    store_relaxed(&slot->released, account.release.released);
    store_relaxed(&slot->lacking, account.release.lacking);
    store_release(&slot->release, account.release.release);
}

static void fill_slot_locked(struct vgpu_slot *slot) REQUIRES(account_lock)
{
    struct region *region = account.region;
    for (unsigned d = 0; d < region->device_count; d++) {
        const struct account_holdings *held = &account.holdings[d];
        if (!held->bytes && !held->lingering && !held->imported)
            continue;
        if (!region_device_entry(region, d))
            continue;
        struct vgpu_usage *usage = &slot->usage[region->devices[d].entry];
        store_relaxed(&usage->pending, held->pending);
        store_relaxed(&usage->lingering, held->lingering);
        store_relaxed(&usage->imported, held->imported);
        store_relaxed(&usage->exported, held->exported);
        for (int k = 0; k < ACCOUNT_KINDS; k++)
            store_relaxed(account_kind_word(usage, k), (uint64_t)0);
        for (int k = 0; k < ACCOUNT_KINDS; k++) /* two of them share a word */
            add_seq_cst(account_kind_word(usage, k), held->kinds[k]);
        store_relaxed(&usage->movable, held->kinds[ACCOUNT_MOVABLE]);
        add_seq_cst(&usage->bytes, held->bytes);
        account_show_locked(d);
    }
    show_release_locked(slot);
    account_show_ready_locked(slot);
    store_relaxed(&slot->ledger, account.ledger);
}

bool account_slot_is_ours(void) REQUIRES(account_lock)
{
    const struct region *region = account.region;
    return region->slot >= 0 &&
           load_seq_cst(&region->shared->slots[region->slot].state) == region->word;
}

/* Claimed anew, with all that is held, where a peer took it for dead or the file was made anew. */
struct vgpu_slot *account_slot_locked(void) REQUIRES(account_lock)
{
    struct region *region = account.region;
    struct vgpu_slot *slots = region->shared->slots;
    if (!account_slot_is_ours()) {
        if (region->slot >= 0)
            slot_unlock(region, (unsigned)region->slot);
        region->slot = slot_claim(region, &region->word);
        region->slot_is_empty = true;
    }
    if (region->slot < 0) {
        if (!account.full_logged)
            log_warning("no slot in the shared region: %s",
                region->slot == -ENOSPC ? "all are taken, or its file system is full"
                                        : strerror(-region->slot));
        account.full_logged = true;
        return NULL;
    }
    if (region->slot_is_empty)
        fill_slot_locked(&slots[region->slot]);
    region->slot_is_empty = false;
    return &slots[region->slot];
}

struct vgpu_usage *account_usage_locked(unsigned device) REQUIRES(account_lock)
{
    if (!region_device_entry(account.region, device))
        return NULL;
    struct vgpu_slot *slot = account_slot_locked();
    return slot ? &slot->usage[account.region->devices[device].entry] : NULL;
}

static uint64_t at_most(uint64_t value, uint64_t bound)
{
    return value < bound ? value : bound;
}

static uint64_t at_least(uint64_t value, uint64_t bound)
{
    return value > bound ? value : bound;
}

struct account_sum account_sum_locked(unsigned device) REQUIRES(account_lock)
{
    struct account_sum sum = {0};
    struct region *region = account.region;
    int entry = region->devices[device].entry;
    if (entry < 0)
        return sum;
    uint64_t lingering = 0, imported = 0;
    uint64_t *orphaned = &region->shared->devices[entry].orphaned;
    uint64_t left = load_seq_cst(orphaned);
    unsigned bound = mapping_slot_bound(region);
    for (unsigned i = 0; i < bound; i++) {
        struct vgpu_slot *slot = &region->shared->slots[i];
        if (slot_word_state(load_seq_cst(&slot->state)) != VGPU_SLOT_LIVE)
            continue;
        struct vgpu_usage *usage = &slot->usage[entry];
        /* Read on both sides of the bytes: what was still pending when they were read may have
         * been taken back before it is read once more. */
        uint64_t pending = load_acquire(&usage->pending);
        uint64_t bytes = load_seq_cst(&usage->bytes);
        sum.bytes += bytes;
        lingering += load_relaxed(&usage->lingering);
        imported += load_relaxed(&usage->imported);
        if ((int)i != region->slot)
            sum.others_pending += at_most(at_least(load_relaxed(&usage->pending), pending), bytes);
    }
    /* Where nobody holds an import, what was exported once is gone. */
    if (left && !imported)
        (void)swap_seq_cst(orphaned, left, (uint64_t)0);
    sum.imported = imported;
    sum.bytes += at_most(lingering + left, imported);
    uint64_t limit = region->devices[device].known.memory_limit;
    store_relaxed(&account.seen_free_bytes[device], limit > sum.bytes ? limit - sum.bytes : 0);
    return sum;
}

static struct vgpu_slot *live_slot_locked(unsigned slot) REQUIRES(account_lock)
{
    struct vgpu_slot *found = &account.region->shared->slots[slot];
    return slot_word_state(load_seq_cst(&found->state)) == VGPU_SLOT_LIVE ? found : NULL;
}

uint64_t account_resident_locked(unsigned device) REQUIRES(account_lock)
{
    uint64_t sum = 0;
    int entry = account.region->devices[device].entry;
    unsigned bound = entry < 0 ? 0 : mapping_slot_bound(account.region);
    for (unsigned i = 0; i < bound; i++) {
        struct vgpu_slot *slot = live_slot_locked(i);
        if (slot)
            sum += load_seq_cst(&slot->usage[entry].context) +
                   load_seq_cst(&slot->usage[entry].module) +
                   load_seq_cst(&slot->usage[entry].buffer) +
                   load_seq_cst(&slot->usage[entry].unexplained);
    }
    return sum;
}

/* Of the slots that live, word by word. */
static uint64_t usage_over_slots_locked(unsigned device, size_t word, bool sums)
    REQUIRES(account_lock)
{
    uint64_t result = 0;
    int entry = account.region->devices[device].entry;
    unsigned bound = entry < 0 ? 0 : mapping_slot_bound(account.region);
    for (unsigned i = 0; i < bound; i++) {
        struct vgpu_slot *slot = live_slot_locked(i);
        uint64_t value = 0;
        if (slot)
            value = load_seq_cst((uint64_t *)((char *)&slot->usage[entry] + word));
        result = sums ? result + value : value > result ? value : result;
    }
    return result;
}

struct account_places account_places_locked(unsigned device) REQUIRES(account_lock)
{
    uint64_t resident = account_resident_locked(device);
    uint64_t movable = usage_over_slots_locked(device, offsetof(struct vgpu_usage, movable), true);
    return (struct account_places){.resident_bytes = resident,
        .movable_bytes = movable < resident ? movable : resident,
        .spilled_bytes =
            usage_over_slots_locked(device, offsetof(struct vgpu_usage, spilled), true)};
}

uint64_t account_worked_locked(unsigned device) REQUIRES(account_lock)
{
    return usage_over_slots_locked(device, offsetof(struct vgpu_usage, worked_ns), false);
}

uint64_t account_spilled_locked(void) REQUIRES(account_lock)
{
    uint64_t sum = 0;
    unsigned bound = mapping_slot_bound(account.region);
    for (unsigned i = 0; i < bound; i++) {
        struct vgpu_slot *slot = live_slot_locked(i);
        for (unsigned d = 0; slot && d < VGPU_REGION_DEVICES; d++)
            sum += load_seq_cst(&slot->usage[d].spilled);
    }
    return sum;
}

uint64_t account_others_pending_locked(void) REQUIRES(account_lock)
{
    uint64_t sum = 0;
    unsigned bound = mapping_slot_bound(account.region);
    for (unsigned i = 0; i < bound; i++) {
        struct vgpu_slot *slot = (int)i == account.region->slot ? NULL : live_slot_locked(i);
        for (unsigned d = 0; slot && d < VGPU_REGION_DEVICES; d++)
            sum += load_seq_cst(&slot->usage[d].pending);
    }
    return sum;
}

uint64_t account_share_locked(unsigned device) REQUIRES(account_lock)
{
    uint64_t ratio = load_relaxed(&account.ratio[device]);
    uint64_t limit = account_limits_locked(device).bytes;
    if (ratio <= ACCOUNT_RATIO_ONE || !limit)
        return UINT64_MAX;
    return limit / ratio * ACCOUNT_RATIO_ONE + limit % ratio * ACCOUNT_RATIO_ONE / ratio;
}

/* Whatever stands there: not below nothing, and within the limit as all that is charged. */
uint64_t account_allowed_locked(unsigned device) REQUIRES(account_lock)
{
    uint64_t share = account_share_locked(device);
    int entry = account.region->devices[device].entry;
    if (share == UINT64_MAX || entry < 0)
        return share;
    int64_t borrowed = load_seq_cst(&account.region->shared->compute[entry].borrowed_bytes);
    uint64_t lent = borrowed < 0 ? 0 - (uint64_t)borrowed : 0;
    if (borrowed < 0)
        return lent < share ? share - lent : 0;
    return (uint64_t)borrowed < UINT64_MAX - share ? share + (uint64_t)borrowed : UINT64_MAX - 1;
}

void account_reap_locked(unsigned device) REQUIRES(account_lock)
{
    int entry = account.region->devices[device].entry;
    if (entry >= 0)
        slot_reap_dead(account.region, account.region->slot, (unsigned)entry);
}

struct account_limits account_limits_locked(unsigned device) REQUIRES(account_lock)
{
    bool in_file = region_device_entry(account.region, device);
    const struct vgpu_device *known = &account.region->devices[device].known;
    return (struct account_limits){.bytes = known->memory_limit,
        .closed = known->memory_closed || (known->memory_limit && !in_file)};
}

struct account_limits account_limits_alone_locked(unsigned device) REQUIRES(account_lock)
{
    const struct vgpu_device *known = &account.region->devices[device].known;
    return (struct account_limits){
        .bytes = known->memory_limit, .closed = known->memory_closed || known->memory_limit};
}

/* The process's slot, to be looked at until account_look_end; NULL where it has none. */
static struct vgpu_slot *begin_slot_locked(void) REQUIRES(account_lock)
{
    if (account_is_without_region() || !account_look_begin())
        return NULL;
    struct vgpu_slot *slot = account_slot_locked();
    if (!slot)
        (void)account_look_end();
    return slot;
}

void account_set_ledger(unsigned ledger)
{
    LOCKED_TO_END(account_lock);
    account.ledger = ledger;
    struct vgpu_slot *slot = begin_slot_locked();
    if (slot) {
        store_relaxed(&slot->ledger, (uint64_t)ledger);
        (void)account_look_end();
    }
}

void account_show_release(
    uint32_t order, enum vgpu_release_state state, uint64_t released_bytes, uint64_t lacking_bytes)
{
    LOCKED_TO_END(account_lock);
    account.release = (struct account_release){.release = (uint64_t)order << 32 | (uint64_t)state,
        .released = released_bytes,
        .lacking = lacking_bytes};
    struct vgpu_slot *slot = begin_slot_locked();
    if (slot) {
        show_release_locked(slot);
        (void)account_look_end();
    }
}

/* What the slot says is kept: one that is taken anew says the same. */
static void see_release_locked(const struct vgpu_slot *slot) REQUIRES(account_lock)
{
    uint64_t said = load_acquire(&slot->release);
    if ((uint32_t)said == VGPU_RELEASE_CHECKPOINTED || (uint32_t)said == VGPU_RELEASE_PARKED)
        account.release.release = said;
}

bool account_is_checkpointed(void)
{
    LOCKED_TO_END(account_lock);
    const struct vgpu_slot *slot = begin_slot_locked();
    if (slot) {
        see_release_locked(slot);
        (void)account_look_end();
    }
    return (uint32_t)account.release.release == VGPU_RELEASE_CHECKPOINTED;
}

bool account_end_parked(void)
{
    LOCKED_TO_END(account_lock);
    uint64_t parked = account.release.release;
    uint64_t moving = parked >> 32 << 32 | (uint64_t)VGPU_RELEASE_MOVING;
    bool ended = (uint32_t)parked == VGPU_RELEASE_PARKED;
    struct vgpu_slot *slot = ended ? begin_slot_locked() : NULL;
    if (slot) {
        ended = swap_seq_cst(&slot->release, parked, moving);
        (void)account_look_end();
    }
    if (ended)
        account.release.release = moving;
    return ended;
}
