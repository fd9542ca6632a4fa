/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulated NVML's files share. Each entry point begins with one of the enter functions.
 */
#ifndef VGPU_SIM_NVML_NVML_SIM_H
#define VGPU_SIM_NVML_NVML_SIM_H

#include "abi/nvml.h"
#include "sim/machine/machine.h"

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

/* Whether the described driver is older than `driver`.`minor`. */
bool nvml_driver_is_before(unsigned driver, unsigned minor);

/* The driver that brought the list of processes in detail, and with it today's layout of the third
 * lists (abi/nvml_types.h). */
#define NVML_DETAIL_LIST_DRIVER 535
#define NVML_DETAIL_LIST_MINOR 98

/* A device's processes with a context, of whichever container. */
#define NVML_PROCESSES_MAX 1024
struct nvml_process_list {
    unsigned count;
    struct sim_process entries[NVML_PROCESSES_MAX];
};
/* NULL: no memory. The caller frees it. */
struct nvml_process_list *nvml_list_processes(nvmlDevice_t device) SIM_WARN_UNUSED;

/* What NVML gives for a pid (H200, 580.159.04: the pids of the caller's own namespace), and for the
 * memory that a process holds: the figure that equals the resource manager's ledger of it. */
unsigned nvml_shown_pid(pid_t pid);
unsigned long long nvml_used_bytes(const struct sim_process *process);

/* Into a caller's buffer, whole or not at all: NVML_ERROR_INSUFFICIENT_SIZE. */
nvmlReturn_t nvml_copy_text(const char *text, char *buffer, unsigned length) SIM_WARN_UNUSED;

#endif
