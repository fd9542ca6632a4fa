/* SPDX-License-Identifier: Apache-2.0 */
/* What a container has of the card beside its share, and what it shows of that to its processes. */
#include "account/account_self.h"

#include "region/mapping.h"
#include "region/region_device.h"
#include "region/slot.h"

/* What the locked function says of the region; `otherwise` without one. */
static uint64_t look_up(unsigned device, uint64_t (*locked)(unsigned device), uint64_t otherwise)
{
    if (account_is_without_region())
        return otherwise;
    LOCKED_TO_END(account_lock);
    if (account_look_begin()) {
        otherwise = locked(device);
        (void)account_look_end();
    }
    return otherwise;
}

uint64_t account_share(unsigned device)
{
    return look_up(device, account_share_locked, UINT64_MAX);
}

uint64_t account_allowed(unsigned device)
{
    return look_up(device, account_allowed_locked, UINT64_MAX);
}

uint64_t account_worked_ns(unsigned device)
{
    return look_up(device, account_worked_locked, 0);
}

void account_set_borrowed(unsigned device, int64_t bytes)
{
    if (account_is_without_region())
        return;
    LOCKED_TO_END(account_lock);
    if (account_look_begin()) {
        int entry = account.region->devices[device].entry;
        if (entry >= 0)
            store_seq_cst(&account.region->shared->compute[entry].borrowed_bytes, bytes);
        (void)account_look_end();
    }
}

int64_t account_borrowed(unsigned device)
{
    int64_t bytes = 0;
    if (account_is_without_region())
        return bytes;
    LOCKED_TO_END(account_lock);
    if (account_look_begin()) {
        int entry = account.region->devices[device].entry;
        if (entry >= 0)
            bytes = load_seq_cst(&account.region->shared->compute[entry].borrowed_bytes);
        (void)account_look_end();
    }
    return bytes;
}

bool account_places(unsigned device, struct account_places *ret_places)
{
    if (account_is_without_region())
        return false;
    LOCKED_TO_END(account_lock);
    if (!account_look_begin())
        return false;
    account_reap_locked(device); /* a process that was killed holds nothing */
    struct account_places places = account_places_locked(device);
    bool there = account_look_end();
    if (there)
        *ret_places = places;
    return there;
}

void account_note_worked(unsigned device, uint64_t now_ns)
{
    if (account_is_without_region())
        return;
    LOCKED_TO_END(account_lock);
    if (account_look_begin()) {
        struct vgpu_usage *usage = account_usage_locked(device);
        if (usage)
            store_relaxed(&usage->worked_ns, now_ns);
        (void)account_look_end();
    }
}
