/* SPDX-License-Identifier: Apache-2.0 */
/* The process's part of its container's budgets. */
#include "pace/share.h"

#include "base/atomic.h"
#include "pace/policy.h"
#include "account/account.h"

#include <string.h>

/* Nanoseconds. A process that asked for GPU time within this counts as working: more than two of
 * the longest sleeps at the gate (20 ms). */
#define ACTIVE_NS 50000000ull

static struct {
    int64_t uncharged_ns; /* admitted, and not taken from the budget yet */
    unsigned active;      /* processes that ask for GPU time */
    uint64_t counted_ns;  /* when they were counted */
    struct budget_share share;
} devices[VGPU_REGION_DEVICES];

void share_charge_later(unsigned device, int64_t gpu_ns)
{
    add_relaxed(&devices[device].uncharged_ns, gpu_ns);
}

int64_t share_take_uncharged(unsigned device)
{
    return exchange_acq_rel(&devices[device].uncharged_ns, (int64_t)0);
}

unsigned share_active(unsigned device)
{
    return load_relaxed(&devices[device].active);
}

void share_count_active(unsigned device, uint64_t now_ns)
{
    if (now_ns - load_relaxed(&devices[device].counted_ns) < POLICY_LOOK_NS)
        return;
    store_relaxed(&devices[device].counted_ns, now_ns);
    store_relaxed(&devices[device].active, account_asking(device, now_ns - ACTIVE_NS));
}

struct budget_share *share_of(unsigned device)
{
    return &devices[device].share;
}

void share_settle(unsigned device, struct vgpu_compute *words, const struct budget_done *done)
{
    budget_share_settle(&devices[device].share, words, share_active(device), done);
}

void share_reset(void)
{
    memset(devices, 0, sizeof(devices));
}
