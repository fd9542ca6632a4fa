/* SPDX-License-Identifier: Apache-2.0 */
/* How often each context was attached to (cuCtxAttach) and not detached from: it goes with the
 * detach that finds none left. Any thread. */
#ifndef VGPU_MEMORY_CONTEXT_ATTACH_H
#define VGPU_MEMORY_CONTEXT_ATTACH_H

#include "abi/cuda.h"

#include <stdbool.h>

void context_attach_add(CUcontext context);

/* One less. False where none was left. */
bool context_attach_take(CUcontext context);

/* The context is gone. */
void context_attach_forget(CUcontext context);

/* In a forked child. */
void context_attach_reset(void);

#endif
