/* SPDX-License-Identifier: Apache-2.0 */
/* What the tenants of a GPU tell each other of their device memory, for turns (residency/turns.h).
 * Advisory, as all of the registry. By the thread that attached `registry`, which others may share
 * a slot with: a container's processes say one thing. All keep errno. */
#ifndef VGPU_REGISTRY_REGISTRY_TURNS_H
#define VGPU_REGISTRY_REGISTRY_TURNS_H

#include "registry/registry.h"
#include "residency/turns.h"

/* The container's, in pages of 2 MiB. */
struct registry_memory {
    uint32_t share_pages; /* 0: it takes no part; nothing else is said */
    uint32_t wanted_pages;
    uint32_t resident_pages;
    uint32_t fixed_pages; /* of these: what cannot leave the card */
    bool waits;
};

/* Says it, and that we live. Stores. */
void registry_turns_say(
    struct registry *registry, const struct registry_memory *own, uint64_t now_ns);

/* What the tenants say that have a share and live, in the order of their slots; ours is among them.
 * A system call of 0.2 us for each. *ret_turn: the turn's word, for registry_turns_swap. False
 * where we have no slot, or have said nothing. */
bool registry_turns_look(struct registry *registry, struct turns_view *ret_view, uint64_t *ret_turn)
    __attribute__((warn_unused_result));

/* Gives the turn to the tenant of a slot (-1: to none) if the word is still `turn`, and wakes all
 * that sleep on the registry. Returns whether it was. */
bool registry_turns_swap(struct registry *registry, uint64_t turn, int slot, uint64_t now_ns);

/* Around a change of claims: takes the tenants' lock, for 20 ms at most. False: another tenant
 * has it, and nothing may be changed. True also where the file system has no such locks. */
bool registry_claims_begin(struct registry *registry) __attribute__((warn_unused_result));
void registry_claims_end(struct registry *registry);

/* In between: our claim, 0 where none was said, and to change it. */
uint32_t registry_claim(struct registry *registry);
void registry_claim_set(struct registry *registry, uint32_t pages);

#endif
