/* SPDX-License-Identifier: Apache-2.0 */
/* The effective policy: what the container is held to now: its compute limits, soft ones while
 * nobody else is at work, pauses, and tenants of higher priority. Read from the region every few
 * milliseconds by whoever launches, and at each of its looks by the governor, which alone knows of
 * the neighbours (pace/tenants.h). Any thread; asking takes no lock. */
#ifndef VGPU_PACE_POLICY_H
#define VGPU_PACE_POLICY_H

#include "base/atomic.h"
#include "compute/slices.h"

#include <stdbool.h>
#include <stdint.h>

/* How often a thread that launches looks whether something was changed. */
#define POLICY_LOOK_NS 5000000ull

/* All of a device: no limit, but its work is watched. */
#define POLICY_WATCHED 100u

/* Some device of the container has a compute limit. */
extern bool policy_limited;

/* Reads what is in force; returns policy_limited. *ret_epoch: what account_control_wait
 * takes, to sleep until it changes. */
bool policy_read(uint64_t now_ns, uint32_t *ret_epoch);

/* The same where the last look was too long ago; for threads that launch. */
bool policy_look(uint64_t now_ns);
/* For others, which are no sign that the program works. */
void policy_refresh(uint64_t now_ns);

/* Changes whenever limits or a hold begin or end to be in force, as they were last read: what was
 * admitted by an estimate is to be looked at again. One load. */
extern uint32_t policy_changes;

static inline uint32_t policy_news(void)
{
    return load_relaxed(&policy_changes);
}

static inline void policy_note_news(void)
{
    add_relaxed(&policy_changes, 1u);
}

/* The limit of a device in percent, as it was last seen: 0 none, POLICY_WATCHED. */
unsigned policy_percent(unsigned device);

/* Its soft limit, 0 where there is none. */
unsigned policy_soft_percent(unsigned device);
unsigned policy_hard_percent(unsigned device);

/* Some limit or priority was given: the container may be paused, or limited, at any time. */
bool policy_is_given(void);

/* The container may not work at all: it is paused, or somebody of higher priority works. */
bool policy_hold(void);
bool policy_pause(void); /* the first of the two alone */
/* Where it is paused: only by HAMi's monitor, so that nobody is woken when that ends. */
bool policy_pause_is_the_monitors(void);
/* Where the container is paused: says so in the log, once in a process, because whoever started the
 * program sees nothing else of why it stands still. Keeps errno. */
void policy_explain_pause(void);
unsigned policy_priority(void);
bool policy_has_priority(void); /* somebody gave it one */

/* Sleeps until something changed, at most so long. */
void policy_wait(uint64_t timeout_ns);

/* What part of the device's time is ours while all work that are at work now (compute/slices.h). */
struct slices_part policy_part(unsigned device);

/* The same, or where they are not at work any more but have been since then, as it was. */
struct slices_part policy_part_since(unsigned device, uint64_t since_ns);

/* For the governor: what the neighbours on the device leave us. */
struct policy_neighbours {
    struct slices_part part;
    bool soft_is_on;  /* nobody else has been for a while */
    bool higher_work; /* somebody of higher priority is */
};
void policy_set_neighbours(
    unsigned device, const struct policy_neighbours *neighbours, uint64_t now_ns);
/* Somebody who has a compute limit works on a device of ours: from now on, for two seconds, our
 * work there is watched, limit or not. */
void policy_note_limited_beside(uint64_t now_ns);
/* Whether there is a directory of boards, looked for once a second. */
bool policy_may_have_neighbours(uint64_t now_ns);
/* What it said is too old. Nobody else is at work, as far as one knows. */
void policy_forget_neighbours(void);

/* Kernels of the container's devices wait for each other (pace/gang.h). */
bool policy_has_gang(void);

/* Launches wait only where channels cannot be taken off the GPU: that was chosen (VGPU_GATE), or
 * else the devices are a gang. A launch that is held back on one of them has those of the others
 * keep theirs busy and get nowhere, while channels are stopped on all at once, in the middle. */
bool policy_only_channels(void);

/* The process ends: nothing is held any more. */
void policy_finish(void);
bool policy_is_finished(void);

/* In a forked child. */
void policy_reset(void);

#endif
