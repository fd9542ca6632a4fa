/* SPDX-License-Identifier: Apache-2.0 */
/* The container's GPU time. */
#include "account/account_self.h"

#include "base/clock.h"
#include "base/process.h"
#include "region/epoch.h"
#include "region/region_device.h"
#include "region/region_history.h"
#include "region/slot.h"

#include <string.h>

bool account_visit_compute(unsigned device,
    void (*visit)(struct vgpu_compute *words, struct vgpu_usage *own, void *argument),
    void *argument)
{
    bool visited = false;
    LOCKED_TO_END(account_lock);
    if (account.region && account_look_begin()) {
        struct vgpu_usage *own = account_usage_locked(device);
        int entry = account.region->devices[device].entry;
        if (entry >= 0) {
            struct vgpu_compute *words = &account.region->shared->compute[entry];
            uint64_t former = load_relaxed(&words->busy_ns);
            visit(words, own, argument);
            uint64_t now = clock_now_ns();
            if (load_relaxed(&words->busy_ns) != former)
                region_history_note(account.region->shared, (unsigned)entry, former, now);
            account_show_work_locked(entry, own, now);
            visited = true;
        }
        (void)account_look_end();
    }
    return visited;
}

struct hold {
    uint64_t from_ns, to_ns;
};

static void note_hold(struct vgpu_compute *words, struct vgpu_usage *own, void *argument)
{
    const struct hold *hold = argument;
    uint64_t number = (add_seq_cst(&words->holds_made, 1u) - 1) % VGPU_COMPUTE_HOLDS;
    (void)own;
    store_relaxed(&words->holds[number].from_ns, hold->from_ns);
    store_relaxed(&words->holds[number].to_ns, hold->to_ns);
    if (hold->to_ns > hold->from_ns)
        add_relaxed(&words->waited_ns, hold->to_ns - hold->from_ns);
}

void account_note_hold(unsigned device, uint64_t from_ns, uint64_t to_ns)
{
    struct hold hold = {from_ns, to_ns};
    (void)account_visit_compute(device, note_hold, &hold);
}

/* A writer meanwhile makes it look like another hold, once. */
static uint64_t admitted_ns(const struct vgpu_compute *words, uint64_t since_ns, uint64_t until_ns)
{
    uint64_t last = 0;
    for (unsigned i = 0; i < VGPU_COMPUTE_HOLDS; i++) {
        uint64_t from = load_relaxed(&words->holds[i].from_ns);
        uint64_t to = load_relaxed(&words->holds[i].to_ns);
        if (from <= since_ns && to > since_ns && to < until_ns && to > last)
            last = to;
    }
    return last;
}

uint64_t account_admitted_ns(unsigned device, uint64_t since_ns, uint64_t until_ns)
{
    uint64_t last = 0;
    LOCKED_TO_END(account_lock);
    if (account.region && account_look_begin()) {
        const struct vgpu_region *shared = account.region->shared;
        int own = account.region->devices[device].entry;
        uint32_t count = load_acquire(&shared->device_count);
        for (int i = 0; i < (int)count && i < (int)VGPU_REGION_DEVICES; i++) {
            uint64_t here = i == own ? 0 : admitted_ns(&shared->compute[i], since_ns, until_ns);
            last = here > last ? here : last;
        }
        if (!account_look_end())
            last = 0;
    }
    return last;
}

void account_note_gang(uint64_t now_ns)
{
    LOCKED_TO_END(account_lock);
    if (account.region && account_look_begin()) {
        store_relaxed(&account.region->shared->coupled_ns, now_ns);
        epoch_raise(account.region->shared);
        (void)account_look_end();
    }
}

unsigned account_asking(unsigned device, uint64_t since_ns)
{
    unsigned asking = 0;
    LOCKED_TO_END(account_lock);
    if (account.region && account_look_begin()) {
        int entry = account.region->devices[device].entry;
        unsigned bound = entry >= 0 ? mapping_slot_bound(account.region) : 0;
        for (unsigned i = 0; i < bound; i++) {
            const struct vgpu_slot *slot = &account.region->shared->slots[i];
            if (slot_word_state(load_relaxed(&slot->state)) == VGPU_SLOT_LIVE)
                asking += load_relaxed(&slot->usage[entry].asked_ns) > since_ns;
        }
        (void)account_look_end();
    }
    return asking;
}

bool account_may_have_process(int pid)
{
    const uint64_t namespace = process_pid_namespace();
    bool may = true;
    LOCKED_TO_END(account_lock);
    if (account.region && account.region->slot >= 0 && account_look_begin()) {
        may = !namespace;
        unsigned bound = mapping_slot_bound(account.region);
        for (unsigned i = 0; i < bound && !may; i++) {
            const struct vgpu_slot *slot = &account.region->shared->slots[i];
            uint64_t word = load_acquire(&slot->state);
            may = slot_word_state(word) == VGPU_SLOT_LIVE &&
                  (slot_word_pid(word) == pid || load_relaxed(&slot->pid_namespace) != namespace);
        }
        may |= !account_look_end();
    }
    return may;
}

uint64_t account_tenant(unsigned device)
{
    uint64_t tenant = 0;
    LOCKED_TO_END(account_lock);
    if (account.region && account_look_begin()) {
        tenant = region_device_tenant(account.region, device);
        (void)account_look_end();
    }
    return tenant;
}

bool account_uuid(unsigned device, char ret_uuid[ACCOUNT_UUID_BYTES])
{
    bool known = false;
    LOCKED_TO_END(account_lock);
    if (account.region && device < account.region->device_count) {
        memcpy(ret_uuid, account.region->devices[device].known.uuid, ACCOUNT_UUID_BYTES);
        ret_uuid[ACCOUNT_UUID_BYTES - 1] = '\0';
        known = ret_uuid[0] != '\0';
    }
    return known;
}

static void read_busy(struct vgpu_compute *words, struct vgpu_usage *own, void *argument)
{
    (void)own;
    *(uint64_t *)argument = load_relaxed(&words->busy_ns);
}

uint64_t account_busy_ns(unsigned device)
{
    uint64_t busy = 0;
    (void)account_visit_compute(device, read_busy, &busy);
    return busy;
}
