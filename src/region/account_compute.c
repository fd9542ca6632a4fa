/* SPDX-License-Identifier: Apache-2.0 */
/* The container's GPU time and the limits on it. */
#include "region/account_self.h"

#include "base/guard.h"
#include "region/slot.h"

#include <string.h>

static unsigned core_limit_locked(unsigned device) REQUIRES(account.lock)
{
    const struct vgpu_device *entry = region_device_entry(account.region, device);
    uint32_t percent =
        entry ? load_relaxed(&entry->core_limit) : account.region->devices[device].known.core_limit;
    return percent < 100 ? percent : 0;
}

bool account_core_limits(unsigned char ret_percent[VGPU_REGION_DEVICES])
{
    bool any = false;
    memset(ret_percent, 0, VGPU_REGION_DEVICES);
    lock_take(&account.lock);
    if (account.region) {
        (void)!region_keep(account.region);
        guard_enter();
        for (unsigned d = 0; d < account.region->device_count; d++) {
            ret_percent[d] = (unsigned char)core_limit_locked(d);
            any |= ret_percent[d] != 0;
        }
        guard_leave();
    }
    lock_release(&account.lock);
    return any;
}

bool account_visit_compute(unsigned device,
    void (*visit)(struct vgpu_compute *words, struct vgpu_usage *own, void *argument),
    void *argument)
{
    bool visited = false;
    lock_take(&account.lock);
    if (account.region && account_look_begin()) {
        struct vgpu_usage *own = account_usage_locked(device);
        int entry = account.region->devices[device].entry;
        if (entry >= 0) {
            visit(&account.region->shared->compute[entry], own, argument);
            visited = true;
        }
        (void)account_look_end();
    }
    lock_release(&account.lock);
    return visited;
}

unsigned account_asking(unsigned device, uint64_t since_ns)
{
    unsigned asking = 0;
    lock_take(&account.lock);
    if (account.region && account_look_begin()) {
        int entry = account.region->devices[device].entry;
        unsigned bound = entry >= 0 ? region_slot_bound(account.region) : 0;
        for (unsigned i = 0; i < bound; i++) {
            const struct vgpu_slot *slot = &account.region->shared->slots[i];
            if (slot_word_state(load_relaxed(&slot->state)) == VGPU_SLOT_LIVE)
                asking += load_relaxed(&slot->usage[entry].asked_ns) > since_ns;
        }
        (void)account_look_end();
    }
    lock_release(&account.lock);
    return asking;
}

uint64_t account_tenant(unsigned device)
{
    uint64_t tenant = 0;
    lock_take(&account.lock);
    if (account.region && account_look_begin()) {
        tenant = region_device_tenant(account.region, device);
        (void)account_look_end();
    }
    lock_release(&account.lock);
    return tenant;
}
