/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that is ready for device memory to move out to. The driver takes 60 to 400 ms to make
 * a GiB of it, and 35 ms to give it back; a copy takes 20 ms. So what came back to the card leaves
 * its host memory here for HOST_POOL_KEEP_NS, and VGPU_HOST_POOL_READY has some made ahead.
 *
 * It counts against the host's bounds like spilled memory, and goes first where those are short:
 * this process's own, then that of the container's others. They are asked through the region, and
 * their threads that move answer (host_pool_trim). Any thread; the driver is called, and others are
 * waited for, with no lock held. */
#ifndef VGPU_VMEM_HOST_POOL_H
#define VGPU_VMEM_HOST_POOL_H

#include "abi/cuda.h"

#include <stdbool.h>
#include <stdint.h>

#define HOST_POOL_KEEP_NS 60000000000ull

/* A piece of exactly `bytes` on the NUMA node, mapped nowhere; the caller owns it from then on. Its
 * bytes count as ready until account_move_ready. False: there is none. */
bool host_pool_take(int numa_node, uint64_t bytes, CUmemGenericAllocationHandle *ret_handle)
    __attribute__((warn_unused_result));

/* Takes memory that is mapped nowhere and no longer charged. False where the budget of host memory
 * (VGPU_HOST_POOL) or the pool has no room, or a process has asked for what is ready: it stays the
 * caller's. */
bool host_pool_keep(int numa_node, uint64_t bytes, CUmemGenericAllocationHandle handle)
    __attribute__((warn_unused_result));

/* Makes as much and takes it; false where there is no room for that, or the driver refuses. */
bool host_pool_make(const CUmemAllocationProp *property, uint64_t bytes)
    __attribute__((warn_unused_result));

/* Of this process. */
uint64_t host_pool_bytes(void);

/* How much more of host memory may be made beside all that is spilled or ready: by the budget, the
 * memory cgroup and the machine. UINT64_MAX: no bound is known. */
uint64_t host_pool_left(void);

/* How much more may be spilled if all that is ready is given back. Asks nobody. */
uint64_t host_pool_room(void);

/* How much may move out to the host now: the pool, and what is left. Where that is less than
 * `wanted` because of what other processes have ready, they are asked for it first, and waited for
 * up to 200 ms. */
uint64_t host_pool_room_for(uint64_t wanted);

/* How many pieces of exactly `bytes` there are. */
unsigned host_pool_count(uint64_t bytes);

/* Gives all of it back to the driver. True if there was any. */
bool host_pool_empty(void);

/* Gives back what is more than that. */
void host_pool_shrink(uint64_t most);

/* To be called before `bytes` of host memory are made: gives back what the budget, the machine or
 * the memory cgroup would else have no room for, and asks others as host_pool_room_for does; this
 * process then has none made ahead for a while. `again`: there was room, and it was taken
 * meanwhile. True where there is room. */
bool host_pool_make_room(uint64_t bytes, bool again);

/* Gives back what is older than HOST_POOL_KEEP_NS, less VGPU_HOST_POOL_READY, and what the budget
 * no longer has room for; all of it where a process asked for that. */
void host_pool_trim(uint64_t now_ns);

/* The start of a process or of a forked child. */
void host_pool_reset(void);

#endif
