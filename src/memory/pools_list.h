/* SPDX-License-Identifier: Apache-2.0 */
/* The list of pools, for the files that keep memory/pools.h: of the list (pools_list.c), of what
 * they hold (pools_charge.c), of making room (pools_room.c). */
#ifndef VGPU_MEMORY_POOLS_LIST_H
#define VGPU_MEMORY_POOLS_LIST_H

#include "memory/pools.h"

#include "base/lock.h"
#include "base/map.h"
#include "base/slab.h"

struct pool {
    CUmemoryPool pool;
    enum pool_kind kind;
    CUdevice ordinal; /* that is charged; -1: none yet, or never */
    bool has_device;  /* the location is one */
    bool tells_used;  /* the driver's figure of what is in use agreed with ours */
    unsigned live;    /* allocations that were seen and not freed */
    uint64_t live_bytes;
    bool destroyed;
    unsigned users; /* threads of ours that ask the driver for it now */
};

struct pools_list {
    bool used;
    struct slab slab;
    struct map list; /* by handle: the program's own, and the defaults of managed and host memory;
                        the devices' are asked for */
    struct slab allocation_slab;
    struct map allocations; /* of pools that are counted, by pointer */
};
/* Guards all but `used`; not held over driver calls. */
extern struct lock pools_lock;
extern struct pools_list pools GUARDED_BY(pools_lock);

/* A copy of what was noted of the pool, or of nothing. */
struct pool pools_known(CUmemoryPool pool);

/* Whether the driver tells the figure, of a pool and of a device's graph memory. */
bool pools_tell(CUmemoryPool pool, CUmemPool_attribute name, cuuint64_t *ret_bytes);
bool pools_graphs_tell(CUdevice ordinal, CUgraphMem_attribute name, cuuint64_t *ret_bytes);

/* Charges what a managed pool holds, and returns it. */
uint64_t pools_charge_managed(CUmemoryPool pool, int device);

#endif
