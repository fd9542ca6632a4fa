/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's checkpoint of a container's processes that are parked (VGPU_RELEASE_CHECKPOINT), and
 * their restore: contexts, modules, pools and arrays leave the card. By the driver's library here,
 * which is loaded at the first call; as a user who may: the processes' own, or root. */
#ifndef VGPU_HOST_CHECKPOINT_H
#define VGPU_HOST_CHECKPOINT_H

#include "host/choose.h"

#include <stdbool.h>
#include <stdint.h>

struct checkpoint_outcome {
    unsigned done, refused;
    int code;               /* the driver's, of one that was refused; 0: none */
    const char *where;      /* which call refused; NULL: none */
    const char *lacks;      /* why none was made or asked for; NULL: nothing lacks */
    uint64_t lacking_bytes; /* of a card, for a restore: none was asked for */
};

/* Locks and checkpoints each parked process of the region that can be found. One that the driver
 * refuses stays parked. Waits 10 s at most for each to be locked, and for as long as the driver
 * takes. Returns 0 or -errno. */
int checkpoint_take(struct chosen_region *chosen, struct checkpoint_outcome *ret_outcome)
    __attribute__((warn_unused_result));

/* NULL, or why there can be none here. */
const char *checkpoint_lacks(void);

/* Brings each back, whatever the call that made it so had come to, so that the process heeds orders
 * again. One that the driver does not restore stays as it is. Where a card has no room for all of
 * them none is asked for (lacking_bytes): a restore that fails for that can never be made again
 * (H100, driver 580.159.04). So one command restores at a time: waits 30 s at most for
 * another, then refuses (lacks). */
int checkpoint_restore(struct chosen_region *chosen, struct checkpoint_outcome *ret_outcome)
    __attribute__((warn_unused_result));

#endif
