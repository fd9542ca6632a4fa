/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated NVML: events can be waited for, but none ever comes. */
#include "sim/nvml/nvml_sim.h"

#include <stdlib.h>
#include <time.h>

struct nvmlEventSet_st {
    unsigned registered;
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    nvmlReturn_t result = nvml_enter(__func__);
    if (result == NVML_SUCCESS && set == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result != NVML_SUCCESS)
        return result;
    nvmlEventSet_t created = calloc(1, sizeof *created);
    if (created == NULL)
        return NVML_ERROR_MEMORY;
    *set = created;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    nvmlReturn_t result = nvml_enter(__func__);
    if (result == NVML_SUCCESS && set == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        free(set);
    return result;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *eventTypes)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, eventTypes);
    if (result == NVML_SUCCESS)
        *eventTypes = 0x1full; /* ECC errors, state changes, critical errors, clock changes */
    return result;
}

nvmlReturn_t nvmlDeviceRegisterEvents(
    nvmlDevice_t device, unsigned long long eventTypes, nvmlEventSet_t set)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, set);
    (void)eventTypes;
    if (result == NVML_SUCCESS)
        set->registered++;
    return result;
}

static nvmlReturn_t wait(
    const char *function, nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
    nvmlReturn_t result = nvml_enter(function);
    if (result == NVML_SUCCESS && (set == NULL || data == NULL))
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result != NVML_SUCCESS)
        return result;
    struct timespec pause = {
        .tv_sec = timeoutms / 1000, .tv_nsec = (long)(timeoutms % 1000) * 1000000};
    nanosleep(&pause, NULL);
    return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
    return wait(__func__, set, data, timeoutms);
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
    return wait(__func__, set, data, timeoutms);
}
