/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes on a device are the container's, for the answers of NVML that name processes.
 * Any thread. */
#ifndef VGPU_HOOK_NVML_NVML_OWN_H
#define VGPU_HOOK_NVML_NVML_OWN_H

#include "hook/hook.h"
#include "account/account.h"

struct nvml_own {
    bool limited; /* false: the device is not sliced, and the driver's answer holds */
    unsigned count;
    struct account_process processes[ACCOUNT_PROCESSES_MAX];
};

/* Reads them. One of a PID namespace below the caller's gets the number that the caller knows,
 * where the driver lists it and /proc shows it; else `foreign_namespace` says that its number is
 * not the caller's. A device whose limit cannot be kept (CONTAINER_DEVICE_CLOSED) is limited and
 * has none. Returns the driver's code where it does not tell which device the handle is. */
nvmlReturn_t nvml_own_read(nvmlDevice_t handle, struct nvml_own *ret_own)
    __attribute__((warn_unused_result));

/* Whether the driver's `pid` is one of them. The driver names a process of the caller's PID
 * namespace by its number there. In the samples of utilisation it names others by their number in
 * the initial namespace (open kernel modules 580.95.05, kern_perf_ctrl.c; os_find_ns_pid), which
 * may be equal to one of ours: that cannot be told apart. */
bool nvml_own_has(const struct nvml_own *own, unsigned pid);

/* Moves those of `count` elements that are of the container's processes to the front; returns how
 * many there are. An element is `stride` bytes long and has an unsigned pid at `pid_offset`. */
unsigned nvml_own_keep(const struct nvml_own *own, void *elements, size_t stride, size_t pid_offset,
    unsigned count) __attribute__((warn_unused_result));

#endif
