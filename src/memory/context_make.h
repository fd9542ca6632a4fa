/* SPDX-License-Identifier: Apache-2.0 */
/* Making a context: with the API ledger it is counted for what it takes by itself, with any a
 * failure for want of memory is told as such, and pools give way to it. */
#ifndef VGPU_MEMORY_CONTEXT_MAKE_H
#define VGPU_MEMORY_CONTEXT_MAKE_H

#include "driver/cuda.h"
#include "memory/memory.h"
#include "memory/pools.h"

/* 518 to 522 MiB were seen on an H200 (driver 580.159.04); smaller GPUs take less. */
#define CONTEXT_BYTES (520ull << 20)

struct context_request {
    struct memory_request memory;
    uint64_t bytes;
    bool counted; /* by the API ledger, from the start */
    unsigned refusals;
};

/* Before the driver is asked; not CUDA_SUCCESS: the program's answer, without asking. */
CUresult context_begin(struct context_request *request, CUdevice dev, uint64_t bytes);

/* The driver answered `result`; `handle` stands for what was made. Returns what the program is
 * told. The first context shows which ledger counts: one that turns out not to fit is gone again.
 */
CUresult context_end(
    struct context_request *request, CUresult result, enum memory_handle type, uint64_t handle);

/* Pools of the device give way to a context that needs the room. */
static inline bool context_again(CUresult result, CUdevice dev, unsigned *attempts)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY && (*attempts)++ == 0 && pools_make_room(dev);
}

/* In a forked child: how often contexts were attached to. */
void contexts_reset(void);

/* `call` makes the context of so many bytes, for which `handle` stands then. */
#define MAKE_CONTEXT(dev, bytes, type, handle, call)                                               \
    ({                                                                                             \
        unsigned attempts = 0;                                                                     \
        CUresult answer;                                                                           \
        do {                                                                                       \
            struct context_request request;                                                        \
            answer = context_begin(&request, dev, bytes);                                          \
            if (answer == CUDA_SUCCESS) {                                                          \
                answer = call;                                                                     \
                answer = context_end(&request, answer, type, handle);                              \
            }                                                                                      \
        } while (context_again(answer, dev, &attempts));                                           \
        answer;                                                                                    \
    })

#endif
