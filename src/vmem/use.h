/* SPDX-License-Identifier: Apache-2.0 */
/* Which memory the program's work uses, as far as its calls show: pointers among a kernel's
 * arguments, and addresses of copies and fills. Asked for from time to time, while something is
 * spilled and there is no room for it; else a call that entered the world (vmem/world.h) pays one
 * load. Any thread. */
#ifndef VGPU_VMEM_USE_H
#define VGPU_VMEM_USE_H

#include "abi/cuda.h"
#include "base/atomic.h"
#include "residency/residency.h"

#include <stdbool.h>
#include <stdint.h>

extern bool use_is_asked_for; /* written by this module alone */

void use_ask_for(bool asked);

/* Whether all work of the last while was of a kind that shows what it uses. A graph's does not, nor
 * a kernel's whose parameters the driver does not tell of (cuFuncGetParamInfo, CUDA 12.4). */
bool use_is_seen(uint64_t now_ns);

void use_note_kernel_slow(CUfunction function, void **params, void **extra);

static inline void use_note_kernel(bool entered, CUfunction function, void **params, void **extra)
{
    if (entered && load_relaxed(&use_is_asked_for))
        use_note_kernel_slow(function, params, extra);
}

void use_note_addresses_slow(CUdeviceptr one, CUdeviceptr other);

/* 0: none. */
static inline void use_note_addresses(bool entered, CUdeviceptr one, CUdeviceptr other)
{
    if (entered && load_relaxed(&use_is_asked_for))
        use_note_addresses_slow(one, other);
}

/* Work that does not show what it uses. */
void use_note_unseen_slow(void);

static inline void use_note_unseen(bool entered)
{
    if (entered && load_relaxed(&use_is_asked_for))
        use_note_unseen_slow();
}

/* The program asked for the memory at the address to be on the host, or on a card, or takes that
 * back (a prefetch or cuMemAdvise, which the driver refuses of cuMemAlloc's memory). It is heeded
 * like use, and goes before it. */
void use_note_advice_slow(CUdeviceptr address, enum residency_advice advice);

static inline void use_note_advice(bool entered, CUdeviceptr address, bool to_host)
{
    if (entered)
        use_note_advice_slow(address, to_host ? RESIDENCY_HOST : RESIDENCY_CARD);
}

/* The start of a process or of a forked child. */
void use_reset(void);

#endif
