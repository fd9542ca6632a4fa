/* SPDX-License-Identifier: Apache-2.0 */
/* What NVML's users, nvidia-smi among them, are told of the processes on a limited device: only the
 * container's own, by the pids that the container knows. */
#include "hook/hook.h"

#include "region/account.h"

#include <stddef.h>

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

static nvmlReturn_t list_own(int device, unsigned *info_count, void *infos, size_t stride)
{
    struct account_process processes[ACCOUNT_PROCESSES_MAX];
    unsigned count = own_processes(device, processes);
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
    return list_own(compute ? own : CONTAINER_DEVICE_CLOSED, info_count, infos, stride);
}

nvmlReturn_t hook_nvmlDeviceGetComputeRunningProcesses(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
    hook_nvml_enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetComputeRunningProcesses, true);
}

nvmlReturn_t hook_nvmlDeviceGetComputeRunningProcesses_v2(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
    hook_nvml_enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetComputeRunningProcesses_v2, true);
}

nvmlReturn_t hook_nvmlDeviceGetComputeRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
    hook_nvml_enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetComputeRunningProcesses_v3, true);
}

nvmlReturn_t hook_nvmlDeviceGetGraphicsRunningProcesses(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
    hook_nvml_enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetGraphicsRunningProcesses, false);
}

nvmlReturn_t hook_nvmlDeviceGetGraphicsRunningProcesses_v2(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
    hook_nvml_enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetGraphicsRunningProcesses_v2, false);
}

nvmlReturn_t hook_nvmlDeviceGetGraphicsRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
    hook_nvml_enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetGraphicsRunningProcesses_v3, false);
}

nvmlReturn_t hook_nvmlDeviceGetMPSComputeRunningProcesses(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
    hook_nvml_enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetMPSComputeRunningProcesses, false);
}

nvmlReturn_t hook_nvmlDeviceGetMPSComputeRunningProcesses_v2(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
    hook_nvml_enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetMPSComputeRunningProcesses_v2, false);
}

nvmlReturn_t hook_nvmlDeviceGetMPSComputeRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
    hook_nvml_enter();
    return list(device, infoCount, infos, sizeof(*infos),
        (void *)nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, false);
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
    bool compute = plist->mode == 0;
    unsigned count = own_processes(compute ? own : CONTAINER_DEVICE_CLOSED, processes);
    unsigned room = plist->numProcArrayEntries;
    plist->numProcArrayEntries = count;
    if (count > room || (count && !plist->procArray))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < count; i++)
        plist->procArray[i] = (nvmlProcessDetail_v1_t){.pid = (unsigned)processes[i].pid,
            .usedGpuMemory = processes[i].device_bytes,
            .gpuInstanceId = NO_INSTANCE,
            .computeInstanceId = NO_INSTANCE};
    return NVML_SUCCESS;
}

struct process_list {
    struct account_process list[ACCOUNT_PROCESSES_MAX];
    unsigned count;
};

static bool is_own(const struct process_list *own, unsigned pid)
{
    for (unsigned i = 0; i < own->count; i++) {
        if ((unsigned)own->list[i].pid == pid)
            return true;
    }
    return false;
}

/* As the driver does where nothing ran. */
static nvmlReturn_t none_or_some(unsigned count)
{
    return count ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t hook_nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
    nvmlProcessUtilizationSample_t *utilization, unsigned int *processSamplesCount,
    unsigned long long lastSeenTimeStamp)
{
    hook_nvml_enter();
    nvmlReturn_t result = nvml.nvmlDeviceGetProcessUtilization(
        device, utilization, processSamplesCount, lastSeenTimeStamp);
    int own_device;
    bool limited = false;
    if (result == NVML_SUCCESS && utilization)
        result = identify_limited(device, &own_device, &limited);
    if (result != NVML_SUCCESS || !limited)
        return result;
    struct process_list own;
    own.count = own_processes(own_device, own.list);
    unsigned kept = 0;
    for (unsigned i = 0; i < *processSamplesCount; i++) {
        if (is_own(&own, utilization[i].pid))
            utilization[kept++] = utilization[i];
    }
    *processSamplesCount = kept;
    return none_or_some(kept);
}

nvmlReturn_t hook_nvmlDeviceGetProcessesUtilizationInfo(
    nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *procesesUtilInfo)
{
    hook_nvml_enter();
    nvmlReturn_t result = nvml.nvmlDeviceGetProcessesUtilizationInfo(device, procesesUtilInfo);
    int own_device;
    bool limited = false;
    if (result == NVML_SUCCESS && procesesUtilInfo->procUtilArray)
        result = identify_limited(device, &own_device, &limited);
    if (result != NVML_SUCCESS || !limited)
        return result;
    struct process_list own;
    own.count = own_processes(own_device, own.list);
    unsigned kept = 0;
    for (unsigned i = 0; i < procesesUtilInfo->processSamplesCount; i++) {
        if (is_own(&own, procesesUtilInfo->procUtilArray[i].pid))
            procesesUtilInfo->procUtilArray[kept++] = procesesUtilInfo->procUtilArray[i];
    }
    procesesUtilInfo->processSamplesCount = kept;
    return none_or_some(kept);
}
