/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated NVML: the state of a device. Clocks, power and heat follow utilisation plausibly;
 * nothing was measured. */
#include "sim/nvml/nvml_fault.h"
#include "sim/nvml/nvml_sim.h"

#include <string.h>
#include <time.h>

#define IDLE_POWER_MW 75000u
#define MIN_POWER_LIMIT_MW 200000u
#define IDLE_CLOCK_MHZ 345u
#define IDLE_CELSIUS 30u
#define FIRST_BAR1_BYTES (256ull << 20)

static nvmlReturn_t get_uint(
    const char *function, nvmlDevice_t device, unsigned int value, unsigned int *output)
{
    nvmlReturn_t result = nvml_enter_device(function, device, output);
    if (result == NVML_SUCCESS)
        *output = value;
    return result;
}

static nvmlReturn_t get_state(
    const char *function, nvmlDevice_t device, nvmlEnableState_t value, nvmlEnableState_t *output)
{
    nvmlReturn_t result = nvml_enter_device(function, device, output);
    if (result == NVML_SUCCESS)
        *output = value;
    return result;
}

/* Two outputs, both needed. */
static nvmlReturn_t get_pair(const char *function, nvmlDevice_t device, unsigned int first,
    unsigned int second, unsigned int *first_output, unsigned int *second_output)
{
    nvmlReturn_t result = nvml_enter_device(function, device, first_output);
    if (result == NVML_SUCCESS && second_output == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS) {
        *first_output = first;
        *second_output = second;
    }
    return result;
}

static nvmlReturn_t get_uint64(
    const char *function, nvmlDevice_t device, unsigned long long value, unsigned long long *output)
{
    nvmlReturn_t result = nvml_enter_device(function, device, output);
    if (result == NVML_SUCCESS)
        *output = value;
    return result;
}

static unsigned power_mw(unsigned index)
{
    unsigned span = sim_device(index)->model.power_limit_mw - IDLE_POWER_MW;
    return IDLE_POWER_MW + span / 100 * sim_device_utilization(index);
}

static unsigned celsius(unsigned index)
{
    return IDLE_CELSIUS + sim_device_utilization(index) * 3 / 10;
}

static unsigned max_clock_mhz(unsigned index, nvmlClockType_t type)
{
    const struct sim_model *model = &sim_device(index)->model;
    return (type == NVML_CLOCK_MEM ? model->memory_clock_khz : model->clock_khz) / 1000;
}

static unsigned clock_mhz(unsigned index, nvmlClockType_t type)
{
    bool fast = type == NVML_CLOCK_MEM || sim_device_utilization(index) > 0;
    return fast ? max_clock_mhz(index, type) : IDLE_CLOCK_MHZ;
}

/* Values that need the device are computed only after it was accepted. */
static nvmlReturn_t get_computed(const char *function, nvmlDevice_t device,
    unsigned (*compute)(unsigned index), unsigned int *output)
{
    nvmlReturn_t result = nvml_enter_device(function, device, output);
    if (result == NVML_SUCCESS)
        *output = compute(nvml_index(device));
    return result;
}

static nvmlReturn_t get_clock(const char *function, nvmlDevice_t device, nvmlClockType_t type,
    unsigned (*compute)(unsigned index, nvmlClockType_t type), unsigned int *output)
{
    nvmlReturn_t result = nvml_enter_device(function, device, output);
    if (result == NVML_SUCCESS && (unsigned)type > NVML_CLOCK_VIDEO)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *output = compute(nvml_index(device), type);
    return result;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
    return get_clock(__func__, device, type, clock_mhz, clock);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(
    nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
    return get_clock(__func__, device, type, max_clock_mhz, clock);
}

nvmlReturn_t nvmlDeviceGetClock(
    nvmlDevice_t device, nvmlClockType_t clockType, nvmlClockId_t clockId, unsigned int *clockMHz)
{
    bool is_current = clockId == NVML_CLOCK_ID_CURRENT;
    return get_clock(__func__, device, clockType, is_current ? clock_mhz : max_clock_mhz, clockMHz);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(
    nvmlDevice_t device, nvmlClockType_t clockType, unsigned int *clockMHz)
{
    return get_clock(__func__, device, clockType, max_clock_mhz, clockMHz);
}

nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(
    nvmlDevice_t device, nvmlClockType_t clockType, unsigned int *clockMHz)
{
    return get_clock(__func__, device, clockType, max_clock_mhz, clockMHz);
}

nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(
    nvmlDevice_t device, nvmlClockType_t clockType, unsigned int *clockMHz)
{
    return get_clock(__func__, device, clockType, max_clock_mhz, clockMHz);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(
    nvmlDevice_t device, unsigned long long *clocksEventReasons)
{
    return get_uint64(__func__, device, 0, clocksEventReasons);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(
    nvmlDevice_t device, unsigned long long *clocksThrottleReasons)
{
    return get_uint64(__func__, device, 0, clocksThrottleReasons);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power)
{
    return get_computed(__func__, device, power_mw, power);
}

/* As if the card had been idle since it was reset, or since the computer was started. */
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, energy);
    if (result == NVML_SUCCESS) {
        uint64_t now_ms = sim_clock_ns() / 1000000;
        *energy = (now_ms - nvml_fault_reset_ms(nvml_index(device))) * (IDLE_POWER_MW / 1000);
    }
    return result;
}

static unsigned power_limit_mw(unsigned index)
{
    return sim_device(index)->model.power_limit_mw;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *limit)
{
    return get_computed(__func__, device, power_limit_mw, limit);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *limit)
{
    return get_computed(__func__, device, power_limit_mw, limit);
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(
    nvmlDevice_t device, unsigned int *defaultLimit)
{
    return get_computed(__func__, device, power_limit_mw, defaultLimit);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(
    nvmlDevice_t device, unsigned int *minLimit, unsigned int *maxLimit)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, minLimit);
    if (result == NVML_SUCCESS && maxLimit == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS) {
        *minLimit = MIN_POWER_LIMIT_MW;
        *maxLimit = power_limit_mw(nvml_index(device));
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    return get_state(__func__, device, NVML_FEATURE_ENABLED, mode);
}

static nvmlReturn_t get_performance_state(
    const char *function, nvmlDevice_t device, nvmlPstates_t *state)
{
    nvmlReturn_t result = nvml_enter_device(function, device, state);
    if (result == NVML_SUCCESS)
        *state = NVML_PSTATE_0;
    return result;
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *pState)
{
    return get_performance_state(__func__, device, pState);
}

nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t *pState)
{
    return get_performance_state(__func__, device, pState);
}

nvmlReturn_t nvmlDeviceGetTemperature(
    nvmlDevice_t device, nvmlTemperatureSensors_t sensorType, unsigned int *temp)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, temp);
    if (result == NVML_SUCCESS && sensorType != NVML_TEMPERATURE_GPU)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *temp = celsius(nvml_index(device));
    return result;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, temperature);
    if (result == NVML_SUCCESS && temperature->version != nvmlTemperature_v1)
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (result == NVML_SUCCESS)
        temperature->temperature = (int)celsius(nvml_index(device));
    return result;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(
    nvmlDevice_t device, nvmlTemperatureThresholds_t thresholdType, unsigned int *temp)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, temp);
    if (result != NVML_SUCCESS)
        return result;
    switch (thresholdType) {
    case NVML_TEMPERATURE_THRESHOLD_SHUTDOWN:
        *temp = 95;
        return NVML_SUCCESS;
    case NVML_TEMPERATURE_THRESHOLD_SLOWDOWN:
        *temp = 90;
        return NVML_SUCCESS;
    case NVML_TEMPERATURE_THRESHOLD_GPU_MAX:
        *temp = 87;
        return NVML_SUCCESS;
    case NVML_TEMPERATURE_THRESHOLD_MEM_MAX:
        *temp = 95;
        return NVML_SUCCESS;
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *bar1Memory)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, bar1Memory);
    if (result != NVML_SUCCESS)
        return result;
    /* The next power of two that maps all memory. */
    unsigned long long total = FIRST_BAR1_BYTES;
    while (total < nvml_sim_device(device)->model.memory_bytes)
        total *= 2;
    *bar1Memory = (nvmlBAR1Memory_t){
        .bar1Total = total, .bar1Free = total - (1u << 20), .bar1Used = 1u << 20};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, mode);
    if (result == NVML_SUCCESS)
        *mode = NVML_COMPUTEMODE_DEFAULT;
    return result;
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    return get_state(__func__, device, NVML_FEATURE_ENABLED, mode);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *isActive)
{
    return get_state(__func__, device, NVML_FEATURE_DISABLED, isActive);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *display)
{
    return get_state(__func__, device, NVML_FEATURE_DISABLED, display);
}

nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t *defaultMode)
{
    return get_state(__func__, device, NVML_FEATURE_ENABLED, defaultMode);
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(
    nvmlDevice_t device, nvmlEnableState_t *isPending)
{
    return get_state(__func__, device, NVML_FEATURE_DISABLED, isPending);
}

nvmlReturn_t nvmlDeviceGetEccMode(
    nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, current);
    if (result == NVML_SUCCESS && pending == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *current = *pending = NVML_FEATURE_ENABLED;
    return result;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
    nvmlEccCounterType_t counterType, unsigned long long *eccCounts)
{
    (void)errorType;
    (void)counterType;
    return get_uint64(__func__, device, 0, eccCounts);
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
    nvmlEccCounterType_t counterType, nvmlMemoryLocation_t locationType, unsigned long long *count)
{
    (void)errorType;
    (void)counterType;
    (void)locationType;
    return get_uint64(__func__, device, 0, count);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrRows,
    unsigned int *uncRows, unsigned int *isPending, unsigned int *failureOccurred)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, corrRows);
    if (result == NVML_SUCCESS && (uncRows == NULL || isPending == NULL || failureOccurred == NULL))
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *corrRows = *uncRows = *isPending = *failureOccurred = 0;
    return result;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *currLinkGen)
{
    return get_uint(__func__, device, 5, currLinkGen);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *maxLinkGen)
{
    return get_uint(__func__, device, 5, maxLinkGen);
}

nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(
    nvmlDevice_t device, unsigned int *maxLinkGenDevice)
{
    return get_uint(__func__, device, 5, maxLinkGenDevice);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *currLinkWidth)
{
    return get_uint(__func__, device, 16, currLinkWidth);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *maxLinkWidth)
{
    return get_uint(__func__, device, 16, maxLinkWidth);
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *value)
{
    return get_uint(__func__, device, 0, value);
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(
    nvmlDevice_t device, nvmlPcieUtilCounter_t counter, unsigned int *value)
{
    (void)counter;
    return get_uint(__func__, device, 0, value);
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(
    nvmlDevice_t device, unsigned int *utilization, unsigned int *samplingPeriodUs)
{
    return get_pair(__func__, device, 0, SIM_SAMPLE_NS / 1000, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(
    nvmlDevice_t device, unsigned int *utilization, unsigned int *samplingPeriodUs)
{
    return get_pair(__func__, device, 0, SIM_SAMPLE_NS / 1000, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetJpgUtilization(
    nvmlDevice_t device, unsigned int *utilization, unsigned int *samplingPeriodUs)
{
    return get_pair(__func__, device, 0, SIM_SAMPLE_NS / 1000, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetOfaUtilization(
    nvmlDevice_t device, unsigned int *utilization, unsigned int *samplingPeriodUs)
{
    return get_pair(__func__, device, 0, SIM_SAMPLE_NS / 1000, utilization, samplingPeriodUs);
}

/* Fields known: their value, as an unsigned int. */
static bool field_value(unsigned index, unsigned field, unsigned *ret_value)
{
    switch (field) {
    case NVML_FI_DEV_ECC_CURRENT:
    case NVML_FI_DEV_ECC_PENDING:
        *ret_value = 1;
        return true;
    case NVML_FI_DEV_MEMORY_TEMP:
        *ret_value = celsius(index) + 10;
        return true;
    case NVML_FI_DEV_NVLINK_LINK_COUNT:
    case NVML_FI_DEV_RETIRED_PENDING_SBE:
    case NVML_FI_DEV_RETIRED_PENDING_DBE:
    case NVML_FI_DEV_REMAPPED_COR:
    case NVML_FI_DEV_REMAPPED_UNC:
    case NVML_FI_DEV_REMAPPED_PENDING:
    case NVML_FI_DEV_REMAPPED_FAILURE:
        *ret_value = 0;
        return true;
    case NVML_FI_DEV_POWER_AVERAGE:
    case NVML_FI_DEV_POWER_INSTANT:
        *ret_value = power_mw(index);
        return true;
    case NVML_FI_DEV_POWER_MIN_LIMIT:
        *ret_value = MIN_POWER_LIMIT_MW;
        return true;
    case NVML_FI_DEV_POWER_MAX_LIMIT:
    case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
    case NVML_FI_DEV_POWER_CURRENT_LIMIT:
    case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
        *ret_value = power_limit_mw(index);
        return true;
    default:
        return false;
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(
    nvmlDevice_t device, int valuesCount, nvmlFieldValue_t *values)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, values);
    if (result == NVML_SUCCESS && valuesCount <= 0)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result != NVML_SUCCESS)
        return result;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < valuesCount; i++) {
        nvmlFieldValue_t *value = &values[i];
        value->timestamp = (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
        value->latencyUsec = 0;
        value->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        memset(&value->value, 0, sizeof value->value);
        bool known = field_value(nvml_index(device), value->fieldId, &value->value.uiVal);
        value->nvmlReturn = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}
