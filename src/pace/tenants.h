/* SPDX-License-Identifier: Apache-2.0 */
/* The neighbours on each device, by its registry (registry/registry.h): the container announces
 * that it works, and reads which others do. For the governor's thread alone, except where said
 * otherwise. Without a registry no neighbour is known, no tenant gives way, and soft limits stay
 * closed. */
#ifndef VGPU_PACE_TENANTS_H
#define VGPU_PACE_TENANTS_H

#include "base/word.h"
#include "compute/window.h"

#include <stdbool.h>
#include <stdint.h>

struct tenants_own {
    bool active; /* work of the container is on its way, or was just now */
    bool wants;  /* a launch waits for the container's limit */
    bool paused;
    bool windows; /* the next look may be up to 28 ms away */
    bool divided; /* the windows can keep to a time-division slot */
};

/* Announces `own` for the device, and takes what the others say into the policy. True if the
 * container had what they left until now, and no longer has. */
bool tenants_meet(unsigned device, const struct tenants_own *own, uint64_t now_ns);

/* The slot, as of the last meeting. */
struct window_slot tenants_slot(unsigned device);

/* Without an announcement: whether a tenant with a compute limit works on the device. What runs at
 * the same time as its work is told apart only by the container's own word, so that the container's
 * work is watched then, with a limit or without. */
bool tenants_limited_work(unsigned device, uint64_t now_ns);

/* Adds the registries' words to those that the governor sleeps on before its next look in `ns`, if
 * it matters which tenants come and go; returns how long it may sleep. */
uint64_t tenants_await(uint64_t ns, struct word_awaited words[WORD_AWAITED_MAX], unsigned *count);

/* A kernel was cut into time slices; `known`: its duration alone is known. One thread at a time. */
void tenants_note_cut(unsigned device, bool known);

/* Since when the container's time slices on the device are extended to *ret_slice_ns without a
 * break; 0: they are not. Any thread. */
uint64_t tenants_extended_since_ns(unsigned device, uint64_t *ret_slice_ns);

/* The process ends. */
void tenants_leave(void);

/* In a forked child. */
void tenants_reset(void);

#endif
