/* SPDX-License-Identifier: Apache-2.0 */
/* The charge protocol over the region's slots. */
#include "region/account.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "region/slot.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define PENDING_WAIT_NS 100000000ull
#define REFUSAL_LOG_NS 1000000000ull

/* What this process holds, from which a slot that was taken away is filled again. */
struct holdings {
    uint64_t bytes, pending, lingering, imported, exported;
    uint64_t kinds[ACCOUNT_KINDS];
};

static struct {
    struct lock lock; /* held over slot writes, never over a wait or a driver call */
    struct region *region;
    int without;
    int slot; /* -1: none yet */
    uint64_t word;
    uint64_t ledger;
    uint64_t refusal_logged_ns;
    bool full_logged;
    struct holdings holdings[VGPU_REGION_DEVICES];
} self = {.slot = -1, .without = 0};

void account_start(struct region *region, int without)
{
    lock_reset(&self.lock);
    self.region = region;
    self.without = without;
    self.slot = region ? region->slot : -1;
    self.word = region ? region->word : 0;
    self.ledger = 0;
    self.refusal_logged_ns = 0;
    self.full_logged = false;
    memset(self.holdings, 0, sizeof(self.holdings));
}

static uint64_t *kind_word(struct vgpu_usage *usage, enum account_kind kind)
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
    default:
        return &usage->buffer;
    }
}

static void fill_slot_locked(struct vgpu_slot *slot) REQUIRES(self.lock)
{
    for (unsigned d = 0; d < VGPU_REGION_DEVICES; d++) {
        const struct holdings *held = &self.holdings[d];
        struct vgpu_usage *usage = &slot->usage[d];
        if (!held->bytes && !held->lingering && !held->imported)
            continue;
        store_relaxed(&usage->pending, held->pending);
        store_relaxed(&usage->lingering, held->lingering);
        store_relaxed(&usage->imported, held->imported);
        store_relaxed(&usage->exported, held->exported);
        for (int k = 0; k < ACCOUNT_KINDS; k++)
            store_relaxed(kind_word(usage, k), held->kinds[k]);
        add_seq_cst(&usage->bytes, held->bytes);
    }
    store_relaxed(&slot->ledger, self.ledger);
}

/* The process's slot: claimed at first need, and anew with all that is held where a peer took it
 * for dead. NULL where none is to be had. */
static struct vgpu_slot *slot_locked(void) REQUIRES(self.lock)
{
    struct vgpu_region *shared = self.region->shared;
    if (self.slot >= 0 && load_acquire(&shared->slots[self.slot].state) == self.word)
        return &shared->slots[self.slot];
    if (self.slot >= 0)
        slot_unlock(self.region, (unsigned)self.slot);
    int slot = slot_claim(self.region, &self.word);
    if (slot < 0) {
        if (!self.full_logged)
            log_warning("no slot in the shared region: %s",
                slot == -ENOSPC ? "all are taken, or its file system is full" : strerror(-slot));
        self.full_logged = true;
        self.slot = -1;
        return NULL;
    }
    self.slot = slot;
    fill_slot_locked(&shared->slots[slot]);
    return &shared->slots[slot];
}

static struct vgpu_usage *usage_locked(unsigned device) REQUIRES(self.lock)
{
    struct vgpu_slot *slot = slot_locked();
    return slot ? &slot->usage[device] : NULL;
}

static uint64_t at_most(uint64_t value, uint64_t bound)
{
    return value < bound ? value : bound;
}

struct sum {
    uint64_t bytes;          /* all live slots, lingering included */
    uint64_t imported;       /* held on memory of others */
    uint64_t others_pending; /* the part that other processes may yet take back */
};

static struct sum sum_slots(unsigned device)
{
    struct sum sum = {0};
    uint64_t lingering = 0, imported = 0;
    uint64_t *orphaned = &self.region->shared->devices[device].orphaned;
    uint64_t left = load_seq_cst(orphaned);
    unsigned bound = region_slot_bound(self.region);
    for (unsigned i = 0; i < bound; i++) {
        struct vgpu_slot *slot = &self.region->shared->slots[i];
        if (slot_word_state(load_seq_cst(&slot->state)) != VGPU_SLOT_LIVE)
            continue;
        struct vgpu_usage *usage = &slot->usage[device];
        uint64_t bytes = load_seq_cst(&usage->bytes);
        sum.bytes += bytes;
        lingering += load_relaxed(&usage->lingering);
        imported += load_relaxed(&usage->imported);
        if ((int)i != self.slot)
            sum.others_pending += at_most(load_relaxed(&usage->pending), bytes);
    }
    /* Where nobody holds an import, what was exported once is gone. */
    if (left && !imported)
        (void)swap_seq_cst(orphaned, left, (uint64_t)0);
    sum.imported = imported;
    sum.bytes += at_most(lingering + left, imported);
    return sum;
}

static uint64_t limit_of(unsigned device)
{
    return load_relaxed(&self.region->shared->devices[device].memory_limit);
}

static bool is_closed(unsigned device)
{
    return load_relaxed(&self.region->shared->devices[device].memory_closed) != 0;
}

static void refusal_log(unsigned device, uint64_t used, uint64_t limit, uint64_t bytes)
{
    uint64_t now = clock_now_ns();
    uint64_t last = load_relaxed(&self.refusal_logged_ns);
    if (last && now - last < REFUSAL_LOG_NS)
        return;
    store_relaxed(&self.refusal_logged_ns, now);
    log_warning("Device %u OOM %llu / %llu (%llu more bytes were asked for)", device,
        (unsigned long long)used, (unsigned long long)limit, (unsigned long long)bytes);
}

static void closed_log(unsigned device)
{
    static bool logged;
    if (!exchange_acq_rel(&logged, true))
        log_warning("device %u is treated as full: its limit is not understood", device);
}

static int refuse(unsigned device, uint64_t bytes)
{
    if (is_closed(device)) {
        closed_log(device);
        return -ENOMEM;
    }
    refusal_log(device, sum_slots(device).bytes, limit_of(device), bytes);
    return -ENOMEM;
}

/* bytes more than used would pass the limit; no overflow whatever is asked. */
static bool passes(uint64_t used, uint64_t bytes, uint64_t limit)
{
    return used > limit || bytes > limit - used;
}

int account_check(unsigned device, uint64_t bytes)
{
    if (!self.region)
        return self.without;
    if (is_closed(device))
        return refuse(device, bytes);
    uint64_t limit = limit_of(device);
    if (!limit)
        return 0;
    if (passes(load_relaxed(&self.holdings[device].bytes), bytes, limit))
        return refuse(device, bytes);
    struct sum sum = sum_slots(device);
    if (!passes(sum.bytes - sum.others_pending, bytes, limit))
        return 0;
    if (slot_reap_dead(self.region, self.slot, device)) {
        sum = sum_slots(device);
        if (!passes(sum.bytes - sum.others_pending, bytes, limit))
            return 0;
    }
    return refuse(device, bytes);
}

/* Pending is raised before bytes and lowered after, so that who sees the bytes sees that they may
 * go away again. */
static void add_locked(struct vgpu_usage *usage, unsigned device, uint64_t bytes,
    enum account_kind kind, bool pending) REQUIRES(self.lock)
{
    struct holdings *held = &self.holdings[device];
    store_relaxed(&held->bytes, held->bytes + bytes);
    store_relaxed(&held->kinds[kind], held->kinds[kind] + bytes);
    if (pending)
        held->pending += bytes;
    if (!usage)
        return;
    if (pending)
        add_seq_cst(&usage->pending, bytes);
    add_seq_cst(kind_word(usage, kind), bytes);
    add_seq_cst(&usage->bytes, bytes);
}

static void take_back_locked(struct vgpu_usage *usage, unsigned device, uint64_t bytes,
    enum account_kind kind, bool pending) REQUIRES(self.lock)
{
    struct holdings *held = &self.holdings[device];
    bytes = at_most(bytes, held->kinds[kind]);
    store_relaxed(&held->bytes, held->bytes - bytes);
    store_relaxed(&held->kinds[kind], held->kinds[kind] - bytes);
    if (pending)
        held->pending -= at_most(bytes, held->pending);
    if (!usage)
        return;
    sub_seq_cst(&usage->bytes, bytes);
    sub_seq_cst(kind_word(usage, kind), bytes);
    if (pending)
        sub_seq_cst(&usage->pending, bytes);
}

enum attempt { FITS, FULL, WAIT, NO_SLOT };

/* What this process exported and freed long ago does not count for imports that come later. */
static void forget_lingering_locked(
    struct vgpu_usage *usage, unsigned device, const struct sum *sum) REQUIRES(self.lock)
{
    struct holdings *held = &self.holdings[device];
    if (!held->lingering || sum->imported)
        return;
    held->lingering = 0;
    if (usage)
        store_relaxed(&usage->lingering, 0);
}

static enum attempt try_reserve(unsigned device, uint64_t bytes, enum account_kind kind)
{
    uint64_t limit = limit_of(device);
    lock_take(&self.lock);
    struct vgpu_usage *usage = usage_locked(device);
    enum attempt result = FITS;
    if (!usage && limit) {
        result = NO_SLOT;
    } else {
        add_locked(usage, device, bytes, kind, true);
        if (limit) {
            struct sum sum = sum_slots(device);
            forget_lingering_locked(usage, device, &sum);
            if (sum.bytes > limit) {
                result = sum.bytes - sum.others_pending > limit ? FULL : WAIT;
                take_back_locked(usage, device, bytes, kind, true);
            }
        }
    }
    lock_release(&self.lock);
    return result;
}

/* Others' pending bytes are in the way: they may yet be taken back. */
static enum attempt reserve_waiting(unsigned device, uint64_t bytes, enum account_kind kind)
{
    uint64_t start = clock_now_ns(), now = start, pause_ns = 20000;
    enum attempt result;
    do {
        /* Peers that retry in step would see each other for ever: the low bits of the clock
         * pull them apart. */
        sleep_ns(pause_ns + (now >> 4) % pause_ns);
        pause_ns = at_most(pause_ns * 2, 2000000);
        result = try_reserve(device, bytes, kind);
        now = clock_now_ns();
    } while (result == WAIT && now - start < PENDING_WAIT_NS);
    return result;
}

int account_reserve(unsigned device, uint64_t bytes, enum account_kind kind)
{
    if (!self.region)
        return self.without;
    uint64_t limit = limit_of(device);
    if (is_closed(device) ||
        (limit && passes(load_relaxed(&self.holdings[device].bytes), bytes, limit)))
        return refuse(device, bytes);
    enum attempt result = try_reserve(device, bytes, kind);
    if (result == FITS)
        return 0;
    /* A dead peer's bytes, pending or not, are in nobody's way. */
    if (result != NO_SLOT && slot_reap_dead(self.region, self.slot, device))
        result = try_reserve(device, bytes, kind);
    if (result == WAIT) {
        result = reserve_waiting(device, bytes, kind);
        if (result != FITS && slot_reap_dead(self.region, self.slot, device))
            result = try_reserve(device, bytes, kind);
    }
    return result == FITS ? 0 : refuse(device, bytes);
}

void account_commit(unsigned device, uint64_t bytes)
{
    if (!self.region)
        return;
    lock_take(&self.lock);
    struct vgpu_usage *usage = usage_locked(device);
    struct holdings *held = &self.holdings[device];
    bytes = at_most(bytes, held->pending);
    held->pending -= bytes;
    if (usage)
        sub_seq_cst(&usage->pending, bytes);
    lock_release(&self.lock);
}

void account_add(unsigned device, uint64_t bytes, enum account_kind kind)
{
    if (!self.region)
        return;
    lock_take(&self.lock);
    add_locked(usage_locked(device), device, bytes, kind, false);
    lock_release(&self.lock);
}

void account_release(unsigned device, uint64_t bytes, enum account_kind kind)
{
    if (!self.region)
        return;
    lock_take(&self.lock);
    take_back_locked(usage_locked(device), device, bytes, kind, false);
    lock_release(&self.lock);
}

void account_add_lingering(unsigned device, uint64_t bytes)
{
    if (!self.region)
        return;
    lock_take(&self.lock);
    struct vgpu_usage *usage = usage_locked(device);
    struct holdings *held = &self.holdings[device];
    /* Without an import nothing lingers, and what did before is gone. */
    held->lingering = sum_slots(device).imported ? held->lingering + bytes : 0;
    if (usage)
        store_relaxed(&usage->lingering, held->lingering);
    lock_release(&self.lock);
}

void account_add_exported(unsigned device, int64_t bytes)
{
    if (!self.region)
        return;
    lock_take(&self.lock);
    self.holdings[device].exported += (uint64_t)bytes;
    struct vgpu_usage *usage = usage_locked(device);
    if (usage)
        store_relaxed(&usage->exported, self.holdings[device].exported);
    lock_release(&self.lock);
}

void account_set_imported(unsigned device, uint64_t bytes)
{
    if (!self.region)
        return;
    lock_take(&self.lock);
    self.holdings[device].imported = bytes;
    struct vgpu_usage *usage = usage_locked(device);
    if (usage)
        store_relaxed(&usage->imported, bytes);
    lock_release(&self.lock);
}

uint64_t account_own_bytes(unsigned device, enum account_kind kind)
{
    const struct holdings *held = &self.holdings[device];
    return load_relaxed(kind == ACCOUNT_KINDS ? &held->bytes : &held->kinds[kind]);
}

void account_view(unsigned device, struct account_view *ret_view)
{
    *ret_view = (struct account_view){0};
    if (!self.region) {
        ret_view->closed = self.without != 0;
        return;
    }
    slot_reap_dead(self.region, self.slot, device);
    ret_view->limit_bytes = limit_of(device);
    ret_view->used_bytes = sum_slots(device).bytes;
    ret_view->closed = is_closed(device);
}

unsigned account_processes(
    unsigned device, struct account_process ret_processes[ACCOUNT_PROCESSES_MAX])
{
    unsigned count = 0;
    if (!self.region)
        return 0;
    slot_reap_dead(self.region, self.slot, device);
    unsigned bound = region_slot_bound(self.region);
    for (unsigned i = 0; i < bound; i++) {
        struct vgpu_slot *slot = &self.region->shared->slots[i];
        uint64_t word = load_acquire(&slot->state);
        uint64_t bytes = load_relaxed(&slot->usage[device].bytes);
        uint64_t managed = load_relaxed(&slot->usage[device].managed);
        if (slot_word_state(word) == VGPU_SLOT_LIVE && bytes > managed)
            ret_processes[count++] = (struct account_process){slot_word_pid(word), bytes - managed};
    }
    return count;
}

void account_set_ledger(unsigned ledger)
{
    if (!self.region)
        return;
    lock_take(&self.lock);
    self.ledger = ledger;
    struct vgpu_slot *slot = slot_locked();
    if (slot)
        store_relaxed(&slot->ledger, (uint64_t)ledger);
    lock_release(&self.lock);
}
