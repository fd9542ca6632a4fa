/* SPDX-License-Identifier: Apache-2.0 */
/* NVML's own functions, typed, as its library exports them. */
#ifndef VGPU_DRIVER_NVML_H
#define VGPU_DRIVER_NVML_H

#include "abi/nvml.h"

#include <stdbool.h>

struct nvml_functions {
#define CALL(name) __typeof__(name) *name;
#define HOOK(name) __typeof__(name) *name;
#include "driver/nvml.def"
#undef CALL
#undef HOOK
};

/* Never NULL: what the library lacks answers NVML_ERROR_FUNCTION_NOT_FOUND, and before nvml_load
 * every member answers NVML_ERROR_UNINITIALIZED. */
extern struct nvml_functions nvml;

/* As the library exports them: NULL members are absent there. Valid after nvml_load. */
extern struct nvml_functions nvml_exported;

/* Fills both tables from libnvidia-ml.so.1. `open` false: only from a copy that the program has
 * loaded. Any thread, any number of times; cheap when done. False where there is none. */
bool nvml_load(bool open);

/* A device's own UUID: "GPU-..." or, of a MIG compute instance, "MIG-...". Drivers before 470,
 * whose CUDA does not tell instances apart, name an instance "MIG-GPU-<the card's>/<GPU
 * instance>/<compute instance>" (MIG user guide): that counts as its card. NVML's code where it
 * does not tell. */
nvmlReturn_t nvml_device_uuid(nvmlDevice_t device, char ret_uuid[48])
    __attribute__((warn_unused_result));

/* The card's next compute instance from place *place on, which is moved behind it. False where
 * there is none: the card is not in MIG mode, the driver knows of none, or the handle is no card's.
 */
bool nvml_next_instance(nvmlDevice_t card, unsigned *place, nvmlDevice_t *ret_instance);

#endif
