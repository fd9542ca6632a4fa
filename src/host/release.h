/* SPDX-License-Identifier: Apache-2.0 */
/* A container's device memory moved to host memory, and back: the order, and what its processes
 * made of it. */
#ifndef VGPU_HOST_RELEASE_H
#define VGPU_HOST_RELEASE_H

#include "host/checkpoint.h"
#include "host/choose.h"

#include <stdbool.h>
#include <stdint.h>

/* Sums over the processes that live. */
struct release_outcome {
    uint64_t movable_bytes;  /* on the card, when the order was given */
    uint64_t released_bytes; /* in host memory because of an order or of idleness, now */
    /* On the card, now: what the driver owns (contexts and what goes with them; modules; pools,
     * arrays, exported memory and other buffers; what no kind has), and what could have moved. */
    uint64_t context_bytes, module_bytes, other_bytes, unexplained_bytes, left_bytes;
    /* How many processes made that of it; `back`: its next work had it back before the answer. */
    unsigned moved, back, partly, not_drained, captures;
    unsigned parked, checkpointed; /* of the moved ones: nothing of them calls the driver, and the
                                    * driver has them checkpointed */
    unsigned without;              /* have a context, and take no part: no memory of theirs moves */
    unsigned silent;               /* did not answer in time: stopped, say */
    uint64_t lacking_bytes;        /* of host memory: nothing was moved */
    struct checkpoint_outcome checkpoint; /* what the driver made of its checkpoint or restore */
};

/* Gives the order and waits, bounded, until each process that has movable memory has answered; all
 * but VGPU_RELEASE_ON_DEMAND then pause the container, and VGPU_RELEASE_CHECKPOINT first has the
 * driver checkpoint the processes. Where host memory lacks it takes the order back: lacking_bytes.
 * Where nothing can be moved, or what is moved is checkpointed, it gives none, and only pauses.
 * Returns 0 or -errno. */
int release_give(struct chosen_region *chosen, enum vgpu_release kind,
    struct release_outcome *ret_outcome) __attribute__((warn_unused_result));

/* Has the driver restore what it has checkpointed, or does nothing where a card has no room for
 * that (checkpoint.lacking_bytes); orders back what was moved away, where something was, and waits
 * likewise. */
int release_end(struct chosen_region *chosen, struct release_outcome *ret_outcome)
    __attribute__((warn_unused_result));

/* The driver has a process of it checkpointed, whatever the last order was. */
bool release_has_checkpointed(const struct chosen_region *chosen);

/* In words, on stdout: what is in host memory, and what stays and why. */
void release_print(const struct release_outcome *outcome, enum vgpu_release kind);
void release_print_end(const struct release_outcome *outcome);

/* One line on stderr: nothing was moved, or came back, and why. */
void release_refuse(const struct release_outcome *outcome);
void release_refuse_end(const struct release_outcome *outcome);

#endif
