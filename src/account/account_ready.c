/* SPDX-License-Identifier: Apache-2.0 */
/* The host memory that the container's processes keep ready. As a charge, an addition is made
 * before the sum is looked at. */
#include "account/account_self.h"

#include "base/clock.h"
#include "region/epoch.h"
#include "region/slot.h"

#include <errno.h>

uint64_t account_ready_locked(void) REQUIRES(account_lock)
{
    uint64_t sum = 0;
    unsigned bound = mapping_slot_bound(account.region);
    for (unsigned i = 0; i < bound; i++) {
        struct vgpu_slot *slot = &account.region->shared->slots[i];
        if (slot_word_state(load_seq_cst(&slot->state)) == VGPU_SLOT_LIVE)
            sum += load_seq_cst(&slot->ready);
    }
    return sum;
}

/* What is ready turns into what is spilled, which is raised first: read in the other order neither
 * is missed. */
uint64_t account_host_used_locked(void) REQUIRES(account_lock)
{
    uint64_t ready = account_ready_locked();
    return ready + account_spilled_locked();
}

/* One that says to be from later is from before the machine's last start, or made up. */
static bool is_in_force(uint64_t asked_ns, uint64_t now_ns)
{
    return asked_ns && asked_ns <= now_ns && now_ns - asked_ns < ACCOUNT_READY_ASK_NS;
}

/* Within a look. */
static bool is_asked_locked(void) REQUIRES(account_lock)
{
    uint64_t asked_ns = load_seq_cst(&account.region->shared->ready_asked_ns);
    return asked_ns && is_in_force(asked_ns, clock_now_ns());
}

static bool is_over_budget_locked(void) REQUIRES(account_lock)
{
    return account.host_budget_bytes != UINT64_MAX &&
           account_host_used_locked() > account.host_budget_bytes;
}

/* What nobody can see is not kept. */
static int show_more_locked(void) REQUIRES(account_lock)
{
    struct vgpu_slot *slot = account_slot_locked();
    if (!slot)
        return -EDQUOT;
    account_show_ready_locked(slot);
    if (is_asked_locked())
        return -EDQUOT;
    if (is_over_budget_locked())
        slot_reap_all(account.region, account.region->slot);
    return is_over_budget_locked() ? -EDQUOT : 0;
}

int account_add_ready(uint64_t bytes)
{
    LOCKED_TO_END(account_lock);
    bool looking = !account_is_without_region() && account_look_begin();
    account.ready_bytes += bytes;
    int error = account.ready_bytes > account.host_budget_bytes ? -EDQUOT : 0;
    if (looking && !error)
        error = show_more_locked();
    if (error)
        account.ready_bytes -= bytes;
    if (looking && error && account_slot_is_ours())
        account_show_ready_locked(&account.region->shared->slots[account.region->slot]);
    if (looking)
        (void)account_look_end();
    return error;
}

void account_remove_ready(uint64_t bytes)
{
    LOCKED_TO_END(account_lock);
    account.ready_bytes -= bytes < account.ready_bytes ? bytes : account.ready_bytes;
    if (account_is_without_region() || !account_look_begin())
        return;
    struct vgpu_slot *slot = account_slot_locked();
    if (slot)
        account_show_ready_locked(slot);
    (void)account_look_end();
}

struct account_host account_host(void)
{
    LOCKED_TO_END(account_lock);
    struct account_host host = {
        .budget_bytes = account.host_budget_bytes, .ready_bytes = account.ready_bytes};
    if (account_is_without_region() || !account_look_begin())
        return host;
    slot_reap_all(account.region, account.region->slot);
    host.ready_bytes = account_ready_locked();
    host.spilled_bytes = account_spilled_locked();
    (void)account_look_end();
    return host;
}

bool account_ready_is_asked(void)
{
    bool asked = false;
    LOCKED_TO_END(account_lock);
    if (!account_is_without_region() && account_look_begin()) {
        asked = is_asked_locked();
        (void)account_look_end();
    }
    return asked;
}

uint64_t account_ask_ready(void)
{
    uint64_t asked_ns = 0;
    LOCKED_TO_END(account_lock);
    if (account_is_without_region() || !account_look_begin())
        return asked_ns;
    uint64_t *word = &account.region->shared->ready_asked_ns;
    asked_ns = load_seq_cst(word);
    uint64_t now_ns = clock_now_ns();
    if (!is_in_force(asked_ns, now_ns)) {
        asked_ns = swap_seq_cst(word, asked_ns, now_ns) ? now_ns : load_seq_cst(word);
        epoch_raise(account.region->shared);
    }
    (void)account_look_end();
    return asked_ns;
}
