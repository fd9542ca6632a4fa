/* SPDX-License-Identifier: Apache-2.0 */
/* A few that were given back; one after the other makes room for others. */
#include "vmem/address.h"

#include "base/lock.h"
#include "driver/cuda.h"
#include "vmem/undo.h"

#include <stdbool.h>
#include <stddef.h>

/* A program that allocates and frees in turn uses a handful of sizes. Addresses cost nothing else.
 */
#define KEPT_MAX 16

struct kept {
    CUdeviceptr address;
    uint64_t bytes; /* 0: empty */
};

static struct lock kept_lock;
static struct {
    struct kept list[KEPT_MAX];
    unsigned next;
} kept GUARDED_BY(kept_lock);

void address_reset(void) NO_THREAD_SAFETY_ANALYSIS
{
    lock_reset(&kept_lock);
    for (unsigned i = 0; i < KEPT_MAX; i++)
        kept.list[i].bytes = 0;
}

static bool take_kept(uint64_t bytes, CUdeviceptr *ret_address)
{
    LOCKED_TO_END(kept_lock);
    for (unsigned i = 0; i < KEPT_MAX; i++) {
        if (kept.list[i].bytes == bytes) {
            kept.list[i].bytes = 0;
            *ret_address = kept.list[i].address;
            return true;
        }
    }
    return false;
}

CUresult address_take(uint64_t bytes, CUdeviceptr *ret_address)
{
    return take_kept(bytes, ret_address) ? CUDA_SUCCESS
                                         : cuda.cuMemAddressReserve(ret_address, bytes, 0, 0, 0);
}

/* Returns what had to make room; without bytes: nothing had. */
static struct kept keep(CUdeviceptr address, uint64_t bytes)
{
    LOCKED_TO_END(kept_lock);
    struct kept *place = NULL;
    for (unsigned i = 0; i < KEPT_MAX && !place; i++)
        place = kept.list[i].bytes ? NULL : &kept.list[i];
    if (!place)
        place = &kept.list[kept.next++ % KEPT_MAX];
    struct kept former = *place;
    *place = (struct kept){.address = address, .bytes = bytes};
    return former;
}

void address_give(CUdeviceptr address, uint64_t bytes)
{
    struct kept former = keep(address, bytes);
    if (former.bytes)
        undo_reserve(former.address, former.bytes);
}
