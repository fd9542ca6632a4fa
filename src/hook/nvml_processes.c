/* SPDX-License-Identifier: Apache-2.0 */
/* What NVML's users, nvidia-smi among them, are told of the processes on a limited device: only the
 * container's own, by the pids that the container knows. */
#include "hook/hook.h"

#include "region/account.h"

#include <stddef.h>
#include <string.h>

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

/* The one question of all lists: whether the device is limited, so that its processes are the
 * container's. A closed device (CONTAINER_DEVICE_CLOSED) is, and has none. */
static nvmlReturn_t identify_limited(nvmlDevice_t handle, int *ret_device, bool *ret_limited)
{
    uint64_t total, used, free;
    nvmlReturn_t result = hook_identify_nvml(handle, ret_device);
    if (result == NVML_SUCCESS)
        *ret_limited =
            container_memory_view(*ret_device, UINT64_MAX, UINT64_MAX, &total, &used, &free);
    return result;
}

static unsigned own_processes(
    int device, struct account_process ret_processes[ACCOUNT_PROCESSES_MAX])
{
    return device >= 0 ? account_processes((unsigned)device, ret_processes) : 0;
}

/* The container's programs compute: they are in the compute lists alone. *count: the room in
 * `infos`, then how many there are. */
static nvmlReturn_t list_own(int device, bool compute, unsigned *count, const void *infos,
    struct account_process ret_processes[ACCOUNT_PROCESSES_MAX])
{
    unsigned room = *count;
    *count = own_processes(compute ? device : CONTAINER_DEVICE_CLOSED, ret_processes);
    return *count > room || (*count && !infos) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

typedef nvmlReturn_t list_function(nvmlDevice_t device, unsigned *info_count, void *infos);

/* The driver judges the arguments first, and answers for a device that is not limited. */
static nvmlReturn_t list(
    nvmlDevice_t device, unsigned *info_count, void *infos, size_t stride, void *real, bool compute)
{
    list_function *ask = (list_function *)real;
    unsigned none = 0;
    if (!info_count)
        return ask(device, NULL, infos);
    nvmlReturn_t result = ask(device, &none, NULL);
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
        return result;
    int own;
    bool limited;
    result = identify_limited(device, &own, &limited);
    if (result != NVML_SUCCESS)
        return result;
    if (!limited)
        return ask(device, info_count, infos);
    struct account_process processes[ACCOUNT_PROCESSES_MAX];
    result = list_own(own, compute, info_count, infos, processes);
    if (result == NVML_SUCCESS)
        fill(infos, stride, *info_count, processes);
    return result;
}

/* What all the lists do, with the parameters of their hooks. */
#define LIST(name, compute)                                                                        \
    (hook_nvml_enter(), list(device, infoCount, infos, sizeof(*infos), (void *)nvml.name, compute))

nvmlReturn_t hook_nvmlDeviceGetComputeRunningProcesses(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
    return LIST(nvmlDeviceGetComputeRunningProcesses, true);
}

nvmlReturn_t hook_nvmlDeviceGetComputeRunningProcesses_v2(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
    return LIST(nvmlDeviceGetComputeRunningProcesses_v2, true);
}

nvmlReturn_t hook_nvmlDeviceGetComputeRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
    return LIST(nvmlDeviceGetComputeRunningProcesses_v3, true);
}

nvmlReturn_t hook_nvmlDeviceGetGraphicsRunningProcesses(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
    return LIST(nvmlDeviceGetGraphicsRunningProcesses, false);
}

nvmlReturn_t hook_nvmlDeviceGetGraphicsRunningProcesses_v2(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
    return LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, false);
}

nvmlReturn_t hook_nvmlDeviceGetGraphicsRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
    return LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, false);
}

nvmlReturn_t hook_nvmlDeviceGetMPSComputeRunningProcesses(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
    return LIST(nvmlDeviceGetMPSComputeRunningProcesses, false);
}

nvmlReturn_t hook_nvmlDeviceGetMPSComputeRunningProcesses_v2(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
    return LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, false);
}

nvmlReturn_t hook_nvmlDeviceGetMPSComputeRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
    return LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, false);
}

nvmlReturn_t hook_nvmlDeviceGetRunningProcessDetailList(
    nvmlDevice_t device, nvmlProcessDetailList_t *plist)
{
    hook_nvml_enter();
    if (!plist)
        return nvml.nvmlDeviceGetRunningProcessDetailList(device, plist);
    nvmlProcessDetailList_t question = {.version = plist->version, .mode = plist->mode};
    nvmlReturn_t result = nvml.nvmlDeviceGetRunningProcessDetailList(device, &question);
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
        return result;
    int own;
    bool limited;
    result = identify_limited(device, &own, &limited);
    if (result != NVML_SUCCESS)
        return result;
    if (!limited)
        return nvml.nvmlDeviceGetRunningProcessDetailList(device, plist);
    struct account_process processes[ACCOUNT_PROCESSES_MAX];
    unsigned *count = &plist->numProcArrayEntries;
    result = list_own(own, plist->mode == 0, count, plist->procArray, processes);
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned i = 0; i < *count; i++)
        plist->procArray[i] = (nvmlProcessDetail_v1_t){.pid = (unsigned)processes[i].pid,
            .usedGpuMemory = processes[i].device_bytes,
            .gpuInstanceId = NO_INSTANCE,
            .computeInstanceId = NO_INSTANCE};
    return NVML_SUCCESS;
}

static bool is_listed(
    const struct account_process *processes, unsigned count, const void *sample, size_t pid_offset)
{
    unsigned pid;
    memcpy(&pid, (const char *)sample + pid_offset, sizeof(pid));
    for (unsigned i = 0; i < count; i++) {
        if ((unsigned)processes[i].pid == pid)
            return true;
    }
    return false;
}

/* Leaves those of the `*count` samples that are of the container's processes, where the device is
 * limited. As the driver does where nothing ran, an empty list is an error. */
static nvmlReturn_t keep_own(
    nvmlDevice_t handle, void *samples, size_t stride, size_t pid_offset, unsigned *count)
{
    int device;
    bool limited;
    nvmlReturn_t result = identify_limited(handle, &device, &limited);
    if (result != NVML_SUCCESS || !limited)
        return result;
    struct account_process processes[ACCOUNT_PROCESSES_MAX];
    unsigned own = own_processes(device, processes), kept = 0;
    for (unsigned i = 0; i < *count; i++) {
        const char *sample = (const char *)samples + i * stride;
        if (is_listed(processes, own, sample, pid_offset))
            memmove((char *)samples + kept++ * stride, sample, stride);
    }
    *count = kept;
    return kept ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t hook_nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
    nvmlProcessUtilizationSample_t *utilization, unsigned int *processSamplesCount,
    unsigned long long lastSeenTimeStamp)
{
    hook_nvml_enter();
    nvmlReturn_t result = nvml.nvmlDeviceGetProcessUtilization(
        device, utilization, processSamplesCount, lastSeenTimeStamp);
    if (result != NVML_SUCCESS || !utilization)
        return result;
    return keep_own(device, utilization, sizeof(*utilization),
        offsetof(nvmlProcessUtilizationSample_t, pid), processSamplesCount);
}

nvmlReturn_t hook_nvmlDeviceGetProcessesUtilizationInfo(
    nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *procesesUtilInfo)
{
    hook_nvml_enter();
    nvmlReturn_t result = nvml.nvmlDeviceGetProcessesUtilizationInfo(device, procesesUtilInfo);
    if (result != NVML_SUCCESS || !procesesUtilInfo->procUtilArray)
        return result;
    return keep_own(device, procesesUtilInfo->procUtilArray,
        sizeof(*procesesUtilInfo->procUtilArray), offsetof(nvmlProcessUtilizationInfo_v1_t, pid),
        &procesesUtilInfo->processSamplesCount);
}
