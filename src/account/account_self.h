/* SPDX-License-Identifier: Apache-2.0 */
/* What the account's files share: the process's account, its place in the region, and looks at the
 * region's words. For account*.c alone. */
#ifndef VGPU_ACCOUNT_ACCOUNT_SELF_H
#define VGPU_ACCOUNT_ACCOUNT_SELF_H

#include "account/account.h"

#include "base/atomic.h"
#include "base/lock.h"

/* How often something is tried again where the file goes away under it. */
#define ACCOUNT_LOST_TRIES 10

/* What is shown of the GPU time that this process uses of an entry of devices[]. */
struct account_work {
    uint64_t since_ns; /* the second that is being counted began; 0: none does */
    uint64_t since_gpu_ns, last_gpu_ns;
    unsigned percent;
};

/* What this process holds, from which a slot that was taken away is filled again. */
struct account_holdings {
    uint64_t bytes, pending, lingering, imported, exported;
    uint64_t kinds[ACCOUNT_KINDS];
};

struct account {
    struct region *region; /* set once, maybe late */
    int without;
    uint64_t ledger;
    uint64_t refusal_logged_ns;
    bool full_logged;
    bool ended;  /* the process is at its end: nothing is shown of it any more */
    bool works;  /* some percent is shown that is not 0; read without the lock */
    int32_t pid; /* whose account it is */
    struct account_work work[VGPU_HAMI_DEVICES];
    struct account_holdings holdings[VGPU_REGION_DEVICES];
    uint64_t seen_free_bytes[VGPU_REGION_DEVICES]; /* at the last look; a hint */
    uint64_t ratio[VGPU_REGION_DEVICES];           /* account_set_ratio */
    uint64_t host_budget_bytes;
    uint64_t ready_bytes; /* account_add_ready */
    struct account_release {
        uint64_t release, released, lacking; /* as in vgpu_slot */
    } release;
};

/* Held over all that touches the region, never over a driver call or a sleep. */
extern struct lock account_lock;
extern struct account account GUARDED_BY(account_lock);

/* What a charge without a region answers. Set once, by account_start. */
static inline int account_without(void) NO_THREAD_SAFETY_ANALYSIS
{
    return account.without;
}

static inline bool account_is_without_region(void)
{
    return !load_acquire(&account.region);
}

/* A look at the region's words: its file is there, as far as can be told, and may go away while one
 * looks. account_look_end is false where it did: what was read means nothing. */
bool account_look_begin(void) REQUIRES(account_lock);
bool account_look_end(void) REQUIRES(account_lock);

/* Within a look, as all below. */
bool account_slot_is_ours(void) REQUIRES(account_lock);

/* The process's slot, claimed at first need; NULL where it has none. */
struct vgpu_slot *account_slot_locked(void) REQUIRES(account_lock);

/* NULL where the process has no place in the region for the device. */
struct vgpu_usage *account_usage_locked(unsigned device) REQUIRES(account_lock);
uint64_t *account_kind_word(struct vgpu_usage *usage, enum account_kind kind);

/* Has the process vanish from HAMi's part when it exits; once a process. */
void account_show_until_end(void);

/* HAMi's part of the region (region/projection.h): what the process uses of the device. */
void account_show_locked(unsigned device) REQUIRES(account_lock);

/* After a visit to the entry's words of GPU time, in which `own` was the process's own use. */
void account_show_work_locked(int entry, const struct vgpu_usage *own, uint64_t now_ns)
    REQUIRES(account_lock);

struct account_sum {
    uint64_t bytes;          /* all live slots, lingering included */
    uint64_t imported;       /* held on memory of others */
    uint64_t others_pending; /* the part that other processes may yet take back */
};

struct account_sum account_sum_locked(unsigned device) REQUIRES(account_lock);

/* What all live processes hold on the card of the device: without managed and spilled memory. Kinds
 * are summed, because a process raises a kind before its sum. */
uint64_t account_resident_locked(unsigned device) REQUIRES(account_lock);

/* What they have spilled, of all devices. */
uint64_t account_spilled_locked(void) REQUIRES(account_lock);

/* What they keep ready; and that with what they have spilled, which the host's budget bounds. */
uint64_t account_ready_locked(void) REQUIRES(account_lock);
uint64_t account_host_used_locked(void) REQUIRES(account_lock);

static inline void account_show_ready_locked(struct vgpu_slot *slot) REQUIRES(account_lock)
{
    store_seq_cst(&slot->ready, account.ready_bytes);
}

/* Of one device, and when the last of them worked there. */
struct account_places account_places_locked(unsigned device) REQUIRES(account_lock);
uint64_t account_worked_locked(unsigned device) REQUIRES(account_lock);

/* What other processes have charged and may yet take back, of any kind and device: an upper bound
 * of what they may take back of a place. */
uint64_t account_others_pending_locked(void) REQUIRES(account_lock);

/* The container's share of the card's memory; UINT64_MAX: none. */
uint64_t account_share_locked(unsigned device) REQUIRES(account_lock);
/* The share with what was borrowed or lent of it. */
uint64_t account_allowed_locked(unsigned device) REQUIRES(account_lock);

/* Before a refusal, which then looks again: somebody else may have reaped them a moment ago. */
void account_reap_locked(unsigned device) REQUIRES(account_lock);

struct account_limits {
    uint64_t bytes; /* 0: none */
    bool closed;
};

/* As the file says. A device that found no room in it cannot be kept to its limit. */
struct account_limits account_limits_locked(unsigned device) REQUIRES(account_lock);

/* As the file last said. Without it nobody is kept to a limit, so a limited device is full. Needs
 * no look. */
struct account_limits account_limits_alone_locked(unsigned device) REQUIRES(account_lock);

#endif
