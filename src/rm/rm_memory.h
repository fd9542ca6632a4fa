/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory as the resource manager's ioctls show it: charges each allocation, whichever form
 * the call has (rm/rm_call.h), before it goes to the kernel, refuses what would pass the limit,
 * gives back what was freed, and audits the sum against the resource manager's own figure for this
 * process (the one that NVML reports). ABI: facts of NVIDIA's open kernel modules 580.95.05; seen
 * on an H200 with driver 580.159.04. */
#ifndef VGPU_RM_RM_MEMORY_H
#define VGPU_RM_RM_MEMORY_H

#include "account/account.h"
#include "rm/rm_ioctl.h"

#include <stdbool.h>
#include <stdint.h>

/* Carries out an ioctl of type RM_IOCTL_TYPE through `next`, the real ioctl, and accounts for it.
 * Same result and errno as ioctl(2). Only objects of clients that this process allocated are
 * acted on; all else is passed on untouched. */
int rm_memory_ioctl(int fd, unsigned long request, void *argument, rm_ioctl_function *next);

/* Forgets everything: the start of a process or of a forked child. */
void rm_memory_reset(void);

/* Whether a client of this process was seen to be allocated through the door, on GPUs that can be
 * told: its memory may be seen, too. */
bool rm_memory_may_see(void);

/* Whether device memory was seen to be allocated through the door: the ledger can be relied on. */
bool rm_memory_is_active(void);

/* Why the ledger cannot be relied on, as words for a log line; NULL where it can. To be asked when
 * a context was made. */
const char *rm_memory_blindness(void);

/* Whether ioctl is ours for those that look it up by its name; set by the door. */
extern bool (*rm_memory_door_is_first)(void);

extern _Thread_local enum account_kind rm_memory_thread_kind
    __attribute__((tls_model("initial-exec")));

/* The kind that memory allocated by this thread counts as; returns the former one. */
static inline enum account_kind rm_memory_set_kind(enum account_kind kind)
{
    enum account_kind former = rm_memory_thread_kind;
    rm_memory_thread_kind = kind;
    return former;
}

/* Movable memory that this thread is about to allocate (`makes`) or to free without a charge: the
 * account was told of the move before (account_move). `left`: bytes that were not seen yet; `seen`:
 * those that were, and are given back the same way if the driver does so in the same call. */
struct rm_memory_move {
    uint64_t left, seen;
    bool makes;
};

extern _Thread_local struct rm_memory_move rm_memory_thread_move
    __attribute__((tls_model("initial-exec")));

/* How often this thread's device memory was refused, by us or by the kernel: what tells a call that
 * failed for want of memory whatever the driver makes of it. */
unsigned rm_memory_thread_refusals(void);

/* How often it was refused by us because of the limit (not the share, nor by the kernel): a place
 * elsewhere would not help. */
unsigned rm_memory_thread_over_limit(void);

#endif
