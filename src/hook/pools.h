/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the driver keeps for reuse: stream-ordered pools and the graphs' memory. It is held,
 * so it counts; before an allocation is refused, what lies unused in it is given back. */
#ifndef VGPU_HOOK_POOLS_H
#define VGPU_HOOK_POOLS_H

#include "abi/cuda.h"

#include <stdbool.h>

/* The process uses the pool (a pool of its own, or a device's). */
void pools_note(CUmemoryPool pool, CUdevice ordinal);

/* The process uses the current pool of the current device; returns it, NULL where there is none. */
CUmemoryPool pools_note_current(void);

/* Graphs of the process may hold memory on the device. */
void pools_note_graphs(CUdevice ordinal);

/* Before the pool is destroyed. */
void pools_forget(CUmemoryPool pool);

/* Asks the driver to give back what it holds unused on the region's device. True where a second
 * attempt may succeed. */
bool pools_make_room(int device);

/* For the end of an allocation's loop: true once, where a second attempt may succeed. */
static inline bool pools_try_again(CUresult result, int device, unsigned *attempts)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY && (*attempts)++ == 0 && pools_make_room(device);
}

/* API ledger: charges what the pools of the region's device hold now. */
void pools_refresh(int device);

void pools_reset(void);

#endif
