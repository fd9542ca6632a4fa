/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated NVML: MIG mode, and the handles of a card's compute instances. What the functions
 * answer is the NVML API reference's. */
#include "sim/machine/mig.h"
#include "sim/nvml/nvml_sim.h"

static bool is_instance(nvmlDevice_t device)
{
    return nvml_sim_device(device)->model.mig_card != 0;
}

static bool is_in_mig_mode(nvmlDevice_t device)
{
    return nvml_sim_device(device)->instance_count > 0;
}

nvmlReturn_t nvmlDeviceGetMigMode(
    nvmlDevice_t device, unsigned int *currentMode, unsigned int *pendingMode)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, currentMode);
    if (result == NVML_SUCCESS && pendingMode == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *currentMode = *pendingMode =
            is_in_mig_mode(device) ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    return result;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, count);
    if (result == NVML_SUCCESS)
        *count = is_in_mig_mode(device) ? SIM_MIG_SLICES : 0;
    return result;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *isMigDevice)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, isMigDevice);
    if (result == NVML_SUCCESS)
        *isMigDevice = is_instance(device);
    return result;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(
    nvmlDevice_t device, unsigned int index, nvmlDevice_t *migDevice)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, migDevice);
    if (result != NVML_SUCCESS)
        return result;
    if (is_in_mig_mode(device) && index >= SIM_MIG_SLICES)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < sim_unit_count(); i++) {
        if (sim_device(i)->model.mig_card == nvml_index(device) + 1 && index-- == 0) {
            *migDevice = nvml_handle(i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    nvmlDevice_t migDevice, nvmlDevice_t *device)
{
    nvmlReturn_t result = nvml_enter_device(__func__, migDevice, device);
    if (result == NVML_SUCCESS && !is_instance(migDevice))
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *device = nvml_handle(nvml_sim_device(migDevice)->model.mig_card - 1);
    return result;
}

/* An instance's number among its card's, from 1 up: a GPU instance with one compute instance. */
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, id);
    if (result == NVML_SUCCESS && !is_instance(device))
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS)
        *id = nvml_sim_device(device)->gpu_instance;
    return result;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, id);
    if (result == NVML_SUCCESS && !is_instance(device))
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS)
        *id = 0;
    return result;
}
