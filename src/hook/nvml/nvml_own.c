/* SPDX-License-Identifier: Apache-2.0 */
#include "hook/nvml/nvml_own.h"

#include "base/process.h"

#include <string.h>

#define LISTED_MAX 256 /* 4 KiB of stack */

static void rename_foreign(struct nvml_own *own, unsigned listed)
{
    int number;
    uint64_t inode;
    if (process_own_number((int)listed, &number, &inode) != 0)
        return;
    for (unsigned i = 0; i < own->count; i++) {
        struct account_process *process = &own->processes[i];
        if (process->foreign_namespace == (uint32_t)inode && process->pid == number) {
            process->pid = (int)listed;
            process->foreign_namespace = 0;
        }
    }
}

static bool has_foreign(const struct nvml_own *own)
{
    for (unsigned i = 0; i < own->count; i++) {
        if (own->processes[i].foreign_namespace)
            return true;
    }
    return false;
}

/* The driver's list is in the caller's numbers. */
static void rename_all_foreign(nvmlDevice_t handle, struct nvml_own *own)
{
    nvmlProcessInfo_v1_t listed[LISTED_MAX];
    unsigned count = LISTED_MAX;
    if (nvml.nvmlDeviceGetComputeRunningProcesses(handle, &count, listed) != NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < count; i++)
        rename_foreign(own, listed[i].pid);
}

nvmlReturn_t nvml_own_read(nvmlDevice_t handle, struct nvml_own *ret_own)
{
    int device;
    uint64_t total, used, free;
    nvmlReturn_t result = device_identify_nvml(handle, &device);
    if (result != NVML_SUCCESS)
        return result;
    ret_own->limited = container_memory_view(device, UINT64_MAX, UINT64_MAX, &total, &used, &free);
    ret_own->count = ret_own->limited && device >= 0
                         ? account_processes((unsigned)device, ret_own->processes)
                         : 0;
    if (has_foreign(ret_own))
        rename_all_foreign(handle, ret_own);
    return NVML_SUCCESS;
}

bool nvml_own_has(const struct nvml_own *own, unsigned pid)
{
    for (unsigned i = 0; i < own->count; i++) {
        if ((unsigned)own->processes[i].pid == pid && !own->processes[i].foreign_namespace)
            return true;
    }
    return false;
}

unsigned nvml_own_keep(
    const struct nvml_own *own, void *elements, size_t stride, size_t pid_offset, unsigned count)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < count; i++) {
        const char *element = (const char *)elements + i * stride;
        unsigned pid;
        memcpy(&pid, element + pid_offset, sizeof(pid));
        if (nvml_own_has(own, pid))
            memmove((char *)elements + kept++ * stride, element, stride);
    }
    return kept;
}
