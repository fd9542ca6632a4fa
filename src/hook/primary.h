/* SPDX-License-Identifier: Apache-2.0 */
/* Primary contexts and their holders: the program, and its green contexts. Any thread. With a
 * device that is none, PRIMARY_NONE among them, a call does nothing. */
#ifndef VGPU_HOOK_PRIMARY_H
#define VGPU_HOOK_PRIMARY_H

#include "abi/cuda.h"
#include "vmem/vmem.h"

#include <stdbool.h>

#define PRIMARY_NONE ((CUdevice)-1)

/* As cuDevicePrimaryCtxRetain, for us; to be given back by primary_drop. */
CUresult primary_retain(CUcontext *ret_context, CUdevice dev) __attribute__((warn_unused_result));
void primary_drop(CUdevice dev);

/* What cuDevicePrimaryCtxRelease and cuDevicePrimaryCtxReset do, and their second versions.
 * `has_green`: the device has a green context. */
CUresult primary_release(CUdevice dev, CUresult (*driver)(CUdevice dev));
CUresult primary_reset(CUdevice dev, bool has_green, CUresult (*driver)(CUdevice dev));

/* A call of the driver's has succeeded that adds a holder. */
void primary_held(CUdevice dev);

/* Before a call by which a holder goes: with the last one our events on its streams die. */
void primary_let_go(CUdevice dev);

/* Around a call by which the context may go: where it does, all that it held is given back.
 * `reset`: the driver ended it, whoever has made it anew since. */
void primary_may_end(struct vmem_end *end, CUdevice dev);
void primary_settle(struct vmem_end *end, CUdevice dev, bool reset);

/* Whose primary context it is, as far as the program retained it; else PRIMARY_NONE. */
CUdevice primary_device(CUcontext context);

/* The last handle of it; NULL where it was never retained. */
CUcontext primary_handle(CUdevice dev);

#endif
