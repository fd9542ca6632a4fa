/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the driver keeps for reuse: stream-ordered pools and the graphs' memory. It is held,
 * so it counts; before an allocation is refused, what lies unused in it is given back. A pool is
 * what its type and location make it, which are noted when it is made or first met. */
#ifndef VGPU_MEMORY_POOLS_H
#define VGPU_MEMORY_POOLS_H

#include "abi/cuda.h"
#include "base/atomic.h"
#include "memory/memory.h"

#include <stdbool.h>
#include <stdint.h>

enum pool_kind {
    POOL_DEVICE,  /* device memory, or a location that we do not know */
    POOL_MANAGED, /* counts under both ledgers, as cuMemAllocManaged does, with any location */
    POOL_HOST,    /* counts nowhere */
};

enum pool_kind pools_kind(CUmemAllocationType type, const CUmemLocation *location);

/* The process has made the pool. _met: or it asked for a location's, which it may have met before.
 */
void pools_note(CUmemoryPool pool, CUmemAllocationType type, const CUmemLocation *location);
void pools_note_met(CUmemoryPool pool, CUmemAllocationType type, const CUmemLocation *location);

/* The process makes a graph's allocation node with these pool properties. */
void pools_note_node(const CUmemPoolProps *props);

/* A pool of managed memory was met; written by this module alone. */
extern bool pools_managed_met;

/* Whether pools are counted here: all of them under the API ledger, else those of managed memory.
 * Two loads. */
static inline bool pools_count(void)
{
    return __builtin_expect(
        memory_ledger() == MEMORY_LEDGER_API || load_relaxed(&pools_managed_met), 0);
}

/* Where a pool's memory counts. */
struct pool_place {
    enum pool_kind kind;
    CUdevice ordinal; /* -1: POOL_HOST */
};

/* Of a managed pool whose location is no device, the device that is charged with what it holds, and
 * while that is nothing the current one. Of what is no pool, the current device. */
CUresult pools_place(CUmemoryPool pool, struct pool_place *ret_place)
    __attribute__((warn_unused_result));

/* The current pool of the current device. */
CUresult pools_place_current(CUmemoryPool *ret_pool, struct pool_place *ret_place)
    __attribute__((warn_unused_result));

/* The pool's memory is of the stream's device, whichever is current: there is no pool (NULL: the
 * current one), or it has no device. */
bool pools_goes_by_stream(CUmemoryPool pool);

/* What a pool, or a device's graph memory, may come to hold when it serves a request. Of pools that
 * are counted, as are all below. */
struct pool_growth {
    uint64_t held_bytes; /* before */
    uint64_t bytes;      /* more than those */
};

/* Of `bytes` to serve; `given_back` are still in use and will be free by then. Where the driver
 * does not tell what is unused, nothing is. */
struct pool_growth pools_growth(CUmemoryPool pool, enum pool_kind kind, uint64_t bytes);
struct pool_growth pools_graph_growth(CUdevice ordinal, uint64_t bytes, uint64_t given_back);

/* It was served. Charges what is held now, or the whole growth until the next look where the driver
 * does not tell; true where it is more than was foreseen. */
bool pools_charge(
    CUmemoryPool pool, enum pool_kind kind, int device, const struct pool_growth *foreseen);
bool pools_charge_graphs(CUdevice ordinal, int device, const struct pool_growth *foreseen);

/* The pointer was allocated from a pool that was noted (from another: nothing is done), or freed.
 */
void pools_note_allocated(CUmemoryPool pool, CUdeviceptr pointer, uint64_t bytes);
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

/* Whether an allocation is to be attempted, which is counted in `attempts` (0 at first). `result`
 * is the answer so far, CUDA_SUCCESS at first. A second attempt follows one for which there was no
 * room, if there is something to make room with on the ordinal (-1: on the current device). */
bool pools_allow_attempt(unsigned *attempts, CUresult result, CUdevice ordinal);

/* Charges what the device's pools hold now. */
void pools_refresh(CUdevice ordinal);
void pools_refresh_current(void);

void pools_reset(void);

#endif
