/* SPDX-License-Identifier: Apache-2.0 */
#include "hook/nvml_own.h"

#include <string.h>

nvmlReturn_t nvml_own_read(nvmlDevice_t handle, struct nvml_own *ret_own)
{
    int device;
    uint64_t total, used, free;
    nvmlReturn_t result = hook_identify_nvml(handle, &device);
    if (result != NVML_SUCCESS)
        return result;
    ret_own->limited = container_memory_view(device, UINT64_MAX, UINT64_MAX, &total, &used, &free);
    ret_own->count = ret_own->limited && device >= 0
                         ? account_processes((unsigned)device, ret_own->processes)
                         : 0;
    return NVML_SUCCESS;
}

bool nvml_own_has(const struct nvml_own *own, unsigned pid)
{
    for (unsigned i = 0; i < own->count; i++) {
        if ((unsigned)own->processes[i].pid == pid && !own->processes[i].is_foreign_pid)
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
