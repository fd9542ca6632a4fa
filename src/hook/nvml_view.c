/* SPDX-License-Identifier: Apache-2.0 */
/* What NVML's users, nvidia-smi among them, are told: the slice's memory, and of the processes on
 * the card only the container's own, by the pids that the container knows. */
#include "hook/hook.h"

#include "region/account.h"

#include <stddef.h>

static void enter(void)
{
    container_enter();
    (void)nvml_load(true);
    container_prepare_devices();
}

nvmlReturn_t hook_nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    enter();
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
    enter();
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

/* NVML's value where MIG is off. */
#define NO_INSTANCE 0xFFFFFFFFu

/* The structures of all versions begin with these members. */
static void fill(
    void *infos, size_t stride, unsigned count, const struct account_process *processes)
{
    for (unsigned i = 0; i < count; i++) {
        nvmlProcessInfo_v1_t *info = (void *)((char *)infos + i * stride);
        info->pid = (unsigned)processes[i].pid;
        info->usedGpuMemory = processes[i].device_bytes;
        if (stride == sizeof(nvmlProcessInfo_v2_t)) {
            nvmlProcessInfo_v2_t *wide = (void *)info;
            wide->gpuInstanceId = NO_INSTANCE;
            wide->computeInstanceId = NO_INSTANCE;
        }
    }
}

static nvmlReturn_t list_own(int device, unsigned *info_count, void *infos, size_t stride)
{
    struct account_process processes[ACCOUNT_PROCESSES_MAX];
    unsigned count = account_processes((unsigned)device, processes);
    unsigned room = *info_count;
    *info_count = count;
    if (count > room || (count && !infos))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    fill(infos, stride, count, processes);
    return NVML_SUCCESS;
}

typedef nvmlReturn_t list_function(nvmlDevice_t device, unsigned *info_count, void *infos);

/* The driver judges the arguments first, and answers for a device that is not limited. The
 * container's programs compute: they are in the compute list alone. */
static nvmlReturn_t list(
    nvmlDevice_t device, unsigned *info_count, void *infos, size_t stride, void *real, bool compute)
{
    list_function *ask = (list_function *)real;
    uint64_t total, used, free;
    unsigned none = 0;
    if (!info_count)
        return ask(device, NULL, infos);
    nvmlReturn_t result = ask(device, &none, NULL);
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
        return result;
    int own = hook_nvml_device(device);
    if (!container_memory_view(own, UINT64_MAX, UINT64_MAX, &total, &used, &free))
        return ask(device, info_count, infos);
    if (compute && own >= 0)
        return list_own(own, info_count, infos, stride);
    *info_count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t hook_nvmlDeviceGetComputeRunningProcesses(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
    enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetComputeRunningProcesses, true);
}

nvmlReturn_t hook_nvmlDeviceGetComputeRunningProcesses_v2(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
    enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetComputeRunningProcesses_v2, true);
}

nvmlReturn_t hook_nvmlDeviceGetComputeRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
    enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetComputeRunningProcesses_v3, true);
}

nvmlReturn_t hook_nvmlDeviceGetGraphicsRunningProcesses(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
    enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetGraphicsRunningProcesses, false);
}

nvmlReturn_t hook_nvmlDeviceGetGraphicsRunningProcesses_v2(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
    enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetGraphicsRunningProcesses_v2, false);
}

nvmlReturn_t hook_nvmlDeviceGetGraphicsRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
    enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetGraphicsRunningProcesses_v3, false);
}

nvmlReturn_t hook_nvmlDeviceGetMPSComputeRunningProcesses(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
    enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetMPSComputeRunningProcesses, false);
}

nvmlReturn_t hook_nvmlDeviceGetMPSComputeRunningProcesses_v2(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
    enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetMPSComputeRunningProcesses_v2, false);
}

nvmlReturn_t hook_nvmlDeviceGetMPSComputeRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
    enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, false);
}
