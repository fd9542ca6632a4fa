/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulated NVML's files share. Each entry point begins with one of the enter functions.
 */
#ifndef VGPU_SIM_NVML_SIM_H
#define VGPU_SIM_NVML_SIM_H

#include "abi/nvml.h"
#include "sim/machine.h"

/*
 * Counts the call and says whether it may go on: NVML_SUCCESS, the code of a fail= rule, or
 * NVML_ERROR_UNINITIALIZED outside nvmlInit and nvmlShutdown.
 */
nvmlReturn_t nvml_enter(const char *function) SIM_WARN_UNUSED;

/* The same, for a device and an output: NVML_ERROR_INVALID_ARGUMENT for a stale handle or NULL. */
nvmlReturn_t nvml_enter_device(
    const char *function, nvmlDevice_t device, const void *output) SIM_WARN_UNUSED;

/* Of a handle that nvml_enter_device accepted. */
unsigned nvml_index(nvmlDevice_t device);
const struct sim_device *nvml_sim_device(nvmlDevice_t device);

nvmlDevice_t nvml_handle(unsigned index);

/* Into a caller's buffer, whole or not at all: NVML_ERROR_INSUFFICIENT_SIZE. */
nvmlReturn_t nvml_copy_text(const char *text, char *buffer, unsigned length) SIM_WARN_UNUSED;

#endif
