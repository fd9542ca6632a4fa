/* SPDX-License-Identifier: Apache-2.0 */
/* This process's part of its container's GPU time on each device (compute/budget.h), and what it
 * has still to take from the budget. Any thread, without locks. */
#ifndef VGPU_PACE_SHARE_H
#define VGPU_PACE_SHARE_H

#include "compute/budget.h"

#include <stdbool.h>
#include <stdint.h>

/* GPU time that was admitted; below 0 it is given back. The next visit of the budget charges it. */
void share_charge_later(unsigned device, int64_t gpu_ns);
/* Takes that out: the caller charges it. */
int64_t share_take_uncharged(unsigned device);

/* How many processes of the container ask for the device's time, as last counted; one load. The
 * other counts them, at most once in POLICY_LOOK_NS. */
unsigned share_active(unsigned device);
void share_count_active(unsigned device, uint64_t now_ns);

/* Within account_visit_compute, which one thread at a time is in. */
struct budget_share *share_of(unsigned device);
/* What was measured, for this process's own part (budget_share_settle). */
void share_settle(unsigned device, struct vgpu_compute *words, const struct budget_done *done);

/* In a forked child. */
void share_reset(void);

#endif
