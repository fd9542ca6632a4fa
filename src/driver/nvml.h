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

#endif
