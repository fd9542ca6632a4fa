/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemAlloc's memory as mappings, where oversubscription is asked for (CUDA_MEMORY_OVERSUBSCRIBE
 * and its kin) and the device has a limit: what does not fit on the card, or into the container's
 * share of it, is backed by host memory at once. To the program it is cuMemAlloc's memory: it goes
 * with its context, a free waits for the context's work, small allocations share blocks, peers
 * reach it. It cannot be exported by a legacy handle. Any thread; no lock over driver calls. */
#ifndef VGPU_VMEM_VMEM_H
#define VGPU_VMEM_VMEM_H

#include "abi/cuda.h"
#include "base/atomic.h"
#include "pace/capture.h"
#include "rm/rm_export.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Written by this module alone. */
extern bool vmem_is_asked_for;  /* by the environment, of any device */
extern size_t vmem_range_count; /* and those whose free is put off */
extern bool vmem_is_placed;     /* something was spilled, or has a share of the card */

/* Serves an allocation on the current context's device. False where the driver is to serve it:
 * oversubscription is off there, or the arguments are the driver's to refuse. */
bool vmem_allocate_slow(CUdeviceptr *dptr, size_t bytes, CUresult *ret_result);

static inline bool vmem_allocate(CUdeviceptr *dptr, size_t bytes, CUresult *ret_result)
{
    return __builtin_expect(load_relaxed(&vmem_is_asked_for), false) &&
           vmem_allocate_slow(dptr, bytes, ret_result);
}

/* Frees what vmem_allocate gave, when the work of its context is done; while that captures, at a
 * later call. False where the pointer is not one of ours. */
bool vmem_free_slow(CUdeviceptr dptr, CUresult *ret_result);

static inline bool vmem_free(CUdeviceptr dptr, CUresult *ret_result)
{
    return __builtin_expect(load_relaxed(&vmem_range_count) != 0, false) &&
           vmem_free_slow(dptr, ret_result);
}

/* Frees it when the stream, of the context, has come here. Outside of captures. */
bool vmem_free_in_order_slow(
    CUdeviceptr dptr, CUstream stream, CUcontext context, CUresult *ret_result);

/* The program has waited for something: gives back what was freed in stream order. */
void vmem_look_slow(void);

static inline void vmem_look(void)
{
    if (__builtin_expect(load_relaxed(&vmem_range_count) != 0, false))
        vmem_look_slow();
}

struct vmem_allocation {
    CUdeviceptr address;
    uint64_t bytes; /* as it was asked for */
    uint64_t context;
    CUdevice ordinal;
    unsigned long long id; /* no other memory of the process ever had it, the driver's neither */
};

/* The allocation that an address lies in; false where it is not one of ours. */
bool vmem_find_slow(CUdeviceptr address, struct vmem_allocation *ret_allocation);

static inline bool vmem_find(CUdeviceptr address, struct vmem_allocation *ret_allocation)
{
    return __builtin_expect(load_relaxed(&vmem_range_count) != 0, false) &&
           vmem_find_slow(address, ret_allocation);
}

/* Around a call by which a context may go, and its memory with it. Another context may have its
 * handle as soon as the driver has ended it: what goes is settled before. _ends: waits for moves of
 * its memory, 10 s at most; none begins until _ended. */
struct vmem_end {
    uint64_t context;  /* 0: there is nothing to be done */
    uint64_t born;     /* what came later is not its own */
    uint64_t recorded; /* memory_context_ends */
    struct vmem_end *next;
};
void vmem_context_ends(struct vmem_end *end, uint64_t context);
void vmem_context_ended(struct vmem_end *end, bool gone);

/* The accessor, a context on the ordinal, has access to the context's memory, also to what comes,
 * or no longer. */
CUresult vmem_set_peer(uint64_t context, uint64_t accessor, CUdevice ordinal, bool access)
    __attribute__((warn_unused_result));

/* The address lies in memory of ours that no allocation has: behind the last byte of one, or freed.
 * To the driver it is a mapping's. After vmem_find. */
bool vmem_has_slow(CUdeviceptr address);

static inline bool vmem_has(CUdeviceptr address)
{
    return __builtin_expect(load_relaxed(&vmem_range_count) != 0, false) && vmem_has_slow(address);
}

/* A stream is to capture: before the driver is asked. _ended: it does no longer. _settle: perhaps;
 * the driver is asked. */
void vmem_capture_begins_slow(CUstream stream, enum stream_zero zero);
void vmem_capture_ended_slow(CUstream stream, enum stream_zero zero);
void vmem_capture_settle_slow(CUstream stream, enum stream_zero zero);

/* API ledger: the memory at the address was exported; false where it is not one of ours. */
bool vmem_mark_exported(CUdeviceptr address, struct rm_export_fd to);

/* The memory at the address, if it is one of ours, is not moved from now on: others may hold it. */
void vmem_keep_in_place(CUdeviceptr address);

/* What could be allocated on the current device, where the card has `card_free`: *ret_free, of at
 * most `left` below the limit. Makes sure that the driver can back memory by the host's; where it
 * cannot, the device is not oversubscribed from then on, and the answer false. */
bool vmem_room_slow(uint64_t card_free, uint64_t left, uint64_t *ret_free);

/* One line a process: what cannot be had together with oversubscription. */
void vmem_say_not_shared(const char *function);

/* The start of a process or of a forked child. */
void vmem_reset(void);

#endif
