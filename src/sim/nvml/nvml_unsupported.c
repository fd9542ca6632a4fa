/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated NVML: what the pretend device does not have answers NVML_ERROR_NOT_SUPPORTED. */
#include "sim/nvml/nvml_sim.h"

/* The parameters are the prototype's; none is looked at but the device. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

static nvmlReturn_t refuse(const char *function, nvmlDevice_t device)
{
    nvmlReturn_t result = nvml_enter_device(function, device, function);
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : result;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
    nvmlEccCounterType_t counterType, nvmlEccErrorCounts_t *eccCounts)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetDriverModel(
    nvmlDevice_t device, nvmlDriverModel_t *current, nvmlDriverModel_t *pending)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *speed)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *speed)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *gpuFabricInfo)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *gpuFabricInfo)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetGpuOperationMode(
    nvmlDevice_t device, nvmlGpuOperationMode_t *current, nvmlGpuOperationMode_t *pending)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetInforomImageVersion(
    nvmlDevice_t device, char *version, unsigned int length)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetInforomVersion(
    nvmlDevice_t device, nvmlInforomObject_t object, char *version, unsigned int length)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int *numFans)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link,
    nvmlNvLinkCapability_t capability, unsigned int *capResult)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(
    nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(
    nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetNvLinkState(
    nvmlDevice_t device, unsigned int link, nvmlEnableState_t *isActive)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(
    nvmlDevice_t device, unsigned int link, unsigned int *version)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause,
    unsigned int *pageCount, unsigned long long *addresses)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause,
    unsigned int *pageCount, unsigned long long *addresses, unsigned long long *timestamps)
{
    return refuse(__func__, device);
}

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(
    nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *values)
{
    return refuse(__func__, device);
}
