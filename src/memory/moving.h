/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of cuMemCreate that moves between the card and the host: its bytes are charged all the
 * time, once, whichever ledger counts. The steps are moving_begin, then around cuMemCreate of the
 * new memory moving_make and moving_made, then around cuMemRelease moving_release and
 * moving_released: of the old memory, or where the move fails of the new, and then moving_end_back.
 * One thread a move. */
#ifndef VGPU_MEMORY_MOVING_H
#define VGPU_MEMORY_MOVING_H

#include "memory/memory.h"

struct moving {
    unsigned device; /* the region's index */
    uint64_t bytes;
    enum account_kind from, to;
    enum account_kind former_kind;
    struct memory_record record; /* of what is being released */
};

/* The bytes are charged in the other place. Returns 0, or -EDQUOT where that has no room. `ready`:
 * to host memory that this process had ready, which always has. */
int moving_begin(struct moving *moving, unsigned device, uint64_t bytes, bool to_host, bool ready)
    __attribute__((warn_unused_result));

void moving_make(struct moving *moving);
void moving_made(struct moving *moving, bool made, uint64_t handle);

/* `old`: the memory that was moved away from; else that which was made for nothing. */
void moving_release(struct moving *moving, bool old, uint64_t handle);
void moving_released(struct moving *moving, bool old, bool released, uint64_t handle);

/* The bytes are where they were. */
void moving_end_back(struct moving *moving);

#endif
