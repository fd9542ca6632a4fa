/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated NVML: events. They come from nvml_fault.h alone. */
#include "sim/nvml/nvml_fault.h"
#include "sim/nvml/nvml_sim.h"

#include <stdlib.h>
#include <time.h>

#define LOOK_MS 20u

struct nvmlEventSet_st {
    unsigned long long types[SIM_DEVICES_MAX]; /* that are waited for, by card */
    bool told_lost[SIM_DEVICES_MAX];
    unsigned next; /* number of the event to look at */
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
    created->next = nvml_fault_event_count();
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
    if (result == NVML_SUCCESS)
        set->types[nvml_index(device)] |= eventTypes;
    return result;
}

/* Each loss is told once to a set. */
static bool is_newly_lost(nvmlEventSet_t set)
{
    bool found = false;
    for (unsigned i = 0; i < sim_device_count(); i++) {
        bool lost = set->types[i] != 0 && nvml_fault_is_lost(i);
        found = found || (lost && !set->told_lost[i]);
        set->told_lost[i] = lost;
    }
    return found;
}

static bool take_event(nvmlEventSet_t set, nvmlEventData_t *data)
{
    while (set->next < nvml_fault_event_count()) {
        struct nvml_fault_event event = nvml_fault_event(set->next++);
        if (event.card >= sim_device_count() || (set->types[event.card] & event.type) == 0)
            continue;
        *data = (nvmlEventData_t){.device = nvml_handle(event.card),
            .eventType = event.type,
            .eventData = event.data,
            .gpuInstanceId = 0xffffffffu,
            .computeInstanceId = 0xffffffffu};
        return true;
    }
    return false;
}

static nvmlReturn_t wait(
    const char *function, nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
    nvmlReturn_t result = nvml_enter(function);
    if (result == NVML_SUCCESS && (set == NULL || data == NULL))
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned waited = 0;;) {
        if (take_event(set, data))
            return NVML_SUCCESS;
        if (is_newly_lost(set))
            return NVML_ERROR_GPU_IS_LOST;
        if (waited >= timeoutms)
            return NVML_ERROR_TIMEOUT;
        /* Without faults nothing can come. */
        unsigned left = timeoutms - waited;
        unsigned pause = nvml_fault_is_possible() && left > LOOK_MS ? LOOK_MS : left;
        struct timespec time = {.tv_sec = pause / 1000, .tv_nsec = (long)(pause % 1000) * 1000000};
        nanosleep(&time, NULL);
        waited += pause;
    }
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
    return wait(__func__, set, data, timeoutms);
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
    return wait(__func__, set, data, timeoutms);
}
