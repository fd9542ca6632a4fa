/* SPDX-License-Identifier: Apache-2.0 */
/* Making and ending contexts: what context_current.c and primary.c need of context.c. */
#ifndef VGPU_SIM_CUDA_CONTEXT_H
#define VGPU_SIM_CUDA_CONTEXT_H

#include "sim/cuda/cuda_sim.h"

/* On failure nothing is left behind. The caller makes it current if it wants. */
CUresult context_create(struct device *device, unsigned flags, bool primary, unsigned version,
    struct context **ret_context);
/* A primary context keeps its handle over stop and start. */
CUresult context_start(struct context *context);
/* After a checkpoint: makes the channels of all contexts anew. */
CUresult contexts_restore(void);
void context_stop(struct context *context);
/* A destroyed context's record stays: threads may have it on their stacks. */
void context_bury(struct context *context);
unsigned long long context_next_id(void);
/* The top of the calling thread's stack, green or not; NULL if there is none that lives. A
 * destroyed context stays on stacks; its record lives as long as the process. */
struct context *context_current_top(void);

#endif
