/* SPDX-License-Identifier: Apache-2.0 */
/* The neighbours on each device, as the boards tell (region/board.h): we say that we are at work,
 * and see who else is. For the governor's thread alone, but where said otherwise. Without a board
 * nobody is known, nobody gives way, and soft limits stay shut. */
#ifndef VGPU_PACE_TENANTS_H
#define VGPU_PACE_TENANTS_H

#include "base/word.h"
#include "compute/window.h"

#include <stdbool.h>
#include <stdint.h>

struct tenants_own {
    bool active; /* work of ours is on its way, or was just now */
    bool wants;  /* a launch waits for our limit */
    bool paused;
    bool windows; /* it is not looked at again for up to 28 ms */
    bool divided; /* the windows can keep to a slot */
};

/* Says so for the device, and takes what the others say into the policy. True where we had what
 * they left until now, and do not any more. */
bool tenants_meet(unsigned device, const struct tenants_own *own, uint64_t now_ns);

/* Which slot that is, as of the last meeting. */
struct window_slot tenants_slot(unsigned device);

/* Without a word of ours: whether somebody with a compute limit is at work on the device. What he
 * and we do at once is his by our word alone, so that we watch our work then, limit or not. */
bool tenants_limited_work(unsigned device, uint64_t now_ns);

/* Adds the boards' words to those that the governor sleeps on before its next look in `ns`, where
 * it matters to us who comes and goes; returns how long it may sleep. */
uint64_t tenants_await(uint64_t ns, struct word_awaited words[WORD_AWAITED_MAX], unsigned *count);

/* A kernel was cut in time slices, and whether it is known what it takes alone. One thread at a
 * time. */
void tenants_note_cut(unsigned device, bool known);

/* Our time slices on the device are `*ret_slice_ns` long without a break since then; 0: they are as
 * ever. Any thread. */
uint64_t tenants_extended_since_ns(unsigned device, uint64_t *ret_slice_ns);

/* The process ends. */
void tenants_leave(void);

/* In a forked child. */
void tenants_reset(void);

#endif
