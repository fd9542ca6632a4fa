/* SPDX-License-Identifier: Apache-2.0 */
/* The turn's word, and what a slot says of memory. */
#include "registry/registry_turns.h"

#include "base/atomic.h"
#include "base/file_lock.h"
#include "base/guard.h"

#include <errno.h>
#include <stddef.h>

#define CLAIMS_WAIT_NS 20000000ull
#define CLAIMS_BYTE ((off_t)offsetof(struct vgpu_board, turn))
#define US_NS 1000ull

_Static_assert(
    VGPU_BOARD_SLOTS < 1 << VGPU_BOARD_TURN_BITS, "every slot, and none, fit into the turn's word");
_Static_assert(VGPU_BOARD_SLOTS <= TURNS_TENANTS_MAX, "all tenants fit into a view");

/* Our slot, where it is still ours; NULL: none. Within a window. */
static struct vgpu_board_slot *own_slot(struct registry *registry)
{
    int index = load_acquire(&registry->slot);
    struct vgpu_board *shared = load_acquire(&registry->shared);
    if (index < 0 || !shared)
        return NULL;
    struct vgpu_board_slot *slot = &shared->slots[index];
    return load_relaxed(&slot->tenant) == load_relaxed(&registry->tenant) ? slot : NULL;
}

void registry_turns_say(
    struct registry *registry, const struct registry_memory *own, uint64_t now_ns)
{
    guard_enter();
    struct vgpu_board_slot *slot = own_slot(registry);
    if (slot) {
        uint64_t waits_ns = load_relaxed(&slot->turn_waits_ns);
        store_relaxed(&slot->share_pages, own->share_pages);
        store_relaxed(&slot->wanted_pages, own->wanted_pages);
        store_relaxed(&slot->resident_pages, own->resident_pages);
        store_relaxed(&slot->fixed_pages, own->fixed_pages);
        if (!own->waits || !waits_ns)
            store_relaxed(&slot->turn_waits_ns, own->waits ? now_ns : 0);
        store_release(&slot->memory_heard_ns, now_ns);
    }
    guard_leave();
}

static void read_turn(struct turns_view *view, uint64_t turn)
{
    uint64_t us = turn >> VGPU_BOARD_TURN_BITS;
    int slot = (int)(turn & VGPU_BOARD_TURN_SLOT) - 1;
    view->turn_ns = us > UINT64_MAX / US_NS ? UINT64_MAX : us * US_NS;
    view->holder = -1;
    for (unsigned i = 0; i < view->count; i++) {
        if ((int)view->tenants[i].slot == slot)
            view->holder = (int)i;
    }
}

static void read_tenant(
    struct turns_tenant *tenant, const struct vgpu_board_slot *slot, unsigned index, uint32_t share)
{
    *tenant = (struct turns_tenant){.share_pages = share,
        .heard_ns = load_acquire(&slot->memory_heard_ns),
        .wanted_pages = load_relaxed(&slot->wanted_pages),
        .fixed_pages = load_relaxed(&slot->fixed_pages),
        .claim_pages = load_relaxed(&slot->claim_pages),
        .waits = load_relaxed(&slot->turn_waits_ns) != 0,
        .slot = index};
}

static bool look(struct registry *registry, struct turns_view *view, uint64_t *ret_turn)
{
    const struct vgpu_board *shared = load_acquire(&registry->shared);
    const struct vgpu_board_slot *own = own_slot(registry);
    bool found = false;
    if (!own)
        return false;
    *ret_turn = load_acquire(&shared->turn);
    view->count = 0;
    for (unsigned i = 0; i < VGPU_BOARD_SLOTS; i++) {
        const struct vgpu_board_slot *slot = &shared->slots[i];
        uint32_t share = load_relaxed(&slot->share_pages);
        if (!share || !load_relaxed(&slot->tenant) || !registry_slot_is_held(registry, i))
            continue;
        if (slot == own) {
            view->own = view->count;
            found = true;
        }
        read_tenant(&view->tenants[view->count++], slot, i, share);
    }
    read_turn(view, *ret_turn);
    return found;
}

bool registry_turns_look(struct registry *registry, struct turns_view *ret_view, uint64_t *ret_turn)
{
    guard_enter();
    bool found = look(registry, ret_view, ret_turn);
    guard_leave();
    return found;
}

bool registry_turns_swap(struct registry *registry, uint64_t turn, int slot, uint64_t now_ns)
{
    uint64_t next = now_ns / US_NS << VGPU_BOARD_TURN_BITS | (uint64_t)(slot + 1);
    guard_enter();
    struct vgpu_board *shared = load_acquire(&registry->shared);
    bool swapped = shared && swap_seq_cst(&shared->turn, turn, next);
    guard_leave();
    if (swapped)
        registry_wake(registry);
    return swapped;
}

bool registry_claims_begin(struct registry *registry)
{
    return file_lock_wait(registry->fd, CLAIMS_BYTE, CLAIMS_WAIT_NS) == 0;
}

void registry_claims_end(struct registry *registry)
{
    file_lock_drop(registry->fd, CLAIMS_BYTE);
}

uint32_t registry_claim(struct registry *registry)
{
    guard_enter();
    const struct vgpu_board_slot *slot = own_slot(registry);
    uint32_t pages = slot ? load_relaxed(&slot->claim_pages) : 0;
    guard_leave();
    return pages;
}

void registry_claim_set(struct registry *registry, uint32_t pages)
{
    guard_enter();
    struct vgpu_board_slot *slot = own_slot(registry);
    if (slot)
        store_seq_cst(&slot->claim_pages, pages);
    guard_leave();
}
