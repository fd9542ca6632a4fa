/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver's own functions, typed, as its library exports them. */
#ifndef VGPU_DRIVER_CUDA_H
#define VGPU_DRIVER_CUDA_H

#include "abi/cuda.h"
#include "base/atomic.h"

#include <stdbool.h>

struct cuda_functions {
#define CALL(name) __typeof__(name) *name;
#define HOOK(name) __typeof__(name) *name;
#include "driver/cuda.def"
#undef CALL
#undef HOOK
};

/* Never NULL: what the driver lacks answers CUDA_ERROR_NOT_SUPPORTED, and before cuda_load every
 * member answers CUDA_ERROR_NOT_INITIALIZED. */
extern struct cuda_functions cuda;

/* As the driver exports them: NULL members are absent there. Valid after cuda_load. */
extern struct cuda_functions cuda_exported;

/* Fills both tables from libcuda.so.1. `open` false: only from a copy that the program has loaded.
 * Any thread, any number of times; cheap when done. False where there is none. */
bool cuda_load_slow(bool open);

extern bool cuda_loaded;

static inline bool cuda_load(bool open)
{
    return __builtin_expect(load_acquire(&cuda_loaded), true) || cuda_load_slow(open);
}

/* The UUIDs of a device by its ordinal, as NVML writes them: its own, "GPU-..." or, of a MIG
 * compute instance, "MIG-...", and its card's. The driver's own code where it does not tell. The
 * first version of cuDeviceGetUuid gives the card's, the second (CUDA 11.4) the instance's (CUDA
 * driver API reference); where there is no second, an instance counts as its card. */
CUresult cuda_device_uuid(CUdevice device, char ret_uuid[48], char ret_card[48])
    __attribute__((warn_unused_result));

#endif
