/* SPDX-License-Identifier: Apache-2.0 */
/* The charge protocol over the region's slots. */
#include "account/account.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sleep.h"
#include "account/account_self.h"
#include "region/slot.h"

#include <errno.h>

#define PENDING_WAIT_NS 100000000ull
#define REFUSAL_LOG_NS 1000000000ull

static uint64_t at_most(uint64_t value, uint64_t bound)
{
    return value < bound ? value : bound;
}

static void refusal_log(unsigned device, uint64_t limit, uint64_t bytes) REQUIRES(account_lock)
{
    uint64_t now = clock_now_ns();
    if (account.refusal_logged_ns && now - account.refusal_logged_ns < REFUSAL_LOG_NS)
        return;
    account.refusal_logged_ns = now;
    log_error("Device %u OOM %llu / %llu (%llu more bytes were asked for)", device,
        (unsigned long long)account_sum_locked(device).bytes, (unsigned long long)limit,
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
static void count_refusal_locked(unsigned device) REQUIRES(account_lock)
{
    int entry = account.region->devices[device].entry;
    if (entry >= 0)
        add_relaxed(&account.region->shared->devices[entry].refusals, (uint64_t)1);
}

static int refuse_locked(unsigned device, uint64_t bytes, const struct account_limits *limits)
    REQUIRES(account_lock)
{
    if (limits->closed)
        closed_log(device);
    else
        refusal_log(device, limits->bytes, bytes);
    count_refusal_locked(device);
    store_relaxed(&account.seen_free_bytes[device], 0);
    return -ENOMEM;
}

static int check_locked(unsigned device, uint64_t bytes) REQUIRES(account_lock)
{
    struct account_limits limits = account_limits_locked(device);
    if (limits.closed)
        return refuse_locked(device, bytes, &limits);
    if (!limits.bytes)
        return 0;
    if (passes(account.holdings[device].bytes, bytes, limits.bytes))
        return refuse_locked(device, bytes, &limits);
    (void)account_usage_locked(device); /* what we hold must be in the sum */
    struct account_sum sum = account_sum_locked(device);
    if (!passes(sum.bytes - sum.others_pending, bytes, limits.bytes))
        return 0;
    account_reap_locked(device);
    sum = account_sum_locked(device);
    if (!passes(sum.bytes - sum.others_pending, bytes, limits.bytes))
        return 0;
    return refuse_locked(device, bytes, &limits);
}

bool account_seems_free(unsigned device, uint64_t bytes)
{
    return bytes < load_relaxed(&account.seen_free_bytes[device]) / 2;
}

int account_check(unsigned device, uint64_t bytes)
{
    int error = 0;
    if (account_is_without_region())
        return account_without();
    LOCKED_TO_END(account_lock);
    if (account_look_begin()) {
        error = check_locked(device, bytes);
        if (!account_look_end())
            error = 0; /* the charge itself will tell */
    }
    return error;
}

/* For tools alone. */
static void show_movable_locked(
    struct vgpu_usage *usage, unsigned device, enum account_kind changed) REQUIRES(account_lock)
{
    if (changed == ACCOUNT_MOVABLE)
        store_relaxed(&usage->movable, account.holdings[device].kinds[ACCOUNT_MOVABLE]);
}

/* Pending is raised before bytes and lowered after, so that a process that sees the bytes sees that
 * they may go away again. */
static void add_locked(struct vgpu_usage *usage, unsigned device, uint64_t bytes,
    enum account_kind kind, bool pending) REQUIRES(account_lock)
{
    struct account_holdings *held = &account.holdings[device];
    store_relaxed(&held->bytes, held->bytes + bytes);
    store_relaxed(&held->kinds[kind], held->kinds[kind] + bytes);
    if (pending)
        held->pending += bytes;
    if (!usage)
        return;
    if (pending)
        add_seq_cst(&usage->pending, bytes);
    add_seq_cst(account_kind_word(usage, kind), bytes);
    add_seq_cst(&usage->bytes, bytes);
    show_movable_locked(usage, device, kind);
    account_show_locked(device);
}

static void take_back_locked(struct vgpu_usage *usage, unsigned device, uint64_t bytes,
    enum account_kind kind, bool pending) REQUIRES(account_lock)
{
    struct account_holdings *held = &account.holdings[device];
    bytes = at_most(bytes, held->kinds[kind]);
    store_relaxed(&held->bytes, held->bytes - bytes);
    store_relaxed(&held->kinds[kind], held->kinds[kind] - bytes);
    if (pending)
        held->pending -= at_most(bytes, held->pending);
    if (!usage)
        return;
    sub_seq_cst(&usage->bytes, bytes);
    sub_seq_cst(account_kind_word(usage, kind), bytes);
    if (pending)
        sub_seq_cst(&usage->pending, bytes);
    show_movable_locked(usage, device, kind);
    account_show_locked(device);
}

enum attempt {
    FITS,
    FULL, /* for the sake of the peers */
    WAIT, /* for peers that may yet take back */
    HOPELESS,
    ELSEWHERE,  /* the limit allows it, but not there: the share or the host's budget is used up */
    WAIT_THERE, /* of the host's budget: for peers that may yet take back */
    EMPTIED,    /* the file was emptied and filled by others meanwhile: charge again */
};

/* What this process exported and freed long ago does not count for imports that come later. */
static void forget_lingering_locked(
    struct vgpu_usage *usage, unsigned device, const struct account_sum *sum) REQUIRES(account_lock)
{
    struct account_holdings *held = &account.holdings[device];
    if (!held->lingering || sum->imported)
        return;
    held->lingering = 0;
    if (usage)
        store_relaxed(&usage->lingering, 0);
}

static bool is_wait(enum attempt attempt)
{
    return attempt == WAIT || attempt == WAIT_THERE;
}

/* After the addition. What has no room in the share spills, and does not wait; without room on the
 * host it would be refused. What is pending is read before and after what is used: it may be taken
 * back in between. */
static enum attempt find_place_locked(unsigned device, enum account_kind kind)
    REQUIRES(account_lock)
{
    uint64_t share = kind == ACCOUNT_MOVABLE ? account_allowed_locked(device) : UINT64_MAX;
    uint64_t budget = kind == ACCOUNT_SPILLED ? account.host_budget_bytes : UINT64_MAX;
    if (share != UINT64_MAX && account_resident_locked(device) > share)
        return ELSEWHERE;
    if (budget == UINT64_MAX)
        return FITS;
    uint64_t pending = account_others_pending_locked(), used = account_host_used_locked();
    if (used <= budget)
        return FITS;
    uint64_t still = account_others_pending_locked();
    return used - budget > (pending > still ? pending : still) ? ELSEWHERE : WAIT_THERE;
}

static enum attempt try_locked(unsigned device, uint64_t bytes, enum account_kind kind)
    REQUIRES(account_lock)
{
    struct account_limits limits = account_limits_locked(device);
    if (limits.closed ||
        (limits.bytes && passes(account.holdings[device].bytes, bytes, limits.bytes)))
        return HOPELESS;
    struct vgpu_usage *usage = account_usage_locked(device);
    if (!usage && limits.bytes)
        return HOPELESS;
    add_locked(usage, device, bytes, kind, true);
    enum attempt place = find_place_locked(device, kind);
    if (place != FITS) {
        take_back_locked(usage, device, bytes, kind, true);
        return place;
    }
    if (!limits.bytes) {
        store_relaxed(&account.seen_free_bytes[device], UINT64_MAX);
        return FITS;
    }
    struct account_sum sum = account_sum_locked(device);
    forget_lingering_locked(usage, device, &sum);
    if (!account_slot_is_ours())
        return EMPTIED;
    if (sum.bytes <= limits.bytes)
        return FITS;
    take_back_locked(usage, device, bytes, kind, true);
    return sum.bytes - sum.others_pending > limits.bytes ? FULL : WAIT;
}

static enum attempt try_alone_locked(unsigned device, uint64_t bytes, enum account_kind kind)
    REQUIRES(account_lock)
{
    if (account_limits_alone_locked(device).closed)
        return HOPELESS;
    add_locked(NULL, device, bytes, kind, true);
    return FITS;
}

/* A charge in a file that went away meanwhile is made again in the one that takes its place; what
 * does not fit where the file was not looked for just now is tried again where it was. */
static enum attempt try_reserve_locked(
    unsigned device, uint64_t bytes, enum account_kind kind, bool reap) REQUIRES(account_lock)
{
    bool sure = !region_was_kept(account.region);
    for (int i = 0; i < ACCOUNT_LOST_TRIES; i++, sure = true) {
        if ((sure && region_keep(account.region) != 0) || !account_look_begin())
            break;
        enum attempt result = try_locked(device, bytes, kind);
        /* A dead peer's bytes, pending or not, are in nobody's way. */
        if (sure && (result == FULL || result == ELSEWHERE || (is_wait(result) && reap))) {
            if (kind == ACCOUNT_SPILLED) /* the host's memory is one, whatever the device */
                slot_reap_all(account.region, account.region->slot);
            account_reap_locked(device);
            result = try_locked(device, bytes, kind);
        }
        bool there = account_look_end();
        if (there && result != EMPTIED && (sure || result == FITS))
            return result;
        if (result == FITS || result == EMPTIED)
            take_back_locked(NULL, device, bytes, kind, true);
    }
    return try_alone_locked(device, bytes, kind);
}

static enum attempt try_reserve(unsigned device, uint64_t bytes, enum account_kind kind, bool reap)
{
    LOCKED_TO_END(account_lock);
    return try_reserve_locked(device, bytes, kind, reap);
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
    } while (is_wait(result));
    return result == WAIT ? FULL : result == WAIT_THERE ? ELSEWHERE : result;
}

static int refuse(unsigned device, uint64_t bytes)
{
    LOCKED_TO_END(account_lock);
    if (account_look_begin()) {
        struct account_limits limits = account_limits_locked(device);
        (void)refuse_locked(device, bytes, &limits);
        (void)account_look_end();
    } else {
        closed_log(device);
    }
    return -ENOMEM;
}

int account_reserve(unsigned device, uint64_t bytes, enum account_kind kind)
{
    if (account_is_without_region())
        return account_without();
    enum attempt result = try_reserve(device, bytes, kind, true);
    if (is_wait(result))
        result = reserve_waiting(device, bytes, kind);
    if (result == ELSEWHERE)
        return -EDQUOT;
    return result == FITS ? 0 : refuse(device, bytes);
}

/* ---- more memory than the card has ---- */

void account_set_ratio(unsigned device, uint64_t ratio)
{
    store_relaxed(&account.ratio[device], ratio);
}

uint64_t account_ratio(unsigned device)
{
    return load_relaxed(&account.ratio[device]);
}

bool account_is_oversubscribed(unsigned device)
{
    if (!account_ratio(device) || account_is_without_region())
        return false;
    LOCKED_TO_END(account_lock);
    struct account_limits limits = account_limits_alone_locked(device);
    return limits.bytes != 0;
}

uint64_t account_resident_room(unsigned device, uint64_t wanted)
{
    uint64_t room = UINT64_MAX; /* the region went away: the card is the bound */
    if (account_is_without_region())
        return room;
    LOCKED_TO_END(account_lock);
    if (account_look_begin()) {
        uint64_t share = account_allowed_locked(device);
        uint64_t resident = share == UINT64_MAX ? 0 : account_resident_locked(device);
        if (share != UINT64_MAX && share - at_most(resident, share) < wanted) {
            account_reap_locked(device);
            resident = account_resident_locked(device);
        }
        room = share == UINT64_MAX ? share : share - at_most(resident, share);
        (void)account_look_end();
    }
    return room;
}

void account_set_host_budget(uint64_t bytes)
{
    LOCKED_TO_END(account_lock);
    account.host_budget_bytes = bytes;
}

uint64_t account_host_budget(void)
{
    LOCKED_TO_END(account_lock);
    return account.host_budget_bytes;
}

uint64_t account_spilled_bytes(void)
{
    uint64_t bytes = 0;
    if (account_is_without_region())
        return 0;
    LOCKED_TO_END(account_lock);
    if (account_look_begin()) {
        slot_reap_all(account.region, account.region->slot);
        bytes = account_spilled_locked();
        (void)account_look_end();
    }
    return bytes;
}

/* A change of what this process holds. Without a place in the region it is remembered all the
 * same, and written where the process finds a place again. */
struct change {
    bool looking;
    struct vgpu_usage *usage; /* NULL: no place */
};

static struct change change_begin(unsigned device) REQUIRES(account_lock)
{
    struct change change;
    change.looking = account_look_begin();
    change.usage = change.looking ? account_usage_locked(device) : NULL;
    return change;
}

static void change_end(const struct change *change) REQUIRES(account_lock)
{
    if (change->looking)
        (void)account_look_end();
}

/* The new kind is raised before the old one is lowered: others may see both, and refuse what they
 * could have had, but never neither. */
static void recount_locked(struct vgpu_usage *usage, unsigned device, uint64_t bytes,
    enum account_kind from, enum account_kind to) REQUIRES(account_lock)
{
    struct account_holdings *held = &account.holdings[device];
    bytes = at_most(bytes, held->kinds[from]);
    store_relaxed(&held->kinds[to], held->kinds[to] + bytes);
    store_relaxed(&held->kinds[from], held->kinds[from] - bytes);
    if (!usage)
        return;
    add_seq_cst(account_kind_word(usage, to), bytes);
    sub_seq_cst(account_kind_word(usage, from), bytes);
    show_movable_locked(usage, device, ACCOUNT_MOVABLE);
    account_show_locked(device);
}

int account_move(unsigned device, uint64_t bytes, enum account_kind from, enum account_kind to)
{
    int error = 0;
    if (account_is_without_region())
        return 0;
    LOCKED_TO_END(account_lock);
    struct change change = change_begin(device);
    recount_locked(change.usage, device, bytes, from, to);
    if (change.usage && find_place_locked(device, to) != FITS) {
        slot_reap_all(account.region, account.region->slot);
        if (find_place_locked(device, to) != FITS) {
            recount_locked(change.usage, device, bytes, to, from);
            error = -EDQUOT;
        }
    }
    change_end(&change);
    return error;
}

void account_move_ready(unsigned device, uint64_t bytes)
{
    LOCKED_TO_END(account_lock);
    account.ready_bytes -= at_most(bytes, account.ready_bytes);
    if (account_is_without_region())
        return;
    struct change change = change_begin(device);
    recount_locked(change.usage, device, bytes, ACCOUNT_MOVABLE, ACCOUNT_SPILLED);
    struct vgpu_slot *slot = change.usage ? account_slot_locked() : NULL;
    if (slot)
        account_show_ready_locked(slot);
    change_end(&change);
}

void account_move_back(
    unsigned device, uint64_t bytes, enum account_kind from, enum account_kind to)
{
    if (account_is_without_region())
        return;
    LOCKED_TO_END(account_lock);
    struct change change = change_begin(device);
    recount_locked(change.usage, device, bytes, from, to);
    change_end(&change);
}

void account_commit(unsigned device, uint64_t bytes)
{
    if (account_is_without_region())
        return;
    LOCKED_TO_END(account_lock);
    struct change change = change_begin(device);
    struct account_holdings *held = &account.holdings[device];
    bytes = at_most(bytes, held->pending);
    held->pending -= bytes;
    if (change.usage)
        sub_seq_cst(&change.usage->pending, bytes);
    change_end(&change);
}

void account_add(unsigned device, uint64_t bytes, enum account_kind kind)
{
    if (account_is_without_region())
        return;
    LOCKED_TO_END(account_lock);
    struct change change = change_begin(device);
    add_locked(change.usage, device, bytes, kind, false);
    change_end(&change);
}

void account_release(unsigned device, uint64_t bytes, enum account_kind kind)
{
    if (account_is_without_region())
        return;
    LOCKED_TO_END(account_lock);
    struct change change = change_begin(device);
    take_back_locked(change.usage, device, bytes, kind, false);
    change_end(&change);
}

void account_add_lingering(unsigned device, uint64_t bytes)
{
    if (account_is_without_region())
        return;
    LOCKED_TO_END(account_lock);
    struct change change = change_begin(device);
    struct account_holdings *held = &account.holdings[device];
    /* Without an import nothing lingers, and what did before is gone. */
    bool lingers = change.looking && account_sum_locked(device).imported;
    held->lingering = lingers ? held->lingering + bytes : 0;
    if (change.usage)
        store_relaxed(&change.usage->lingering, held->lingering);
    change_end(&change);
}

void account_add_exported(unsigned device, int64_t bytes)
{
    if (account_is_without_region())
        return;
    LOCKED_TO_END(account_lock);
    account.holdings[device].exported += (uint64_t)bytes;
    struct change change = change_begin(device);
    if (change.usage)
        store_relaxed(&change.usage->exported, account.holdings[device].exported);
    change_end(&change);
}

void account_set_imported(unsigned device, uint64_t bytes)
{
    if (account_is_without_region())
        return;
    LOCKED_TO_END(account_lock);
    account.holdings[device].imported = bytes;
    struct change change = change_begin(device);
    if (change.usage)
        store_relaxed(&change.usage->imported, bytes);
    change_end(&change);
}
