/* SPDX-License-Identifier: Apache-2.0 */
/* Slots: one a process, claimed when it attaches, judged dead by its peers.
 * A slot's process is alive while an open file holds its lock, or, in the same PID namespace, while
 * its pid exists with its start time and has not become another program by exec: a process that
 * closes all descriptors keeps its slot. A peer that cannot tell takes it for alive. All functions
 * keep errno. */
#ifndef VGPU_REGION_SLOT_H
#define VGPU_REGION_SLOT_H

#include "region/mapping.h"
#include "region/slot_word.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Where a slot's state lies in the file: the byte that its owner's lock is on. */
off_t slot_offset(unsigned slot);

/* Whether the slot's process is dead, by what the slot (or a copy of it) says; `word` is its state.
 * `unlocked`: no open file holds the slot's lock. Then a process that cannot be seen is dead; else
 * only one that is seen to be gone. */
bool slot_is_dead(const struct vgpu_slot *slot, uint64_t word, bool unlocked);

/* Claims a free or dead slot for the calling process and zeroes it. ret_word is the slot's state
 * word, by which the owner knows it again. Returns the slot's index, -ENOSPC where all are taken,
 * or -errno where the file system has no room for it. One claimer a process at a time. */
int slot_claim(struct region *region, uint64_t *ret_word) __attribute__((warn_unused_result));

/* Holds the lock of our slot again, through a descriptor that was opened anew. */
void slot_lock_again(struct region *region, unsigned slot);

/* Lets go of the lock of a slot that a peer took for dead. */
void slot_unlock(struct region *region, unsigned slot);

/* Frees our own slot where it still is ours: another one will be claimed. */
void slot_leave(struct region *region, unsigned slot, uint64_t word);

/* Reaps every dead slot but `own` (-1: none is ours) that `device` counts in; returns how many. */
unsigned slot_reap_dead(struct region *region, int own, unsigned device);

/* For tools: frees the slot whose state is `word`, where its process is dead, its claimer is gone,
 * or the state is none. Returns 0, -EBUSY where it may live, or -ESTALE where the state is another.
 */
int slot_free_dead(struct region *region, unsigned index, uint64_t word)
    __attribute__((warn_unused_result));

/* Reaps every dead slot but `own`, whatever it holds. One system call, and one for each peer. */
void slot_reap_all(struct region *region, int own);

/* True where any slot's process lives. */
bool slot_any_live(struct region *region);

#endif
