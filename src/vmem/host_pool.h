/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that is ready for device memory to move out to. The driver takes 60 to 400 ms to make
 * a GiB of it, and 35 ms to give it back; a copy takes 20 ms. So what came back to the card leaves
 * its host memory here for HOST_POOL_KEEP_NS, and VGPU_HOST_POOL_READY has some made ahead.
 *
 * It counts against the host's bounds like spilled memory, and goes first where those are short.
 * Any thread; the driver is called, with no lock held. */
#ifndef VGPU_VMEM_HOST_POOL_H
#define VGPU_VMEM_HOST_POOL_H

#include "abi/cuda.h"

#include <stdbool.h>
#include <stdint.h>

#define HOST_POOL_KEEP_NS 60000000000ull

/* A piece of exactly `bytes` on the NUMA node, mapped nowhere; the caller owns it from then on.
 * False: there is none. */
bool host_pool_take(int numa_node, uint64_t bytes, CUmemGenericAllocationHandle *ret_handle)
    __attribute__((warn_unused_result));

/* Takes memory that is mapped nowhere and no longer charged. False where the budget of host memory
 * (VGPU_HOST_POOL) or the pool has no room: it stays the caller's. */
bool host_pool_keep(int numa_node, uint64_t bytes, CUmemGenericAllocationHandle handle)
    __attribute__((warn_unused_result));

/* Of this process. */
uint64_t host_pool_bytes(void);

/* How much may move out to the host now, without the budget: the pool, and what the machine and the
 * memory cgroup have left. */
uint64_t host_pool_room(void);

/* How many pieces of exactly `bytes` there are. */
unsigned host_pool_count(uint64_t bytes);

/* Gives all of it back to the driver. True if there was any. */
bool host_pool_empty(void);

/* To be called before `bytes` of host memory are made: gives back what the budget, or what the
 * machine and the memory cgroup have left, would else have no room for. */
void host_pool_make_room(uint64_t bytes);

/* Gives back what is older than HOST_POOL_KEEP_NS, less VGPU_HOST_POOL_READY, and what the budget
 * no longer has room for. */
void host_pool_trim(uint64_t now_ns);

/* The start of a process or of a forked child. */
void host_pool_reset(void);

#endif
