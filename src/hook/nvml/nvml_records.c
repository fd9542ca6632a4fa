/* SPDX-License-Identifier: Apache-2.0 */
/* What NVML keeps of each process on a limited device: samples of utilisation, accounting, sessions
 * of the encoder and of frame buffer capture. Those of the container's own live processes are
 * shown, and no others. */
#include "hook/hook.h"
#include "hook/nvml/nvml_own.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

/* Leaves the container's own of the driver's `*count` samples. As the driver does where nothing
 * ran, an empty list is an error. */
static nvmlReturn_t keep_samples(
    nvmlDevice_t device, void *samples, size_t stride, size_t pid_offset, unsigned *count)
{
    struct nvml_own own;
    nvmlReturn_t result = nvml_own_read(device, &own);
    if (result != NVML_SUCCESS || !own.limited)
        return result;
    *count = nvml_own_keep(&own, samples, stride, pid_offset, *count);
    return *count ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
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
    return keep_samples(device, utilization, sizeof(*utilization),
        offsetof(nvmlProcessUtilizationSample_t, pid), processSamplesCount);
}

/* A version that is not known here, as for nvmlDeviceGetRunningProcessDetailList. */
static nvmlReturn_t ask_unknown_version(
    nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *procesesUtilInfo)
{
    struct nvml_own own;
    nvmlProcessesUtilizationInfo_t question = {.version = procesesUtilInfo->version};
    nvmlReturn_t result = nvml.nvmlDeviceGetProcessesUtilizationInfo(device, &question);
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE &&
        result != NVML_ERROR_NOT_FOUND)
        return result;
    result = nvml_own_read(device, &own);
    if (result != NVML_SUCCESS)
        return result;
    return own.limited ? NVML_ERROR_ARGUMENT_VERSION_MISMATCH
                       : nvml.nvmlDeviceGetProcessesUtilizationInfo(device, procesesUtilInfo);
}

nvmlReturn_t hook_nvmlDeviceGetProcessesUtilizationInfo(
    nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *procesesUtilInfo)
{
    hook_nvml_enter();
    if (procesesUtilInfo && procesesUtilInfo->version != nvmlProcessesUtilizationInfo_v1)
        return ask_unknown_version(device, procesesUtilInfo);
    nvmlReturn_t result = nvml.nvmlDeviceGetProcessesUtilizationInfo(device, procesesUtilInfo);
    if (result != NVML_SUCCESS || !procesesUtilInfo || !procesesUtilInfo->procUtilArray)
        return result;
    return keep_samples(device, procesesUtilInfo->procUtilArray,
        sizeof(*procesesUtilInfo->procUtilArray), offsetof(nvmlProcessUtilizationInfo_v1_t, pid),
        &procesesUtilInfo->processSamplesCount);
}

/* ---- lists with a count and an array ---- */

typedef nvmlReturn_t list_function(nvmlDevice_t device, unsigned *count, void *elements);

struct list {
    list_function *ask;
    size_t stride;
    size_t pid_offset;
};

/* Holds all that the driver lists: 4,096 pids (its accounting buffer has 4,000), 512 sessions of
 * the encoder, 341 of capture. More than that is answered with an error. */
#define BUFFER_BYTES 16384

/* *count: the room in `elements`, then how many are the container's. `asked` is the driver's own
 * answer to the question how many there are, which differs by list. */
static nvmlReturn_t give_own_by(const struct list *list, nvmlDevice_t device,
    const struct nvml_own *own, nvmlReturn_t asked, unsigned *count, void *elements, void *buffer)
{
    unsigned room = *count, listed = (unsigned)(BUFFER_BYTES / list->stride);
    nvmlReturn_t result = list->ask(device, &listed, buffer);
    if (result != NVML_SUCCESS)
        return result == NVML_ERROR_INSUFFICIENT_SIZE ? NVML_ERROR_INSUFFICIENT_RESOURCES : result;
    unsigned kept = nvml_own_keep(own, buffer, list->stride, list->pid_offset, listed);
    *count = kept;
    if (kept && !room)
        return asked;
    if (kept > room || (kept && !elements))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (kept)
        memcpy(elements, buffer, kept * list->stride);
    return NVML_SUCCESS;
}

/* Not on the stack: a monitor's threads may have little. */
static nvmlReturn_t give_own(const struct list *list, nvmlDevice_t device,
    const struct nvml_own *own, nvmlReturn_t asked, unsigned *count, void *elements)
{
    void *buffer =
        mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        return NVML_ERROR_MEMORY;
    nvmlReturn_t result = give_own_by(list, device, own, asked, count, elements, buffer);
    munmap(buffer, BUFFER_BYTES);
    return result;
}

/* The driver judges the arguments first, and answers for a device that is not limited. */
static nvmlReturn_t list_records(
    const struct list *list, nvmlDevice_t device, unsigned *count, void *elements)
{
    if (!count)
        return list->ask(device, NULL, elements);
    unsigned room = elements ? 0 : *count;
    nvmlReturn_t asked = list->ask(device, &room, NULL);
    if (asked != NVML_SUCCESS && asked != NVML_ERROR_INSUFFICIENT_SIZE)
        return asked;
    struct nvml_own own;
    nvmlReturn_t result = nvml_own_read(device, &own);
    if (result != NVML_SUCCESS)
        return result;
    return own.limited ? give_own(list, device, &own, asked, count, elements)
                       : list->ask(device, count, elements);
}

nvmlReturn_t hook_nvmlDeviceGetEncoderSessions(
    nvmlDevice_t device, unsigned int *sessionCount, nvmlEncoderSessionInfo_t *sessionInfos)
{
    hook_nvml_enter();
    return list_records(&(struct list){(list_function *)(void *)nvml.nvmlDeviceGetEncoderSessions,
                            sizeof(*sessionInfos), offsetof(nvmlEncoderSessionInfo_t, pid)},
        device, sessionCount, sessionInfos);
}

nvmlReturn_t hook_nvmlDeviceGetFBCSessions(
    nvmlDevice_t device, unsigned int *sessionCount, nvmlFBCSessionInfo_t *sessionInfo)
{
    hook_nvml_enter();
    return list_records(&(struct list){(list_function *)(void *)nvml.nvmlDeviceGetFBCSessions,
                            sizeof(*sessionInfo), offsetof(nvmlFBCSessionInfo_t, pid)},
        device, sessionCount, sessionInfo);
}

/* Processes that have ended are not listed: nothing says whose they were. */
nvmlReturn_t hook_nvmlDeviceGetAccountingPids(
    nvmlDevice_t device, unsigned int *count, unsigned int *pids)
{
    hook_nvml_enter();
    return list_records(
        &(struct list){(list_function *)(void *)nvml.nvmlDeviceGetAccountingPids, sizeof(*pids), 0},
        device, count, pids);
}

/* ---- accounting of one process ---- */

/* NVML_SUCCESS where the container may read the accounting of `pid`. */
static nvmlReturn_t may_read(nvmlDevice_t device, unsigned pid)
{
    struct nvml_own own;
    nvmlReturn_t result = nvml_own_read(device, &own);
    if (result != NVML_SUCCESS)
        return result;
    return !own.limited || nvml_own_has(&own, pid) ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t hook_nvmlDeviceGetAccountingStats(
    nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t *stats)
{
    hook_nvml_enter();
    nvmlAccountingStats_t answer = {0};
    nvmlReturn_t result = nvml.nvmlDeviceGetAccountingStats(device, pid, stats ? &answer : NULL);
    if (result == NVML_SUCCESS)
        result = may_read(device, pid);
    if (result == NVML_SUCCESS && stats)
        *stats = answer;
    return result;
}

nvmlReturn_t hook_nvmlDeviceGetAccountingStats_v2(
    nvmlDevice_t device, nvmlAccountingStats_v2_t *stats)
{
    hook_nvml_enter();
    if (!stats)
        return nvml.nvmlDeviceGetAccountingStats_v2(device, stats);
    nvmlAccountingStats_v2_t answer = *stats;
    nvmlReturn_t result = nvml.nvmlDeviceGetAccountingStats_v2(device, &answer);
    if (result == NVML_SUCCESS)
        result = may_read(device, stats->pid);
    if (result == NVML_SUCCESS)
        *stats = answer;
    return result;
}
