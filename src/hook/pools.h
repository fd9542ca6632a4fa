/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the driver keeps for reuse: stream-ordered pools and the graphs' memory. It is held,
 * so it counts; before an allocation is refused, what lies unused in it is given back. */
#ifndef VGPU_HOOK_POOLS_H
#define VGPU_HOOK_POOLS_H

#include "abi/cuda.h"

#include <stdbool.h>

/* The process has made a pool of its own on the device. */
void pools_note(CUmemoryPool pool, CUdevice ordinal);

/* The device of a pool of the program's own; `otherwise` where it is none. */
CUdevice pools_ordinal(CUmemoryPool pool, CUdevice otherwise);

/* API ledger: what the pool may grow by to serve `bytes`. */
uint64_t pools_growth(CUmemoryPool pool, uint64_t bytes);

/* What the pool's live allocations take. */
uint64_t pools_used_bytes(CUmemoryPool pool);

/* The process allocates in stream order, or has graphs that allocate: from then on there may be
 * something to make room with. One load when done. */
void pools_note_use(void);

/* Before the pool is destroyed. */
void pools_forget(CUmemoryPool pool);

/* Asks the driver to give back what it holds unused on the device. True where a second attempt may
 * succeed. _current: on the current context's device. */
bool pools_make_room(CUdevice ordinal);
bool pools_make_room_current(void);

/* For the end of an allocation's loop: true once, where a second attempt may succeed. */
static inline bool pools_try_again(CUresult result, unsigned *attempts)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY && (*attempts)++ == 0 && pools_make_room_current();
}

/* API ledger: charges what the device's pools hold now. */
void pools_refresh(CUdevice ordinal);
void pools_refresh_current(void);

void pools_reset(void);

#endif
