/* SPDX-License-Identifier: Apache-2.0 */
/* API ledger: local memory, which the driver takes silently for as many threads as the device can
 * hold at the first launch of a kernel that needs more than before. */
#ifndef VGPU_HOOK_LOCAL_MEMORY_H
#define VGPU_HOOK_LOCAL_MEMORY_H

#include "abi/cuda.h"

#include <stdbool.h>
#include <stddef.h>

/* Charges the growth that `bytes_per_thread` means for the current device. True where it fits, or
 * the API ledger is not the one that counts. */
bool local_memory_fits(size_t bytes_per_thread);

/* As local_memory_fits, for the kernel about to be launched. */
bool local_memory_fits_function(CUfunction function);

/* The device's primary context is gone, and its local memory with it. */
void local_memory_forget(CUdevice ordinal);

#endif
