/* SPDX-License-Identifier: Apache-2.0 */
/* Green contexts: each retains its device's primary context and runs on a part of the device.
 * Memory, modules and events that are made while one is current are the primary context's; the
 * handle of a green context and that of the CUcontext that stands for it are the same (all seen on
 * an H200, driver 580.159.04). Any thread. */
#ifndef VGPU_HOOK_GREEN_H
#define VGPU_HOOK_GREEN_H

#include "abi/cuda.h"

#include <stdbool.h>

/* A green context, by the CUcontext that stands for it, is made on the device; or it is about to
 * go. _forget returns its device, PRIMARY_NONE (hook/primary.h) where it is not known. */
void green_note(CUcontext context, CUdevice dev);
CUdevice green_forget(CUcontext context);

/* The context that what is made in this one belongs to: of a green context the primary one, of any
 * other the same. One load while there are no green contexts. */
CUcontext green_home(CUcontext context);

/* Whether the device has a green context. */
bool green_is_on(CUdevice dev);

/* In a forked child. */
void green_reset(void);

#endif
