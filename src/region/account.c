/* SPDX-License-Identifier: Apache-2.0 */
/* The charge protocol over the region's slots. */
#include "region/account.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/guard.h"
#include "base/lock.h"
#include "base/log.h"
#include "region/slot.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define PENDING_WAIT_NS 100000000ull
#define REFUSAL_LOG_NS 1000000000ull
#define LOST_TRIES 10

/* What this process holds, from which a slot that was taken away is filled again. */
struct holdings {
    uint64_t bytes, pending, lingering, imported, exported;
    uint64_t kinds[ACCOUNT_KINDS];
};

static struct {
    struct lock
        lock; /* held over all that touches the region, never over a driver call or a sleep */
    struct region *region; /* set once, maybe late */
    int without;
    uint64_t ledger;
    uint64_t refusal_logged_ns;
    bool full_logged;
    struct holdings holdings[VGPU_REGION_DEVICES];
    uint64_t seen_free_bytes[VGPU_REGION_DEVICES]; /* at the last look; a hint */
} self;

void account_start(struct region *region, int without)
{
    lock_reset(&self.lock);
    self.region = region;
    self.without = without;
    self.ledger = 0;
    self.refusal_logged_ns = 0;
    self.full_logged = false;
    memset(self.holdings, 0, sizeof(self.holdings));
    memset(self.seen_free_bytes, 0, sizeof(self.seen_free_bytes));
}

void account_start_late(struct region *region)
{
    store_release(&self.region, region);
}

static bool is_without_region(void)
{
    return !load_acquire(&self.region);
}

/* A look at the region's words: its file is there, as far as can be told, and may go away while one
 * looks. */
static bool look_begin(void) REQUIRES(self.lock)
{
    if (load_acquire(&self.region->lost))
        return false;
    guard_enter();
    return true;
}

/* False where the file went away meanwhile: what was read means nothing. */
static bool look_end(void) REQUIRES(self.lock)
{
    guard_leave();
    return !load_acquire(&self.region->lost);
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
    struct region *region = self.region;
    for (unsigned d = 0; d < region->device_count; d++) {
        const struct holdings *held = &self.holdings[d];
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
            store_relaxed(kind_word(usage, k), held->kinds[k]);
        add_seq_cst(&usage->bytes, held->bytes);
    }
    store_relaxed(&slot->ledger, self.ledger);
}

static bool slot_is_ours(void) REQUIRES(self.lock)
{
    const struct region *region = self.region;
    return region->slot >= 0 &&
           load_seq_cst(&region->shared->slots[region->slot].state) == region->word;
}

/* The process's slot: claimed at first need, and anew with all that is held where a peer took it
 * for dead or the file was made anew. NULL where none is to be had. */
static struct vgpu_slot *slot_locked(void) REQUIRES(self.lock)
{
    struct region *region = self.region;
    struct vgpu_slot *slots = region->shared->slots;
    if (!slot_is_ours()) {
        if (region->slot >= 0)
            slot_unlock(region, (unsigned)region->slot);
        region->slot = slot_claim(region, &region->word);
        region->slot_is_empty = true;
    }
    if (region->slot < 0) {
        if (!self.full_logged)
            log_warning("no slot in the shared region: %s",
                region->slot == -ENOSPC ? "all are taken, or its file system is full"
                                        : strerror(-region->slot));
        self.full_logged = true;
        return NULL;
    }
    if (region->slot_is_empty)
        fill_slot_locked(&slots[region->slot]);
    region->slot_is_empty = false;
    return &slots[region->slot];
}

/* NULL where the process has no place in the region for the device. */
static struct vgpu_usage *usage_locked(unsigned device) REQUIRES(self.lock)
{
    if (!region_device_entry(self.region, device))
        return NULL;
    struct vgpu_slot *slot = slot_locked();
    return slot ? &slot->usage[self.region->devices[device].entry] : NULL;
}

static uint64_t at_most(uint64_t value, uint64_t bound)
{
    return value < bound ? value : bound;
}

static uint64_t at_least(uint64_t value, uint64_t bound)
{
    return value > bound ? value : bound;
}

struct sum {
    uint64_t bytes;          /* all live slots, lingering included */
    uint64_t imported;       /* held on memory of others */
    uint64_t others_pending; /* the part that other processes may yet take back */
};

static struct sum sum_slots(unsigned device) REQUIRES(self.lock)
{
    struct sum sum = {0};
    struct region *region = self.region;
    int entry = region->devices[device].entry;
    if (entry < 0)
        return sum;
    uint64_t lingering = 0, imported = 0;
    uint64_t *orphaned = &region->shared->devices[entry].orphaned;
    uint64_t left = load_seq_cst(orphaned);
    unsigned bound = region_slot_bound(region);
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
    store_relaxed(&self.seen_free_bytes[device], limit > sum.bytes ? limit - sum.bytes : 0);
    return sum;
}

/* Before a refusal, which then looks again: somebody else may have reaped them a moment ago. */
static void reap_locked(unsigned device) REQUIRES(self.lock)
{
    int entry = self.region->devices[device].entry;
    if (entry >= 0)
        slot_reap_dead(self.region, self.region->slot, (unsigned)entry);
}

struct limits {
    uint64_t bytes; /* 0: none */
    bool closed;
};

/* As the file says. A device that found no room in it cannot be kept to its limit. */
static struct limits limits_locked(unsigned device) REQUIRES(self.lock)
{
    bool in_file = region_device_entry(self.region, device);
    const struct vgpu_device *known = &self.region->devices[device].known;
    return (struct limits){.bytes = known->memory_limit,
        .closed = known->memory_closed || (known->memory_limit && !in_file)};
}

/* As the file last said. Without it nobody is kept to a limit, so a limited device is full. */
static struct limits limits_alone_locked(unsigned device) REQUIRES(self.lock)
{
    const struct vgpu_device *known = &self.region->devices[device].known;
    return (struct limits){
        .bytes = known->memory_limit, .closed = known->memory_closed || known->memory_limit};
}

static void refusal_log(unsigned device, uint64_t limit, uint64_t bytes) REQUIRES(self.lock)
{
    uint64_t now = clock_now_ns();
    if (self.refusal_logged_ns && now - self.refusal_logged_ns < REFUSAL_LOG_NS)
        return;
    self.refusal_logged_ns = now;
    log_warning("Device %u OOM %llu / %llu (%llu more bytes were asked for)", device,
        (unsigned long long)sum_slots(device).bytes, (unsigned long long)limit,
        (unsigned long long)bytes);
}

static void closed_log(unsigned device)
{
    static bool logged;
    if (!exchange_acq_rel(&logged, true))
        log_warning(
            "device %u is treated as full: its limit is not understood or cannot be kept", device);
}

/* bytes more than used would pass the limit; no overflow whatever is asked. */
static bool passes(uint64_t used, uint64_t bytes, uint64_t limit)
{
    return used > limit || bytes > limit - used;
}

/* Both within a look. */
static int refuse_locked(unsigned device, uint64_t bytes, const struct limits *limits)
    REQUIRES(self.lock)
{
    if (limits->closed)
        closed_log(device);
    else
        refusal_log(device, limits->bytes, bytes);
    store_relaxed(&self.seen_free_bytes[device], 0);
    return -ENOMEM;
}

static int check_locked(unsigned device, uint64_t bytes) REQUIRES(self.lock)
{
    struct limits limits = limits_locked(device);
    if (limits.closed)
        return refuse_locked(device, bytes, &limits);
    if (!limits.bytes)
        return 0;
    if (passes(self.holdings[device].bytes, bytes, limits.bytes))
        return refuse_locked(device, bytes, &limits);
    (void)usage_locked(device); /* what we hold must be in the sum */
    struct sum sum = sum_slots(device);
    if (!passes(sum.bytes - sum.others_pending, bytes, limits.bytes))
        return 0;
    reap_locked(device);
    sum = sum_slots(device);
    if (!passes(sum.bytes - sum.others_pending, bytes, limits.bytes))
        return 0;
    return refuse_locked(device, bytes, &limits);
}

bool account_seems_free(unsigned device, uint64_t bytes)
{
    return bytes < load_relaxed(&self.seen_free_bytes[device]) / 2;
}

int account_check(unsigned device, uint64_t bytes)
{
    int error = 0;
    if (is_without_region())
        return self.without;
    lock_take(&self.lock);
    if (look_begin()) {
        error = check_locked(device, bytes);
        if (!look_end())
            error = 0; /* the charge itself will tell */
    }
    lock_release(&self.lock);
    return error;
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

enum attempt {
    FITS,
    FULL, /* for the sake of the peers */
    WAIT, /* for peers that may yet take back */
    HOPELESS,
    EMPTIED, /* the file was emptied and filled by others meanwhile: charge again */
};

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

static enum attempt try_locked(unsigned device, uint64_t bytes, enum account_kind kind)
    REQUIRES(self.lock)
{
    struct limits limits = limits_locked(device);
    if (limits.closed || (limits.bytes && passes(self.holdings[device].bytes, bytes, limits.bytes)))
        return HOPELESS;
    struct vgpu_usage *usage = usage_locked(device);
    if (!usage && limits.bytes)
        return HOPELESS;
    add_locked(usage, device, bytes, kind, true);
    if (!limits.bytes)
        return FITS;
    struct sum sum = sum_slots(device);
    forget_lingering_locked(usage, device, &sum);
    if (!slot_is_ours())
        return EMPTIED;
    if (sum.bytes <= limits.bytes)
        return FITS;
    take_back_locked(usage, device, bytes, kind, true);
    return sum.bytes - sum.others_pending > limits.bytes ? FULL : WAIT;
}

static enum attempt try_alone_locked(unsigned device, uint64_t bytes, enum account_kind kind)
    REQUIRES(self.lock)
{
    if (limits_alone_locked(device).closed)
        return HOPELESS;
    add_locked(NULL, device, bytes, kind, true);
    return FITS;
}

/* A charge in a file that went away meanwhile is made again in the one that takes its place; what
 * does not fit where the file was not looked for just now is tried again where it was. */
static enum attempt try_reserve_locked(
    unsigned device, uint64_t bytes, enum account_kind kind, bool reap) REQUIRES(self.lock)
{
    bool sure = !region_was_kept(self.region);
    for (int i = 0; i < LOST_TRIES; i++, sure = true) {
        if ((sure && region_keep(self.region) != 0) || !look_begin())
            break;
        enum attempt result = try_locked(device, bytes, kind);
        /* A dead peer's bytes, pending or not, are in nobody's way. */
        if (sure && (result == FULL || (result == WAIT && reap))) {
            reap_locked(device);
            result = try_locked(device, bytes, kind);
        }
        bool there = look_end();
        if (there && result != EMPTIED && (sure || result == FITS))
            return result;
        if (result == FITS || result == EMPTIED)
            take_back_locked(NULL, device, bytes, kind, true);
    }
    return try_alone_locked(device, bytes, kind);
}

static enum attempt try_reserve(unsigned device, uint64_t bytes, enum account_kind kind, bool reap)
{
    lock_take(&self.lock);
    enum attempt result = try_reserve_locked(device, bytes, kind, reap);
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
        now = clock_now_ns();
        bool last = now - start >= PENDING_WAIT_NS;
        result = try_reserve(device, bytes, kind, last);
        if (last)
            break;
    } while (result == WAIT);
    return result == WAIT ? FULL : result;
}

static int refuse(unsigned device, uint64_t bytes)
{
    lock_take(&self.lock);
    if (look_begin()) {
        struct limits limits = limits_locked(device);
        (void)refuse_locked(device, bytes, &limits);
        (void)look_end();
    } else {
        closed_log(device);
    }
    lock_release(&self.lock);
    return -ENOMEM;
}

int account_reserve(unsigned device, uint64_t bytes, enum account_kind kind)
{
    if (is_without_region())
        return self.without;
    enum attempt result = try_reserve(device, bytes, kind, true);
    if (result == WAIT)
        result = reserve_waiting(device, bytes, kind);
    return result == FITS ? 0 : refuse(device, bytes);
}

/* A change of what this process holds. Without a place in the region it is remembered all the
 * same, and written where the process finds a place again. */
struct change {
    bool looking;
    struct vgpu_usage *usage; /* NULL: no place */
};

static struct change change_begin(unsigned device) REQUIRES(self.lock)
{
    struct change change;
    change.looking = look_begin();
    change.usage = change.looking ? usage_locked(device) : NULL;
    return change;
}

static void change_end(const struct change *change) REQUIRES(self.lock)
{
    if (change->looking)
        (void)look_end();
}

void account_commit(unsigned device, uint64_t bytes)
{
    if (is_without_region())
        return;
    lock_take(&self.lock);
    struct change change = change_begin(device);
    struct holdings *held = &self.holdings[device];
    bytes = at_most(bytes, held->pending);
    held->pending -= bytes;
    if (change.usage)
        sub_seq_cst(&change.usage->pending, bytes);
    change_end(&change);
    lock_release(&self.lock);
}

void account_add(unsigned device, uint64_t bytes, enum account_kind kind)
{
    if (is_without_region())
        return;
    lock_take(&self.lock);
    struct change change = change_begin(device);
    add_locked(change.usage, device, bytes, kind, false);
    change_end(&change);
    lock_release(&self.lock);
}

void account_release(unsigned device, uint64_t bytes, enum account_kind kind)
{
    if (is_without_region())
        return;
    lock_take(&self.lock);
    struct change change = change_begin(device);
    take_back_locked(change.usage, device, bytes, kind, false);
    change_end(&change);
    lock_release(&self.lock);
}

void account_add_lingering(unsigned device, uint64_t bytes)
{
    if (is_without_region())
        return;
    lock_take(&self.lock);
    struct change change = change_begin(device);
    struct holdings *held = &self.holdings[device];
    /* Without an import nothing lingers, and what did before is gone. */
    bool lingers = change.looking && sum_slots(device).imported;
    held->lingering = lingers ? held->lingering + bytes : 0;
    if (change.usage)
        store_relaxed(&change.usage->lingering, held->lingering);
    change_end(&change);
    lock_release(&self.lock);
}

void account_add_exported(unsigned device, int64_t bytes)
{
    if (is_without_region())
        return;
    lock_take(&self.lock);
    self.holdings[device].exported += (uint64_t)bytes;
    struct change change = change_begin(device);
    if (change.usage)
        store_relaxed(&change.usage->exported, self.holdings[device].exported);
    change_end(&change);
    lock_release(&self.lock);
}

void account_set_imported(unsigned device, uint64_t bytes)
{
    if (is_without_region())
        return;
    lock_take(&self.lock);
    self.holdings[device].imported = bytes;
    struct change change = change_begin(device);
    if (change.usage)
        store_relaxed(&change.usage->imported, bytes);
    change_end(&change);
    lock_release(&self.lock);
}

uint64_t account_own_bytes(unsigned device, enum account_kind kind)
{
    const struct holdings *held = &self.holdings[device];
    return load_relaxed(kind == ACCOUNT_KINDS ? &held->bytes : &held->kinds[kind]);
}

static void view_alone_locked(unsigned device, struct account_view *ret_view) REQUIRES(self.lock)
{
    struct limits limits = limits_alone_locked(device);
    *ret_view = (struct account_view){.limit_bytes = limits.bytes,
        .used_bytes = self.holdings[device].bytes,
        .closed = limits.closed};
}

static void view_locked(unsigned device, struct account_view *ret_view) REQUIRES(self.lock)
{
    bool sure = !region_was_kept(self.region);
    for (int i = 0; i < LOST_TRIES; i++, sure = true) {
        if ((sure && region_keep(self.region) != 0) || !look_begin())
            break;
        struct limits limits = limits_locked(device);
        /* What we hold must be in the sum; without a slot nothing more can be had. */
        bool present = usage_locked(device) != NULL;
        reap_locked(device);
        *ret_view = (struct account_view){.limit_bytes = limits.bytes,
            .used_bytes = sum_slots(device).bytes,
            .closed = limits.closed || (limits.bytes && !present)};
        if (look_end())
            return;
    }
    view_alone_locked(device, ret_view);
}

void account_view(unsigned device, struct account_view *ret_view)
{
    *ret_view = (struct account_view){0};
    if (is_without_region()) {
        ret_view->closed = self.without != 0;
        return;
    }
    lock_take(&self.lock);
    view_locked(device, ret_view);
    lock_release(&self.lock);
}

static unsigned processes_locked(unsigned entry, struct account_process *ret_processes)
    REQUIRES(self.lock)
{
    unsigned count = 0;
    unsigned bound = region_slot_bound(self.region);
    for (unsigned i = 0; i < bound; i++) {
        struct vgpu_slot *slot = &self.region->shared->slots[i];
        uint64_t word = load_acquire(&slot->state);
        uint64_t bytes = load_relaxed(&slot->usage[entry].bytes);
        uint64_t managed = load_relaxed(&slot->usage[entry].managed);
        if (slot_word_state(word) == VGPU_SLOT_LIVE && bytes > managed)
            ret_processes[count++] = (struct account_process){slot_word_pid(word), bytes - managed};
    }
    return count;
}

unsigned account_processes(
    unsigned device, struct account_process ret_processes[ACCOUNT_PROCESSES_MAX])
{
    unsigned count = 0;
    if (is_without_region())
        return 0;
    lock_take(&self.lock);
    if (region_keep(self.region) == 0 && look_begin()) {
        bool present = usage_locked(device) != NULL;
        reap_locked(device);
        if (present)
            count = processes_locked((unsigned)self.region->devices[device].entry, ret_processes);
        if (!look_end())
            count = 0;
    }
    lock_release(&self.lock);
    return count;
}

int account_device(const char *uuid, int index)
{
    int number = -ENODEV;
    if (is_without_region())
        return -ENODEV;
    lock_take(&self.lock);
    for (int i = 0; i < LOST_TRIES; i++) {
        if (region_keep(self.region) != 0 || !look_begin())
            break;
        number = region_device(self.region, uuid, index);
        if (look_end())
            break;
        number = -EAGAIN;
    }
    lock_release(&self.lock);
    return number;
}

static unsigned core_limit_locked(unsigned device) REQUIRES(self.lock)
{
    const struct vgpu_device *entry = region_device_entry(self.region, device);
    uint32_t percent =
        entry ? load_relaxed(&entry->core_limit) : self.region->devices[device].known.core_limit;
    return percent < 100 ? percent : 0;
}

bool account_core_limits(unsigned char ret_percent[VGPU_REGION_DEVICES])
{
    bool any = false;
    memset(ret_percent, 0, VGPU_REGION_DEVICES);
    lock_take(&self.lock);
    if (self.region) {
        (void)!region_keep(self.region);
        guard_enter();
        for (unsigned d = 0; d < self.region->device_count; d++) {
            ret_percent[d] = (unsigned char)core_limit_locked(d);
            any |= ret_percent[d] != 0;
        }
        guard_leave();
    }
    lock_release(&self.lock);
    return any;
}

bool account_visit_compute(unsigned device,
    void (*visit)(struct vgpu_compute *words, struct vgpu_usage *own, void *argument),
    void *argument)
{
    bool visited = false;
    lock_take(&self.lock);
    if (self.region && look_begin()) {
        struct vgpu_usage *own = usage_locked(device);
        int entry = self.region->devices[device].entry;
        if (entry >= 0) {
            visit(&self.region->shared->compute[entry], own, argument);
            visited = true;
        }
        (void)look_end();
    }
    lock_release(&self.lock);
    return visited;
}

unsigned account_asking(unsigned device, uint64_t since_ns)
{
    unsigned asking = 0;
    lock_take(&self.lock);
    if (self.region && look_begin()) {
        int entry = self.region->devices[device].entry;
        unsigned bound = entry >= 0 ? region_slot_bound(self.region) : 0;
        for (unsigned i = 0; i < bound; i++) {
            const struct vgpu_slot *slot = &self.region->shared->slots[i];
            if (slot_word_state(load_relaxed(&slot->state)) == VGPU_SLOT_LIVE)
                asking += load_relaxed(&slot->usage[entry].asked_ns) > since_ns;
        }
        (void)look_end();
    }
    lock_release(&self.lock);
    return asking;
}

uint64_t account_tenant(unsigned device)
{
    uint64_t tenant = 0;
    lock_take(&self.lock);
    if (self.region && look_begin()) {
        tenant = region_device_tenant(self.region, device);
        (void)look_end();
    }
    lock_release(&self.lock);
    return tenant;
}

void account_set_ledger(unsigned ledger)
{
    lock_take(&self.lock);
    self.ledger = ledger;
    if (!is_without_region() && look_begin()) {
        struct vgpu_slot *slot = slot_locked();
        if (slot)
            store_relaxed(&slot->ledger, (uint64_t)ledger);
        (void)look_end();
    }
    lock_release(&self.lock);
}
