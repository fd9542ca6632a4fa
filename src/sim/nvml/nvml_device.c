/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated NVML: what a device is: names, numbers, places, neighbours. */
#include "sim/nvml/nvml_sim.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static nvmlReturn_t get_text(
    const char *function, nvmlDevice_t device, const char *text, char *buffer, unsigned int length)
{
    nvmlReturn_t result = nvml_enter_device(function, device, buffer);
    return result == NVML_SUCCESS ? nvml_copy_text(text, buffer, length) : result;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, name);
    if (result != NVML_SUCCESS)
        return result;
    return nvml_copy_text(nvml_sim_device(device)->model.name, name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, uuid);
    if (result != NVML_SUCCESS)
        return result;
    return nvml_copy_text(nvml_sim_device(device)->uuid, uuid, length);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    char text[NVML_DEVICE_SERIAL_BUFFER_SIZE];
    nvmlReturn_t result = nvml_enter_device(__func__, device, serial);
    if (result != NVML_SUCCESS)
        return result;
    snprintf(text, sizeof text, "16500000000%02u", nvml_index(device));
    return nvml_copy_text(text, serial, length);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    nvmlReturn_t result = nvml_enter(__func__);
    if (result != NVML_SUCCESS)
        return result;
    if (serial == NULL || device == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned index;
    char text[NVML_DEVICE_SERIAL_BUFFER_SIZE];
    if (sscanf(serial, "16500000000%2u", &index) != 1 || index >= sim_device_count())
        return NVML_ERROR_NOT_FOUND;
    snprintf(text, sizeof text, "16500000000%02u", index);
    if (strcmp(text, serial) != 0)
        return NVML_ERROR_NOT_FOUND;
    *device = nvml_handle(index);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
    return get_text(__func__, device, "96.00.00.00.00", version, length);
}

nvmlReturn_t nvmlDeviceGetBoardPartNumber(
    nvmlDevice_t device, char *partNumber, unsigned int length)
{
    return get_text(__func__, device, "000-00000-0000-000", partNumber, length);
}

nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version)
{
    return get_text(
        __func__, device, sim_driver_version(), version, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE);
}

nvmlReturn_t nvmlDeviceGetGspFirmwareMode(
    nvmlDevice_t device, unsigned int *isEnabled, unsigned int *defaultMode)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, isEnabled);
    if (result == NVML_SUCCESS && defaultMode == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *isEnabled = *defaultMode = 1;
    return result;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, index);
    if (result == NVML_SUCCESS)
        *index = nvml_index(device);
    return result;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minorNumber)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, minorNumber);
    if (result == NVML_SUCCESS)
        *minorNumber = nvml_sim_device(device)->minor;
    return result;
}

nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned int *moduleId)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, moduleId);
    if (result == NVML_SUCCESS)
        *moduleId = nvml_index(device) + 1;
    return result;
}

nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *boardId)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, boardId);
    if (result == NVML_SUCCESS)
        *boardId = nvml_sim_device(device)->pci_bus << 8;
    return result;
}

/* The older entry points write less of the structure: see abi/nvml_types.h. */
static nvmlReturn_t get_pci_info(
    const char *function, nvmlDevice_t device, nvmlPciInfo_t *pci, size_t length)
{
    nvmlReturn_t result = nvml_enter_device(function, device, pci);
    if (result != NVML_SUCCESS)
        return result;
    const struct sim_device *known = nvml_sim_device(device);
    nvmlPciInfo_t info = {.domain = known->pci_domain,
        .bus = known->pci_bus,
        .device = known->pci_device,
        .pciDeviceId = known->model.pci_device_id,
        .pciSubSystemId = known->model.pci_device_id};
    memcpy(info.busIdLegacy, known->pci_bus_id, sizeof info.busIdLegacy);
    snprintf(info.busId, sizeof info.busId, "0000%s", known->pci_bus_id);
    memcpy(pci, &info, length);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return get_pci_info(__func__, device, pci, offsetof(nvmlPciInfo_t, pciSubSystemId));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return get_pci_info(__func__, device, pci, offsetof(nvmlPciInfo_t, busId));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return get_pci_info(__func__, device, pci, sizeof *pci);
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *type)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, type);
    if (result == NVML_SUCCESS)
        *type = NVML_BRAND_NVIDIA;
    return result;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, arch);
    if (result == NVML_SUCCESS)
        *arch = nvml_sim_device(device)->model.architecture;
    return result;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, major);
    if (result == NVML_SUCCESS && minor == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS) {
        *major = (int)nvml_sim_device(device)->model.compute_major;
        *minor = (int)nvml_sim_device(device)->model.compute_minor;
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *numCores)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, numCores);
    if (result == NVML_SUCCESS) {
        const struct sim_model *model = &nvml_sim_device(device)->model;
        *numCores = model->multiprocessors * (model->compute_major >= 9 ? 128 : 64);
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *busWidth)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, busWidth);
    if (result == NVML_SUCCESS)
        *busWidth = nvml_sim_device(device)->model.memory_bus_bits;
    return result;
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *multiGpuBool)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, multiGpuBool);
    if (result == NVML_SUCCESS)
        *multiGpuBool = 0;
    return result;
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(
    nvmlDevice_t device, nvmlGpuVirtualizationMode_t *pVirtualMode)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, pVirtualMode);
    if (result == NVML_SUCCESS)
        *pVirtualMode = sim_description()->vgpu_guest ? NVML_GPU_VIRTUALIZATION_MODE_VGPU
                                                      : NVML_GPU_VIRTUALIZATION_MODE_NONE;
    return result;
}

/* All devices hang off one host bridge, on NUMA node 0, next to every CPU. */

static nvmlReturn_t enter_pair(
    const char *function, nvmlDevice_t device1, nvmlDevice_t device2, const void *output)
{
    nvmlReturn_t result = nvml_enter_device(function, device1, output);
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned i = 0; i < sim_device_count(); i++) {
        if (device2 == nvml_handle(i))
            return NVML_SUCCESS;
    }
    return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2, int *onSameBoard)
{
    nvmlReturn_t result = enter_pair(__func__, device1, device2, onSameBoard);
    if (result == NVML_SUCCESS)
        *onSameBoard = device1 == device2;
    return result;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(
    nvmlDevice_t device1, nvmlDevice_t device2, nvmlGpuTopologyLevel_t *pathInfo)
{
    nvmlReturn_t result = enter_pair(__func__, device1, device2, pathInfo);
    if (result == NVML_SUCCESS)
        *pathInfo = device1 == device2 ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_HOSTBRIDGE;
    return result;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2,
    nvmlGpuP2PCapsIndex_t p2pIndex, nvmlGpuP2PStatus_t *p2pStatus)
{
    nvmlReturn_t result = enter_pair(__func__, device1, device2, p2pStatus);
    if (result == NVML_SUCCESS)
        *p2pStatus = p2pIndex == NVML_P2P_CAPS_INDEX_NVLINK ? NVML_P2P_STATUS_NOT_SUPPORTED
                                                            : NVML_P2P_STATUS_OK;
    return result;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
    unsigned int *count, nvmlDevice_t *deviceArray)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, count);
    if (result != NVML_SUCCESS)
        return result;
    unsigned found = level == NVML_TOPOLOGY_HOSTBRIDGE ? sim_device_count() - 1 : 0;
    if (deviceArray != NULL && *count < found)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0, at = 0; deviceArray != NULL && at < found; i++) {
        if (i != nvml_index(device))
            deviceArray[at++] = nvml_handle(i);
    }
    *count = found;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(
    unsigned int cpuNumber, unsigned int *count, nvmlDevice_t *deviceArray)
{
    nvmlReturn_t result = nvml_enter(__func__);
    (void)cpuNumber;
    if (result == NVML_SUCCESS && count == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS && deviceArray != NULL && *count < sim_device_count())
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    if (result != NVML_SUCCESS)
        return result;
    *count = sim_device_count();
    for (unsigned i = 0; deviceArray != NULL && i < *count; i++)
        deviceArray[i] = nvml_handle(i);
    return NVML_SUCCESS;
}

static nvmlReturn_t get_bits(const char *function, nvmlDevice_t device, unsigned int words,
    unsigned long *set, unsigned long bits)
{
    nvmlReturn_t result = nvml_enter_device(function, device, set);
    if (result == NVML_SUCCESS && words == 0)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result != NVML_SUCCESS)
        return result;
    const unsigned long word_bits = 8 * sizeof *set;
    for (unsigned i = 0; i < words; i++, bits -= bits < word_bits ? bits : word_bits)
        set[i] = bits >= word_bits ? ~0ul : (1ul << bits) - 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(
    nvmlDevice_t device, unsigned int cpuSetSize, unsigned long *cpuSet)
{
    return get_bits(
        __func__, device, cpuSetSize, cpuSet, (unsigned long)sysconf(_SC_NPROCESSORS_CONF));
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(
    nvmlDevice_t device, unsigned int cpuSetSize, unsigned long *cpuSet, nvmlAffinityScope_t scope)
{
    (void)scope;
    return get_bits(
        __func__, device, cpuSetSize, cpuSet, (unsigned long)sysconf(_SC_NPROCESSORS_CONF));
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int nodeSetSize,
    unsigned long *nodeSet, nvmlAffinityScope_t scope)
{
    (void)scope;
    return get_bits(__func__, device, nodeSetSize, nodeSet, 1);
}

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
    nvmlReturn_t result = nvml_enter_device(__func__, device, node);
    if (result == NVML_SUCCESS)
        *node = 0;
    return result;
}
