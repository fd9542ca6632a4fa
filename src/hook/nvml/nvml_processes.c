/* SPDX-License-Identifier: Apache-2.0 */
/* What NVML's users, nvidia-smi among them, are told of the processes on a limited device: only the
 * container's own, by the pids that the container knows. */
#include "hook/hook.h"
#include "hook/nvml/nvml_own.h"

#include <string.h>

/* NVML's value where MIG is off. */
#define NO_INSTANCE 0xFFFFFFFFu

/* The structures of all versions begin with the members of the shorter ones. */
static void fill(
    void *infos, size_t stride, unsigned count, const struct account_process *processes)
{
    for (unsigned i = 0; i < count; i++) {
        nvmlProcessDetail_v1_t info = {.pid = (unsigned)processes[i].pid,
            .usedGpuMemory = processes[i].device_bytes,
            .gpuInstanceId = NO_INSTANCE,
            .computeInstanceId = NO_INSTANCE};
        memcpy((char *)infos + i * stride, &info, stride);
    }
}

/* The length of an element of the driver's _v3 lists: see nvmlProcessInfo_t. The drivers with the
 * longer one are those with confidential computing that lack the list in detail. */
static size_t third_stride(void)
{
    bool is_long = nvml_exported.nvmlDeviceGetConfComputeMemSizeInfo &&
                   !nvml_exported.nvmlDeviceGetRunningProcessDetailList;
    return is_long ? sizeof(nvmlProcessDetail_v1_t) : sizeof(nvmlProcessInfo_t);
}

/* The container's programs compute: they are in the compute lists alone. *count: the room in
 * `infos`, then how many there are. */
static nvmlReturn_t list_own(struct nvml_own *own, bool compute, unsigned *count, const void *infos)
{
    unsigned room = *count;
    *count = compute ? own->count : 0;
    return *count > room || (*count && !infos) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

typedef nvmlReturn_t list_function(nvmlDevice_t device, unsigned *info_count, void *infos);

/* The driver judges the arguments first, and answers for a device that is not limited. */
static nvmlReturn_t list(
    nvmlDevice_t device, unsigned *info_count, void *infos, size_t stride, void *real, bool compute)
{
    list_function *ask = (list_function *)real;
    if (!info_count)
        return ask(device, NULL, infos);
    unsigned room = infos ? 0 : *info_count;
    nvmlReturn_t result = ask(device, &room, NULL);
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
        return result;
    struct nvml_own own;
    result = nvml_own_read(device, &own);
    if (result != NVML_SUCCESS)
        return result;
    if (!own.limited)
        return ask(device, info_count, infos);
    result = list_own(&own, compute, info_count, infos);
    if (result == NVML_SUCCESS)
        fill(infos, stride, *info_count, own.processes);
    return result;
}

/* What all the lists do, with the parameters of their hooks. */
#define LIST_OF(name, compute, stride)                                                             \
    (hook_nvml_enter(), list(device, infoCount, infos, stride, (void *)nvml.name, compute))
#define LIST(name, compute) LIST_OF(name, compute, sizeof(*infos))
#define LIST_THIRD(name, compute) LIST_OF(name, compute, third_stride())

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
    return LIST_THIRD(nvmlDeviceGetComputeRunningProcesses_v3, true);
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
    return LIST_THIRD(nvmlDeviceGetGraphicsRunningProcesses_v3, false);
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
    return LIST_THIRD(nvmlDeviceGetMPSComputeRunningProcesses_v3, false);
}

/* A version that is not known here lays its elements out in an unknown way: it is answered as by a
 * driver that does not know it either. */
nvmlReturn_t hook_nvmlDeviceGetRunningProcessDetailList(
    nvmlDevice_t device, nvmlProcessDetailList_t *plist)
{
    hook_nvml_enter();
    if (!plist)
        return nvml.nvmlDeviceGetRunningProcessDetailList(device, plist);
    nvmlProcessDetailList_t question = {.version = plist->version,
        .mode = plist->mode,
        .numProcArrayEntries = plist->procArray ? 0 : plist->numProcArrayEntries};
    nvmlReturn_t result = nvml.nvmlDeviceGetRunningProcessDetailList(device, &question);
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
        return result;
    struct nvml_own own;
    result = nvml_own_read(device, &own);
    if (result != NVML_SUCCESS)
        return result;
    if (!own.limited)
        return nvml.nvmlDeviceGetRunningProcessDetailList(device, plist);
    if (plist->version != nvmlProcessDetailList_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned *count = &plist->numProcArrayEntries;
    result = list_own(&own, plist->mode == 0, count, plist->procArray);
    if (result == NVML_SUCCESS)
        fill(plist->procArray, sizeof(*plist->procArray), *count, own.processes);
    return result;
}
