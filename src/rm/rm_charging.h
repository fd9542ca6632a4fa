/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the ledger of the resource manager's calls charges, and whether one of those calls is on
 * its way. Any thread. */
#ifndef VGPU_RM_RM_CHARGING_H
#define VGPU_RM_RM_CHARGING_H

#include <stdbool.h>

/* Whether allocations on this process's clients are charged by this ledger (at first). False: they
 * are seen, but the API ledger is the one that counts. */
void rm_charging_set(bool on);
bool rm_charging_is_on(void);

/* Around a call whose effect the kernel and the ledger may see at different times. */
void rm_charging_begin_call(void);
void rm_charging_end_call(void);

/* Whether some thread is between the two. */
bool rm_charging_has_call(void);

/* The start of a process or of a forked child. */
void rm_charging_reset(void);

#endif
