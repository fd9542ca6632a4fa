/* SPDX-License-Identifier: Apache-2.0 */
/* What is said in the registry, and the gate at which calls wait for the turn. */
#include "vmem/turn.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/word.h"
#include "config/config_oversubscription.h"
#include "container/container.h"
#include "account/account.h"
#include "registry/registry_turns.h"
#include "vmem/world.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define PAGE_BYTES (2ull << 20)
/* Nanoseconds of one sleep at the gate: its opening wakes, and the process's end is noticed. */
#define GATE_NS 20000000ull
/* Where no work was ever seen. */
#define IDLE_FOR_EVER UINT64_MAX

enum gate { OPEN, CLOSED };

static struct {
    struct registry registry;
    bool met;
    unsigned device; /* on which turns are taken */
    struct turns turns;
    struct turns_view view;
    uint64_t word;    /* of the turn, at the last look */
    uint64_t entries; /* of the world, then */
    uint32_t gate;    /* slept on */
    uint32_t waiting; /* threads at the gate */
    uint32_t calls;   /* that came to it where none waited; slept on */
    uint32_t calls_seen;
    bool waits; /* as it was said last */
} turn;

/* ---- the gate ---- */

/* A capture is to come to its end: nothing moves before. */
static void before_work(void)
{
    if (load_acquire(&turn.gate) == OPEN)
        return;
    int errno_kept = errno;
    world_note_wait();
    if (add_seq_cst(&turn.waiting, 1u) == 1) {
        (void)add_seq_cst(&turn.calls, 1u);
        word_wake(&turn.calls);
    }
    while (load_acquire(&turn.gate) == CLOSED && !world_is_finished() && !world_captures())
        word_wait_for(&turn.gate, CLOSED, GATE_NS);
    (void)sub_seq_cst(&turn.waiting, 1u);
    errno = errno_kept;
}

void turn_rest(uint64_t ns)
{
    word_wait_for(&turn.calls, turn.calls_seen, ns);
    turn.calls_seen = load_acquire(&turn.calls);
}

bool turn_is_awaited(void)
{
    return load_acquire(&turn.waiting) != 0;
}

void turn_close(void)
{
    store_seq_cst(&turn.gate, (uint32_t)CLOSED);
    world_ask_before(WORLD_TURN, before_work);
}

static void open_gate(void)
{
    if (load_relaxed(&turn.gate) == OPEN)
        return;
    store_release(&turn.gate, (uint32_t)OPEN);
    world_ask_before(WORLD_TURN, NULL);
    word_wake(&turn.gate);
}

/* ---- what is said ---- */

static uint32_t pages_up(uint64_t bytes)
{
    uint64_t pages = bytes / PAGE_BYTES + (bytes % PAGE_BYTES != 0);
    return pages < UINT32_MAX ? (uint32_t)pages : UINT32_MAX;
}

static uint32_t pages_down(uint64_t bytes)
{
    uint64_t pages = bytes / PAGE_BYTES;
    return pages < UINT32_MAX ? (uint32_t)pages : UINT32_MAX;
}

/* The first device on which memory is moved; there is no second one. */
static bool meet(unsigned device, uint64_t now_ns)
{
    if (!turn.met) {
        char uuid[ACCOUNT_UUID_BYTES] = "";
        const char *directory =
            account_uuid(device, uuid) ? container_config()->registry_directory : "";
        turn.device = device;
        turn.met = true;
        (void)!registry_attach(&turn.registry, directory, uuid, account_tenant(device), NULL);
    }
    if (device != turn.device)
        return false;
    registry_keep(&turn.registry, now_ns);
    return registry_is_attached(&turn.registry);
}

static uint64_t idle_ns(unsigned device, bool away, uint64_t now_ns)
{
    uint64_t entries = world_entries();
    bool works = entries != turn.entries || load_acquire(&turn.waiting);
    turn.entries = entries;
    if (away)
        return IDLE_FOR_EVER;
    if (works) {
        account_note_worked(device, now_ns);
        return 0;
    }
    uint64_t worked_ns = account_worked_ns(device);
    return !worked_ns ? IDLE_FOR_EVER : worked_ns < now_ns ? now_ns - worked_ns : 0;
}

void turn_note_work(unsigned device, uint64_t now_ns)
{
    account_note_worked(device, now_ns);
}

static void say(uint64_t share, const struct account_places *places, bool waits, uint64_t now_ns)
{
    const struct registry_memory memory = {.share_pages = pages_down(share),
        .wanted_pages = pages_up(places->resident_bytes + places->spilled_bytes),
        .resident_pages = pages_up(places->resident_bytes),
        .fixed_pages = pages_up(places->resident_bytes - places->movable_bytes),
        .waits = waits};
    registry_turns_say(&turn.registry, &memory, now_ns);
}

/* ---- looks ---- */

static bool has_share(
    unsigned device, uint64_t now_ns, uint64_t *ret_share, struct account_places *ret_places)
{
    *ret_share = account_share(device);
    return *ret_share != UINT64_MAX && *ret_share >= PAGE_BYTES && meet(device, now_ns) &&
           account_places(device, ret_places);
}

static unsigned group_of(const struct turns_view *view)
{
    unsigned count = 0;
    for (unsigned i = 0; i < view->count; i++)
        count += turns_takes_part(&view->tenants[i]);
    return count;
}

static void act(const struct turns_order *order, struct turn_plan *plan, uint64_t now_ns)
{
    const struct turns_view *view = &turn.view;
    bool takes_part = turns_takes_part(&view->tenants[view->own]);
    int slot = order->to < 0 ? -1 : (int)view->tenants[order->to].slot;
    plan->in_group = takes_part && group_of(view) > 1;
    plan->holds = takes_part && view->holder == (int)view->own;
    if (order->act == TURNS_TAKE) {
        slot = (int)view->tenants[view->own].slot;
        plan->holds = registry_turns_swap(&turn.registry, turn.word, slot, now_ns);
    } else if (order->act == TURNS_PASS && !takes_part) {
        (void)registry_turns_swap(&turn.registry, turn.word, slot, now_ns);
    } else if (order->act == TURNS_PASS) {
        plan->passes = true;
        plan->to = slot;
    }
}

static void nothing_to_do(unsigned device, uint64_t share)
{
    if (share != UINT64_MAX && turn.met && device == turn.device && account_borrowed(device))
        account_set_borrowed(device, 0);
    if (!turn.met || device == turn.device)
        open_gate();
}

bool turn_look(
    unsigned device, bool away, bool is_full, uint64_t now_ns, struct turn_plan *ret_plan)
{
    struct account_places places;
    uint64_t share;
    *ret_plan = (struct turn_plan){.to = -1};
    if (!has_share(device, now_ns, &share, &places)) {
        nothing_to_do(device, share);
        return false;
    }
    uint64_t idle = idle_ns(device, away, now_ns);
    say(share, &places, turn.waits, now_ns);
    if (!registry_turns_look(&turn.registry, &turn.view, &turn.word)) {
        nothing_to_do(device, share);
        return false;
    }
    struct turns_self self = {
        .idle_ns = idle, .resident_pages = pages_down(places.resident_bytes), .is_full = is_full};
    struct turns_order order = turns_step(
        &turn.turns, &turn.view, &self, config_turn_overhead_percent(container_config()), now_ns);
    if (order.waits != turn.waits)
        say(share, &places, order.waits, now_ns);
    turn.waits = order.waits;
    if (!order.works)
        turn_close();
    else if (order.act != TURNS_PASS || !turns_takes_part(&turn.view.tenants[turn.view.own]))
        open_gate();
    act(&order, ret_plan, now_ns);
    ret_plan->by_idleness = ret_plan->passes && order.by_idleness;
    return true;
}

void turn_pass(const struct turn_plan *plan, uint64_t now_ns)
{
    (void)registry_turns_swap(&turn.registry, turn.word, plan->to, now_ns);
    turn.turns.holds = turn.turns.ready = false;
}

/* ---- claims ---- */

/* What is borrowed is said before more may be had, and given back after it went out. */
static void settle(unsigned device, uint64_t share, uint64_t resident)
{
    const struct turns_tenant *own = &turn.view.tenants[turn.view.own];
    uint32_t former = own->claim_pages ? own->claim_pages : own->share_pages;
    uint32_t ceiling = turns_ceiling(&turn.view, turn.view.own), claim, allowed;
    if (ceiling < former) {
        uint32_t held = pages_up(resident);
        allowed = ceiling;
        claim = held > ceiling ? held : ceiling;
        claim = claim < former ? claim : former;
    } else {
        allowed = claim = turns_claim_room(&turn.view);
    }
    int64_t borrowed = 0;
    if (allowed != own->share_pages)
        borrowed = (int64_t)(allowed * PAGE_BYTES) - (int64_t)share;
    if (allowed < former)
        account_set_borrowed(device, borrowed);
    if (claim != former)
        registry_claim_set(&turn.registry, claim == own->share_pages ? 0 : claim ? claim : 1);
    if (allowed >= former && account_borrowed(device) != borrowed)
        account_set_borrowed(device, borrowed);
}

void turn_settle(unsigned device)
{
    struct account_places places;
    uint64_t share;
    if (!has_share(device, clock_now_ns(), &share, &places) ||
        !registry_claims_begin(&turn.registry))
        return;
    if (registry_turns_look(&turn.registry, &turn.view, &turn.word))
        settle(device, share, places.resident_bytes);
    registry_claims_end(&turn.registry);
}

uint64_t turn_over_bytes(unsigned device)
{
    struct account_places places;
    uint64_t allowed = account_allowed(device);
    if (allowed == UINT64_MAX || !account_places(device, &places))
        return 0;
    return places.resident_bytes > allowed ? places.resident_bytes - allowed : 0;
}

/* ---- the end ---- */

void turn_leave(void)
{
    open_gate();
    if (turn.met)
        registry_detach(&turn.registry);
    turn.met = false;
    memset(&turn.turns, 0, sizeof(turn.turns));
}

void turn_reset(void)
{
    if (turn.met)
        registry_reset(&turn.registry);
    memset(&turn, 0, sizeof(turn));
}
