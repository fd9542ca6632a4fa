/* SPDX-License-Identifier: Apache-2.0 */
/* The effective policy: what the container is held to now. That is its compute limits, soft limits
 * while no other tenant works, pauses, and tenants of higher priority. Threads that launch read it
 * from the region every few milliseconds, the governor at each of its looks; only the governor
 * knows of the neighbours (pace/tenants.h). Any thread; asking takes no lock. */
#ifndef VGPU_PACE_POLICY_H
#define VGPU_PACE_POLICY_H

#include "base/atomic.h"
#include "compute/slices.h"

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds between two looks of a thread that launches at the control words: the delay of a
 * change. */
#define POLICY_LOOK_NS 5000000ull

/* Percent: no limit, but the container's work on the device is watched. */
#define POLICY_WATCHED 100u

/* Some device of the container has a compute limit. */
extern bool policy_limited;

/* Reads the control words; returns policy_limited. *ret_epoch: what account_control_wait takes, to
 * sleep until they change. */
bool policy_read(uint64_t now_ns, uint32_t *ret_epoch);

/* The same if the last look is POLICY_LOOK_NS ago; for threads that launch. */
bool policy_look(uint64_t now_ns);
/* For other threads, which are no sign that the program works. */
void policy_refresh(uint64_t now_ns);

/* Counts the changes of limits and holds that were read. After one, what was admitted by estimate
 * is looked at closely again. One load. */
extern uint32_t policy_changes;

static inline uint32_t policy_news(void)
{
    return load_relaxed(&policy_changes);
}

static inline void policy_note_news(void)
{
    add_relaxed(&policy_changes, 1u);
}

/* The limit of a device in percent, as last read: 0 none, POLICY_WATCHED. */
unsigned policy_percent(unsigned device);

/* Its soft limit, 0 if it has none. */
unsigned policy_soft_percent(unsigned device);
unsigned policy_hard_percent(unsigned device);

/* Some limit or priority was given: the container may be paused or limited at any time. */
bool policy_is_given(void);

/* The container may not work at all: it is paused, or a tenant of higher priority works. */
bool policy_hold(void);
bool policy_pause(void); /* it is paused */
/* The pause is HAMi's monitor's alone: its end wakes no thread. */
bool policy_pause_is_the_monitors(void);
/* If the container is paused, says so in the log, once in a process: nothing else tells the
 * program's user why it stands still. Keeps errno. */
void policy_explain_pause(void);
unsigned policy_priority(void);
bool policy_has_priority(void); /* it was given a priority */

/* Sleeps until the control words change, `timeout_ns` at most. */
void policy_wait(uint64_t timeout_ns);

/* The container's part of the device's time while all work that work now (compute/slices.h). */
struct slices_part policy_part(unsigned device);

/* The same; if the others stopped after `since_ns`, the part as it was with them. */
struct slices_part policy_part_since(unsigned device, uint64_t since_ns);

/* For the governor: what the neighbours on the device leave to the container. */
struct policy_neighbours {
    struct slices_part part;
    bool soft_is_on;  /* no other tenant worked for a while */
    bool higher_work; /* a tenant of higher priority works */
};
void policy_set_neighbours(
    unsigned device, const struct policy_neighbours *neighbours, uint64_t now_ns);
/* A tenant with a compute limit works on a device of the container: for two seconds from now, the
 * container's work there is watched, with a limit or without. */
void policy_note_limited_beside(uint64_t now_ns);
/* Whether there is a directory of registries, looked for once a second. */
bool policy_may_have_neighbours(uint64_t now_ns);
/* What the neighbours said is too old: none is known to work. */
void policy_forget_neighbours(void);

/* Kernels of the container's devices wait for each other (pace/gang.h). */
bool policy_has_gang(void);

/* Launches wait only where channels cannot be taken off the GPU: because VGPU_GATE says so, or
 * because the devices are a gang. If a launch of a gang is held back on one device, its kernels
 * keep the other devices busy and make no progress, while closing channels stops all of them at
 * once, in the middle. */
bool policy_only_channels(void);

/* The process ends: nothing is held any more. */
void policy_finish(void);
bool policy_is_finished(void);

/* In a forked child. */
void policy_reset(void);

#endif
