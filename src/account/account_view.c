/* SPDX-License-Identifier: Apache-2.0 */
/* What the container holds, as its programs and tools are told. */
#include "account/account_self.h"

#include "region/region_device.h"
#include "region/slot.h"

#include <errno.h>

uint64_t account_own_bytes(unsigned device, enum account_kind kind)
{
    const struct account_holdings *held = &account.holdings[device];
    return load_relaxed(kind == ACCOUNT_KINDS ? &held->bytes : &held->kinds[kind]);
}

static void view_alone_locked(unsigned device, struct account_view *ret_view) REQUIRES(account_lock)
{
    struct account_limits limits = account_limits_alone_locked(device);
    *ret_view = (struct account_view){.limit_bytes = limits.bytes,
        .used_bytes = account.holdings[device].bytes,
        .oversubscribed = load_relaxed(&account.ratio[device]) != 0,
        .closed = limits.closed};
}

static void view_locked(unsigned device, struct account_view *ret_view) REQUIRES(account_lock)
{
    bool sure = !region_was_kept(account.region);
    for (int i = 0; i < ACCOUNT_LOST_TRIES; i++, sure = true) {
        if ((sure && region_keep(account.region) != 0) || !account_look_begin())
            break;
        struct account_limits limits = account_limits_locked(device);
        /* What we hold must be in the sum; without a slot nothing more can be had. */
        bool present = account_usage_locked(device) != NULL;
        account_reap_locked(device);
        *ret_view = (struct account_view){.limit_bytes = limits.bytes,
            .used_bytes = account_sum_locked(device).bytes,
            .oversubscribed = load_relaxed(&account.ratio[device]) != 0,
            .closed = limits.closed || (limits.bytes && !present)};
        if (account_look_end())
            return;
    }
    view_alone_locked(device, ret_view);
}

void account_view(unsigned device, struct account_view *ret_view)
{
    *ret_view = (struct account_view){0};
    if (account_is_without_region()) {
        ret_view->closed = account_without() != 0;
        return;
    }
    LOCKED_TO_END(account_lock);
    view_locked(device, ret_view);
}

/* 0: not known, as in a process that sees no /proc. */
static uint64_t slot_namespace(const struct region *region, unsigned slot)
{
    return load_relaxed(&region->shared->slots[slot].pid_namespace);
}

static unsigned processes_locked(unsigned entry, struct account_process *ret_processes)
    REQUIRES(account_lock)
{
    unsigned count = 0;
    unsigned bound = mapping_slot_bound(account.region);
    uint64_t ours = slot_namespace(account.region, (unsigned)account.region->slot);
    for (unsigned i = 0; i < bound; i++) {
        struct vgpu_slot *slot = &account.region->shared->slots[i];
        uint64_t word = load_acquire(&slot->state);
        uint64_t bytes = load_relaxed(&slot->usage[entry].bytes);
        uint64_t elsewhere =
            load_relaxed(&slot->usage[entry].managed) + load_relaxed(&slot->usage[entry].spilled);
        uint64_t theirs = slot_namespace(account.region, i);
        if (slot_word_state(word) == VGPU_SLOT_LIVE && bytes > elsewhere)
            ret_processes[count++] = (struct account_process){.pid = slot_word_pid(word),
                .foreign_namespace = ours && theirs != ours ? (uint32_t)theirs : 0,
                .device_bytes = bytes - elsewhere};
    }
    return count;
}

unsigned account_processes(
    unsigned device, struct account_process ret_processes[ACCOUNT_PROCESSES_MAX])
{
    unsigned count = 0;
    if (account_is_without_region())
        return 0;
    LOCKED_TO_END(account_lock);
    if (region_keep(account.region) == 0 && account_look_begin()) {
        bool present = account_usage_locked(device) != NULL;
        account_reap_locked(device);
        if (present)
            count =
                processes_locked((unsigned)account.region->devices[device].entry, ret_processes);
        if (!account_look_end())
            count = 0;
    }
    return count;
}

int account_device(const char *uuid, int index)
{
    int number = -ENODEV;
    if (account_is_without_region())
        return -ENODEV;
    LOCKED_TO_END(account_lock);
    for (int i = 0; i < ACCOUNT_LOST_TRIES; i++) {
        if (region_keep(account.region) != 0 || !account_look_begin())
            break;
        number = region_device(account.region, uuid, index);
        if (account_look_end())
            break;
        number = -EAGAIN;
    }
    return number;
}
