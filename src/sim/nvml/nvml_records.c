/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated NVML: accounting, sessions of the encoder and of frame buffer capture, and confidential
 * computing. A description asks for each (docs/simulator.md). */
#include "sim/nvml/nvml_sim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- accounting: of the processes that have a context, not of those that have ended ---- */

#define ACCOUNTING_BUFFER 4000u

static nvmlReturn_t enter_accounting(const char *function, nvmlDevice_t device, const void *output)
{
    nvmlReturn_t result = nvml_enter_device(function, device, output);
    return result == NVML_SUCCESS && !sim_description()->accounting ? NVML_ERROR_NOT_SUPPORTED
                                                                    : result;
}

nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, mode);
    if (result == NVML_SUCCESS)
        *mode = sim_description()->accounting ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return result;
}

nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int *bufferSize)
{
    nvmlReturn_t result = enter_accounting(__func__, device, bufferSize);
    if (result == NVML_SUCCESS)
        *bufferSize = ACCOUNTING_BUFFER;
    return result;
}

nvmlReturn_t nvmlDeviceGetAccountingPids(
    nvmlDevice_t device, unsigned int *count, unsigned int *pids)
{
    nvmlReturn_t result = enter_accounting(__func__, device, count);
    if (result == NVML_SUCCESS && pids == NULL && *count > 0)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result != NVML_SUCCESS)
        return result;
    struct nvml_process_list *list = nvml_list_processes(device);
    if (list == NULL)
        return NVML_ERROR_MEMORY;
    bool fits = list->count <= *count;
    for (unsigned i = 0; fits && i < list->count; i++)
        pids[i] = nvml_shown_pid(list->entries[i].pid);
    *count = list->count;
    free(list);
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static nvmlReturn_t find_process(nvmlDevice_t device, unsigned pid, struct sim_process *ret_process)
{
    struct nvml_process_list *list = nvml_list_processes(device);
    if (list == NULL)
        return NVML_ERROR_MEMORY;
    nvmlReturn_t result = NVML_ERROR_NOT_FOUND;
    for (unsigned i = 0; i < list->count; i++) {
        if (nvml_shown_pid(list->entries[i].pid) == pid) {
            *ret_process = list->entries[i];
            result = NVML_SUCCESS;
        }
    }
    free(list);
    return result;
}

nvmlReturn_t nvmlDeviceGetAccountingStats(
    nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t *stats)
{
    struct sim_process process;
    nvmlReturn_t result = enter_accounting(__func__, device, stats);
    if (result == NVML_SUCCESS)
        result = find_process(device, pid, &process);
    if (result == NVML_SUCCESS)
        *stats = (nvmlAccountingStats_t){.gpuUtilization = process.busy_ns != 0,
            .maxMemoryUsage = nvml_used_bytes(&process),
            .isRunning = 1};
    return result;
}

nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats)
{
    struct sim_process process;
    nvmlReturn_t result = enter_accounting(__func__, device, stats);
    if (result == NVML_SUCCESS)
        result = find_process(device, stats->pid, &process);
    if (result == NVML_SUCCESS)
        *stats = (nvmlAccountingStats_v2_t){.pid = stats->pid,
            .gpuUtilization = process.busy_ns != 0,
            .maxMemoryUsage = nvml_used_bytes(&process),
            .isRunning = 1};
    return result;
}

/* ---- sessions: one of each kind a process ---- */

/* As documented, the question how many there are succeeds. */
static nvmlReturn_t get_sessions(const char *function, nvmlDevice_t device, unsigned *count,
    const void *sessions, struct nvml_process_list **ret_list)
{
    nvmlReturn_t result = nvml_enter_device(function, device, count);
    if (result == NVML_SUCCESS && sessions == NULL && *count > 0)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result != NVML_SUCCESS)
        return result;
    struct nvml_process_list *list = nvml_list_processes(device);
    if (list == NULL)
        return NVML_ERROR_MEMORY;
    if (!sim_description()->video)
        list->count = 0;
    unsigned room = *count;
    *count = list->count;
    if (room >= list->count) {
        *ret_list = list;
        return NVML_SUCCESS;
    }
    free(list);
    return room == 0 ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

nvmlReturn_t nvmlDeviceGetEncoderSessions(
    nvmlDevice_t device, unsigned int *sessionCount, nvmlEncoderSessionInfo_t *sessionInfos)
{
    struct nvml_process_list *list = NULL;
    nvmlReturn_t result = get_sessions(__func__, device, sessionCount, sessionInfos, &list);
    for (unsigned i = 0; list != NULL && i < list->count; i++)
        sessionInfos[i] = (nvmlEncoderSessionInfo_t){.sessionId = i + 1,
            .pid = nvml_shown_pid(list->entries[i].pid),
            .codecType = NVML_ENCODER_QUERY_HEVC,
            .hResolution = 1920,
            .vResolution = 1080,
            .averageFps = 60};
    free(list);
    return result;
}

nvmlReturn_t nvmlDeviceGetFBCSessions(
    nvmlDevice_t device, unsigned int *sessionCount, nvmlFBCSessionInfo_t *sessionInfo)
{
    struct nvml_process_list *list = NULL;
    nvmlReturn_t result = get_sessions(__func__, device, sessionCount, sessionInfo, &list);
    for (unsigned i = 0; list != NULL && i < list->count; i++)
        sessionInfo[i] = (nvmlFBCSessionInfo_t){.sessionId = i + 1,
            .pid = nvml_shown_pid(list->entries[i].pid),
            .sessionType = NVML_FBC_SESSION_TYPE_CUDA,
            .hMaxResolution = 1920,
            .vMaxResolution = 1080,
            .averageFPS = 60};
    free(list);
    return result;
}

/* ---- confidential computing: where it is on, all of the memory is protected ---- */

nvmlReturn_t nvmlDeviceGetConfComputeMemSizeInfo(
    nvmlDevice_t device, nvmlConfComputeMemSizeInfo_t *memInfo)
{
    struct sim_usage usage;
    nvmlReturn_t result = nvml_enter_device(__func__, device, memInfo);
    if (result != NVML_SUCCESS)
        return result;
    sim_device_usage(nvml_index(device), &usage);
    uint64_t kib = (usage.total_bytes - usage.reserved_bytes) >> 10;
    bool is_protected = sim_description()->confidential;
    memInfo->protectedMemSizeKib = is_protected ? kib : 0;
    memInfo->unprotectedMemSizeKib = is_protected ? 0 : kib;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct sim_usage usage;
    nvmlReturn_t result = nvml_enter_device(__func__, device, memory);
    if (result != NVML_SUCCESS)
        return result;
    sim_device_usage(nvml_index(device), &usage);
    *memory = (nvmlMemory_t){0};
    if (sim_description()->confidential)
        *memory = (nvmlMemory_t){.total = usage.total_bytes - usage.reserved_bytes,
            .used = usage.used_bytes,
            .free = usage.free_bytes};
    return NVML_SUCCESS;
}
