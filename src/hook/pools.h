/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the driver keeps for reuse: stream-ordered pools and the graphs' memory. It is held,
 * so it counts; before an allocation is refused, what lies unused in it is given back. */
#ifndef VGPU_HOOK_POOLS_H
#define VGPU_HOOK_POOLS_H

#include "abi/cuda.h"

#include <stdbool.h>
#include <stdint.h>

/* The process has made a pool of its own on the device. */
void pools_note(CUmemoryPool pool, CUdevice ordinal);

/* The device that the pool is on; of NULL and of what is no pool, the current one. */
CUresult pools_ordinal(CUmemoryPool pool, CUdevice *ret_ordinal)
    __attribute__((warn_unused_result));

/* API ledger: what a pool, or a device's graph memory, may come to hold when it serves a request.
 */
struct pool_growth {
    uint64_t held_bytes; /* before */
    uint64_t bytes;      /* more than those */
};

/* API ledger: of `bytes` to serve; `given_back` are still in use and will be free by then. Where
 * the driver does not tell what is unused, nothing is. */
struct pool_growth pools_growth(CUmemoryPool pool, uint64_t bytes);
struct pool_growth pools_graph_growth(CUdevice ordinal, uint64_t bytes, uint64_t given_back);

/* API ledger: it was served. Charges what is held now, or the whole growth until the next look
 * where the driver does not tell; true where it is more than was foreseen. */
bool pools_charge(CUmemoryPool pool, int device, const struct pool_growth *foreseen);
bool pools_charge_graphs(CUdevice ordinal, int device, const struct pool_growth *foreseen);

/* API ledger: the pointer was allocated from a pool of the program's own (from another: nothing is
 * done), or freed. */
void pools_note_allocated(CUmemoryPool pool, CUdeviceptr pointer);
void pools_note_freed(CUdeviceptr pointer);

/* The process allocates in stream order, or has graphs that allocate: from then on there may be
 * something to make room with. One load when done. */
void pools_note_use(void);

/* The program destroys the pool. What it holds stays charged until the last of its allocations is
 * freed, as the driver keeps it. */
CUresult pools_destroy(CUmemoryPool pool);

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
