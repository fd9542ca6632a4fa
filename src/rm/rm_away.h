/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that the driver takes off the card for a checkpoint, and brings back when it
 * restores it (vmem/park.h). Meanwhile it counts as memory in host memory, which it is: the
 * container's other processes cannot take its place within the limit, and its return is refused by
 * no limit. Any thread. */
#ifndef VGPU_RM_RM_AWAY_H
#define VGPU_RM_RM_AWAY_H

#include "account/account.h"

#include <stdbool.h>
#include <stdint.h>

/* From now on what is freed is away, until rm_away_end; no call of the program reaches the driver
 * in between. _end: what has not come back by then does not. */
void rm_away_begin(void);
void rm_away_end(void);

/* One load. */
bool rm_away_is_on(void);

/* The kernel freed or gave as many bytes in between. */
void rm_away_freed(unsigned device, uint64_t bytes, enum account_kind kind);
void rm_away_came_back(unsigned device, uint64_t bytes, enum account_kind kind);

/* The start of a process or of a forked child. */
void rm_away_reset(void);

#endif
