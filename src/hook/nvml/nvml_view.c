/* SPDX-License-Identifier: Apache-2.0 */
/* What NVML's users, nvidia-smi among them, are told of a device's memory: the slice. */
#include "hook/hook.h"

/* The slice's share of the card's figures, which NVML has just told; ret_is_slice false: they hold.
 */
static nvmlReturn_t view(nvmlDevice_t handle, nvmlMemory_t *card, bool *ret_is_slice)
{
    int device;
    uint64_t total, used, free;
    nvmlReturn_t result = device_identify_nvml(handle, &device);
    if (result != NVML_SUCCESS)
        return result;
    *ret_is_slice = container_memory_view(device, card->total, card->free, &total, &used, &free);
    if (*ret_is_slice)
        *card = (nvmlMemory_t){.total = total, .used = used, .free = free};
    return NVML_SUCCESS;
}

nvmlReturn_t hook_nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    hook_nvml_enter();
    bool is_slice;
    nvmlReturn_t result = nvml.nvmlDeviceGetMemoryInfo(device, memory);
    return result == NVML_SUCCESS ? view(device, memory, &is_slice) : result;
}

nvmlReturn_t hook_nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    hook_nvml_enter();
    bool is_slice;
    nvmlReturn_t result = nvml.nvmlDeviceGetMemoryInfo_v2(device, memory);
    if (result != NVML_SUCCESS)
        return result;
    nvmlMemory_t shown = {.total = memory->total, .free = memory->free, .used = memory->used};
    result = view(device, &shown, &is_slice);
    if (result == NVML_SUCCESS && is_slice) {
        memory->total = shown.total;
        memory->reserved = 0;
        memory->used = shown.used;
        memory->free = shown.free;
    }
    return result;
}

static uint64_t least(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

/* The parts of a card's memory that confidential computing protects and does not: of a slice, the
 * protected part first. */
nvmlReturn_t hook_nvmlDeviceGetConfComputeMemSizeInfo(
    nvmlDevice_t device, nvmlConfComputeMemSizeInfo_t *memInfo)
{
    hook_nvml_enter();
    bool is_slice;
    nvmlReturn_t result = nvml.nvmlDeviceGetConfComputeMemSizeInfo(device, memInfo);
    if (result != NVML_SUCCESS)
        return result;
    uint64_t bytes = (memInfo->protectedMemSizeKib + memInfo->unprotectedMemSizeKib) << 10;
    nvmlMemory_t shown = {.total = bytes, .free = bytes};
    result = view(device, &shown, &is_slice);
    if (result == NVML_SUCCESS && is_slice) {
        uint64_t kib = shown.total >> 10;
        memInfo->protectedMemSizeKib = least(memInfo->protectedMemSizeKib, kib);
        memInfo->unprotectedMemSizeKib =
            least(memInfo->unprotectedMemSizeKib, kib - memInfo->protectedMemSizeKib);
    }
    return result;
}

/* Where the card protects none of its memory, its figures hold: they are 0. */
nvmlReturn_t hook_nvmlDeviceGetConfComputeProtectedMemoryUsage(
    nvmlDevice_t device, nvmlMemory_t *memory)
{
    hook_nvml_enter();
    bool is_slice;
    nvmlReturn_t result = nvml.nvmlDeviceGetConfComputeProtectedMemoryUsage(device, memory);
    return result == NVML_SUCCESS && memory->total ? view(device, memory, &is_slice) : result;
}
