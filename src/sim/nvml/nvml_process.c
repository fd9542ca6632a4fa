/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated NVML: memory, the processes of a device, and utilisation. */
#include "sim/nvml/nvml_sim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, memory);
    if (result != NVML_SUCCESS)
        return result;
    struct sim_usage usage;
    sim_device_usage(nvml_index(device), &usage);
    /* The first version counts the reserved bytes as used. */
    memory->total = usage.total_bytes;
    memory->free = usage.free_bytes;
    memory->used = usage.reserved_bytes + usage.used_bytes;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, memory);
    if (result != NVML_SUCCESS)
        return result;
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    struct sim_usage usage;
    sim_device_usage(nvml_index(device), &usage);
    memory->total = usage.total_bytes;
    memory->reserved = usage.reserved_bytes;
    memory->free = usage.free_bytes;
    memory->used = usage.used_bytes;
    return NVML_SUCCESS;
}

unsigned nvml_shown_pid(pid_t pid)
{
    if ((uint32_t)pid == sim_description()->nvml_pid_inner)
        return sim_description()->nvml_pid_outer;
    unsigned shift = sim_description()->nvml_pid == SIM_NVML_PID_HOST ? SIM_NVML_PID_HOST_SHIFT : 0;
    return (unsigned)pid + shift;
}

struct nvml_process_list *nvml_list_processes(nvmlDevice_t device)
{
    struct nvml_process_list *list = calloc(1, sizeof *list);
    if (list == NULL || sim_description()->nvml_pid == SIM_NVML_PID_NONE)
        return list;
    list->count = sim_device_processes(nvml_index(device), list->entries, NVML_PROCESSES_MAX);
    if (list->count > NVML_PROCESSES_MAX)
        list->count = NVML_PROCESSES_MAX;
    return list;
}

/* A vGPU guest has none (assumed). */
unsigned long long nvml_used_bytes(const struct sim_process *process)
{
    if (sim_description()->vgpu_guest)
        return (unsigned long long)NVML_VALUE_NOT_AVAILABLE;
    return process->private_bytes + process->shared_owned_bytes;
}

/* All versions: entry_size tells them apart; the fields they share lie alike. */
static nvmlReturn_t get_compute_processes(
    const char *function, nvmlDevice_t device, unsigned int *count, void *infos, size_t entry_size)
{
    nvmlReturn_t result = nvml_enter_device(function, device, count);
    if (result == NVML_SUCCESS && infos == NULL && *count > 0)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result != NVML_SUCCESS)
        return result;
    struct nvml_process_list *list = nvml_list_processes(device);
    if (list == NULL)
        return NVML_ERROR_MEMORY;
    bool fits = list->count <= *count;
    for (unsigned i = 0; fits && i < list->count; i++) {
        nvmlProcessDetail_v1_t info = {.pid = nvml_shown_pid(list->entries[i].pid),
            .usedGpuMemory = nvml_used_bytes(&list->entries[i]),
            .gpuInstanceId = ~0u,
            .computeInstanceId = ~0u};
        memcpy((char *)infos + i * entry_size, &info, entry_size);
    }
    *count = list->count;
    free(list);
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

_Static_assert(
    offsetof(nvmlProcessInfo_v1_t, usedGpuMemory) == offsetof(nvmlProcessInfo_t, usedGpuMemory),
    "the first version is the beginning of the third");

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
    return get_compute_processes(__func__, device, infoCount, infos, sizeof *infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
    return get_compute_processes(__func__, device, infoCount, infos, sizeof *infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
    bool is_long = nvml_driver_is_before(NVML_DETAIL_LIST_DRIVER, NVML_DETAIL_LIST_MINOR);
    return get_compute_processes(__func__, device, infoCount, infos,
        is_long ? sizeof(nvmlProcessDetail_v1_t) : sizeof *infos);
}

/* Nothing draws on the pretend machine, and no MPS server runs. */
static nvmlReturn_t get_no_processes(
    const char *function, nvmlDevice_t device, unsigned int *count, const void *infos)
{
    nvmlReturn_t result = nvml_enter_device(function, device, count);
    (void)infos;
    if (result == NVML_SUCCESS)
        *count = 0;
    return result;
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
    return get_no_processes(__func__, device, infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
    return get_no_processes(__func__, device, infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
    return get_no_processes(__func__, device, infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v1_t *infos)
{
    return get_no_processes(__func__, device, infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_v2_t *infos)
{
    return get_no_processes(__func__, device, infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
    return get_no_processes(__func__, device, infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(
    nvmlDevice_t device, nvmlProcessDetailList_t *plist)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, plist);
    if (result == NVML_SUCCESS && plist->version != nvmlProcessDetailList_v1)
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (result == NVML_SUCCESS && plist->numProcArrayEntries > 0 && plist->procArray == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result != NVML_SUCCESS)
        return result;
    struct nvml_process_list *list = nvml_list_processes(device);
    if (list == NULL)
        return NVML_ERROR_MEMORY;
    unsigned count = plist->mode == 0 ? list->count : 0;
    bool fits = count <= plist->numProcArrayEntries;
    for (unsigned i = 0; fits && i < count; i++) {
        plist->procArray[i] = (nvmlProcessDetail_v1_t){.pid = nvml_shown_pid(list->entries[i].pid),
            .usedGpuMemory = nvml_used_bytes(&list->entries[i]),
            .gpuInstanceId = ~0u,
            .computeInstanceId = ~0u};
    }
    plist->numProcArrayEntries = count;
    free(list);
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, utilization);
    if (result == NVML_SUCCESS) {
        utilization->gpu = sim_device_utilization(nvml_index(device));
        utilization->memory = 0; /* traffic is not simulated */
    }
    return result;
}

/* NVML's time stamps are microseconds of the wall clock. */
static unsigned long long wall_us(uint64_t monotonic_ns)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
    uint64_t age_ns = sim_clock_ns() - monotonic_ns;
    /* Window ends are rounded so that each look gives a sample the same stamp, clock jitter or not.
     */
    return (now_ns - age_ns + 500000) / 1000000 * 1000;
}

static unsigned list_samples(nvmlDevice_t device, bool idle_too, unsigned long long since_us,
    struct sim_sample samples[SIM_SAMPLES_MAX])
{
    unsigned all = sim_device_samples(nvml_index(device), 0, idle_too, samples);
    unsigned count = 0;
    for (unsigned i = 0; i < all; i++) {
        if (wall_us(samples[i].end_ns) > since_us)
            samples[count++] = samples[i];
    }
    return count;
}

/*
 * Up to 72 samples, each of which names one process; a buffer for 64 is refused, and NOT_FOUND
 * comes back when nothing ran (seen on H200, driver 580.159.04).
 */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
    nvmlProcessUtilizationSample_t *utilization, unsigned int *processSamplesCount,
    unsigned long long lastSeenTimeStamp)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, processSamplesCount);
    if (result != NVML_SUCCESS)
        return result;
    struct sim_sample samples[SIM_SAMPLES_MAX];
    unsigned count = list_samples(device, false, lastSeenTimeStamp, samples);
    if (count == 0 || sim_description()->nvml_pid == SIM_NVML_PID_NONE) {
        *processSamplesCount = 0;
        return NVML_ERROR_NOT_FOUND;
    }
    if (utilization == NULL || *processSamplesCount < SIM_SAMPLES_MAX) {
        *processSamplesCount = SIM_SAMPLES_MAX;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    for (unsigned i = 0; i < count; i++) {
        utilization[i] = (nvmlProcessUtilizationSample_t){.pid = nvml_shown_pid(samples[i].pid),
            .timeStamp = wall_us(samples[i].end_ns),
            .smUtil = samples[i].busy_percent};
    }
    *processSamplesCount = count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(
    nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *procesesUtilInfo)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, procesesUtilInfo);
    if (result != NVML_SUCCESS)
        return result;
    if (procesesUtilInfo->version != nvmlProcessesUtilizationInfo_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    struct sim_sample samples[SIM_SAMPLES_MAX];
    unsigned count = list_samples(device, false, procesesUtilInfo->lastSeenTimeStamp, samples);
    if (count == 0 || sim_description()->nvml_pid == SIM_NVML_PID_NONE) {
        procesesUtilInfo->processSamplesCount = 0;
        return NVML_ERROR_NOT_FOUND;
    }
    unsigned room = procesesUtilInfo->processSamplesCount;
    procesesUtilInfo->processSamplesCount = count;
    if (procesesUtilInfo->procUtilArray == NULL || room < count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < count; i++) {
        procesesUtilInfo->procUtilArray[i] =
            (nvmlProcessUtilizationInfo_v1_t){.timeStamp = wall_us(samples[i].end_ns),
                .pid = nvml_shown_pid(samples[i].pid),
                .smUtil = samples[i].busy_percent};
    }
    return NVML_SUCCESS;
}

/* The whole device's, also of times in which nothing ran (seen on H200, driver 580.159.04). */
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
    unsigned long long lastSeenTimeStamp, nvmlValueType_t *sampleValType, unsigned int *sampleCount,
    nvmlSample_t *samples)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, sampleCount);
    if (result == NVML_SUCCESS && sampleValType == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS && type != NVML_GPU_UTILIZATION_SAMPLES)
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result != NVML_SUCCESS)
        return result;
    struct sim_sample own[SIM_SAMPLES_MAX];
    unsigned count = list_samples(device, true, lastSeenTimeStamp, own);
    unsigned room = *sampleCount;
    *sampleValType = NVML_VALUE_TYPE_UNSIGNED_INT;
    *sampleCount = count;
    if (count == 0)
        return NVML_ERROR_NOT_FOUND;
    if (samples == NULL) {
        *sampleCount = SIM_SAMPLES_MAX;
        return NVML_SUCCESS;
    }
    if (room < count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < count; i++) {
        samples[i] = (nvmlSample_t){
            .timeStamp = wall_us(own[i].end_ns), .sampleValue.uiVal = own[i].busy_percent};
    }
    return NVML_SUCCESS;
}
