/* SPDX-License-Identifier: Apache-2.0 */
/* What NVML's users, nvidia-smi among them, are told of a device's memory: the slice. */
#include "hook/hook.h"

nvmlReturn_t hook_nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    hook_nvml_enter();
    nvmlReturn_t result = nvml.nvmlDeviceGetMemoryInfo(device, memory);
    uint64_t total, used, free;
    if (result == NVML_SUCCESS && container_memory_view(hook_nvml_device(device), memory->total,
                                      memory->free, &total, &used, &free)) {
        memory->total = total;
        memory->used = used;
        memory->free = free;
    }
    return result;
}

nvmlReturn_t hook_nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    hook_nvml_enter();
    nvmlReturn_t result = nvml.nvmlDeviceGetMemoryInfo_v2(device, memory);
    uint64_t total, used, free;
    if (result == NVML_SUCCESS && container_memory_view(hook_nvml_device(device), memory->total,
                                      memory->free, &total, &used, &free)) {
        memory->total = total;
        memory->reserved = 0;
        memory->used = used;
        memory->free = free;
    }
    return result;
}
