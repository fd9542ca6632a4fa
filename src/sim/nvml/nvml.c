/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated NVML: init and shutdown, the system's questions, and handles. */
#include "sim/nvml/nvml_sim.h"

#include "abi/rm.h"
#include "sim/nvml/nvml_fault.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct nvmlDevice_st {
    unsigned index;
};

static struct nvmlDevice_st handles[SIM_DEVICES_MAX];
static pthread_mutex_t init_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned init_count;
static int descriptor = -1;

/* The library has a client of its own, with each device and subdevice, as the real one has. */
static nvmlReturn_t alloc(uint32_t client, uint32_t parent, uint32_t class_id, void *params,
    uint32_t params_size, uint32_t *ret_object)
{
    struct rm_alloc64 call = {.client = client,
        .parent = parent,
        .class_id = class_id,
        .params = (uint64_t)(uintptr_t)params,
        .params_size = params_size};
    if (sim_rm_ioctl(descriptor, RM_IOCTL_ALLOC64, &call) != 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (call.status == RM_ERR_INSUFFICIENT_PERMISSIONS)
        return NVML_ERROR_NO_PERMISSION;
    if (call.status != RM_OK)
        return NVML_ERROR_UNKNOWN;
    *ret_object = call.object;
    return NVML_SUCCESS;
}

static nvmlReturn_t open_devices(void)
{
    struct rm_client_params client_params = {0};
    uint32_t client;
    nvmlReturn_t result =
        alloc(0, 0, RM_CLASS_CLIENT, &client_params, sizeof client_params, &client);
    for (unsigned i = 0; result == NVML_SUCCESS && i < sim_device_count(); i++) {
        struct rm_device_params device_params = {.device_id = i};
        struct rm_subdevice_params subdevice_params = {0};
        uint32_t device, subdevice;
        result =
            alloc(client, client, RM_CLASS_DEVICE, &device_params, sizeof device_params, &device);
        if (result == NVML_SUCCESS)
            result = alloc(client, device, RM_CLASS_SUBDEVICE, &subdevice_params,
                sizeof subdevice_params, &subdevice);
    }
    return result;
}

static nvmlReturn_t start(void)
{
    if (sim_attach() != 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    descriptor = sim_rm_open();
    if (descriptor < 0)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    nvmlReturn_t result = open_devices();
    if (result != NVML_SUCCESS) {
        close(descriptor);
        descriptor = -1;
        return result;
    }
    for (unsigned i = 0; i < SIM_DEVICES_MAX; i++)
        handles[i].index = i;
    return NVML_SUCCESS;
}

static nvmlReturn_t init(const char *function)
{
    uint32_t code;
    if (sim_fail(function, &code))
        return (nvmlReturn_t)code;
    pthread_mutex_lock(&init_mutex);
    nvmlReturn_t result = atomic_load(&init_count) > 0 ? NVML_SUCCESS : start();
    if (result == NVML_SUCCESS)
        atomic_fetch_add(&init_count, 1);
    pthread_mutex_unlock(&init_mutex);
    return result;
}

nvmlReturn_t nvmlInit(void)
{
    return init(__func__);
}

nvmlReturn_t nvmlInit_v2(void)
{
    return init(__func__);
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return init(__func__);
}

nvmlReturn_t nvmlShutdown(void)
{
    uint32_t code;
    if (sim_fail(__func__, &code))
        return (nvmlReturn_t)code;
    nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;
    pthread_mutex_lock(&init_mutex);
    if (atomic_load(&init_count) > 0) {
        result = NVML_SUCCESS;
        if (atomic_fetch_sub(&init_count, 1) == 1) {
            close(descriptor);
            descriptor = -1;
        }
    }
    pthread_mutex_unlock(&init_mutex);
    return result;
}

nvmlReturn_t nvml_enter(const char *function)
{
    uint32_t code;
    if (sim_fail(function, &code))
        return (nvmlReturn_t)code;
    return atomic_load(&init_count) > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

/* An instance is lost with its card. */
static bool is_lost(unsigned index)
{
    const struct sim_model *model = &sim_device(index)->model;
    return nvml_fault_is_lost(model->mig_card ? (unsigned)model->mig_card - 1 : index);
}

nvmlReturn_t nvml_enter_device(const char *function, nvmlDevice_t device, const void *output)
{
    nvmlReturn_t result = nvml_enter(function);
    if (result != NVML_SUCCESS)
        return result;
    uintptr_t offset = (uintptr_t)device - (uintptr_t)handles;
    bool known = offset < sim_unit_count() * sizeof handles[0] && offset % sizeof handles[0] == 0;
    if (!known || output == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    return is_lost(device->index) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

unsigned nvml_index(nvmlDevice_t device)
{
    return device->index;
}

const struct sim_device *nvml_sim_device(nvmlDevice_t device)
{
    return sim_device(device->index);
}

nvmlDevice_t nvml_handle(unsigned index)
{
    return &handles[index];
}

nvmlReturn_t nvml_copy_text(const char *text, char *buffer, unsigned length)
{
    size_t needed = strlen(text) + 1;
    if (needed > length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(buffer, text, needed);
    return NVML_SUCCESS;
}

static nvmlReturn_t get_count(const char *function, unsigned int *count)
{
    nvmlReturn_t result = nvml_enter(function);
    if (result == NVML_SUCCESS && count == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *count = sim_device_count();
    return result;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *deviceCount)
{
    return get_count(__func__, deviceCount);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount)
{
    return get_count(__func__, deviceCount);
}

static nvmlReturn_t get_handle_by_index(
    const char *function, unsigned int index, nvmlDevice_t *device)
{
    nvmlReturn_t result = nvml_enter(function);
    if (result == NVML_SUCCESS && (device == NULL || index >= sim_device_count()))
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS && is_lost(index))
        result = NVML_ERROR_GPU_IS_LOST;
    if (result == NVML_SUCCESS)
        *device = nvml_handle(index);
    return result;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return get_handle_by_index(__func__, index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    return get_handle_by_index(__func__, index, device);
}

static nvmlReturn_t get_handle_by_pci(
    const char *function, const char *pciBusId, nvmlDevice_t *device)
{
    nvmlReturn_t result = nvml_enter(function);
    if (result != NVML_SUCCESS)
        return result;
    unsigned domain = 0, bus, slot;
    if (pciBusId == NULL || device == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        if (sscanf(pciBusId, "%x:%x", &bus, &slot) != 2)
            return NVML_ERROR_INVALID_ARGUMENT;
    }
    for (unsigned i = 0; i < sim_device_count(); i++) {
        const struct sim_device *known = sim_device(i);
        if (known->pci_domain == domain && known->pci_bus == bus && known->pci_device == slot) {
            *device = nvml_handle(i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device)
{
    return get_handle_by_pci(__func__, pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device)
{
    return get_handle_by_pci(__func__, pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    nvmlReturn_t result = nvml_enter(__func__);
    if (result == NVML_SUCCESS && (uuid == NULL || device == NULL))
        result = NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; result == NVML_SUCCESS && i < sim_unit_count(); i++) {
        if (strcasecmp(uuid, sim_device(i)->uuid) == 0) {
            *device = nvml_handle(i);
            return NVML_SUCCESS;
        }
    }
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    nvmlReturn_t result = nvml_enter(__func__);
    if (result == NVML_SUCCESS && version == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    return result == NVML_SUCCESS ? nvml_copy_text(sim_driver_version(), version, length) : result;
}

/* "13.580.159.04": CUDA's major version and the driver's. */
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    char text[NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE];
    nvmlReturn_t result = nvml_enter(__func__);
    if (result == NVML_SUCCESS && version == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result != NVML_SUCCESS)
        return result;
    snprintf(text, sizeof text, "%u.%s", sim_cuda_version() / 1000, sim_driver_version());
    return nvml_copy_text(text, version, length);
}

static nvmlReturn_t get_cuda_version(const char *function, int *cudaDriverVersion)
{
    nvmlReturn_t result = nvml_enter(function);
    if (result == NVML_SUCCESS && cudaDriverVersion == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *cudaDriverVersion = (int)sim_cuda_version();
    return result;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *cudaDriverVersion)
{
    return get_cuda_version(__func__, cudaDriverVersion);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *cudaDriverVersion)
{
    return get_cuda_version(__func__, cudaDriverVersion);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    nvmlReturn_t result = nvml_enter(__func__);
    if (result != NVML_SUCCESS)
        return result;
    if (name == NULL || length == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (sim_description()->nvml_pid == SIM_NVML_PID_HOST && pid > SIM_NVML_PID_HOST_SHIFT)
        pid -= SIM_NVML_PID_HOST_SHIFT;
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    size_t got = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
    if (file != NULL)
        fclose(file);
    if (got == 0)
        return NVML_ERROR_NOT_FOUND;
    text[got] = '\0';
    snprintf(name, length, "%s", text); /* cut short, as the real one does */
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlUnitGetCount(unsigned int *unitCount)
{
    nvmlReturn_t result = nvml_enter(__func__);
    if (result == NVML_SUCCESS && unitCount == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *unitCount = 0;
    return result;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const texts[] = {
        [NVML_SUCCESS] = "Success",
        [NVML_ERROR_UNINITIALIZED] = "Uninitialized",
        [NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
        [NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
        [NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
        [NVML_ERROR_ALREADY_INITIALIZED] = "Already Initialized",
        [NVML_ERROR_NOT_FOUND] = "Not Found",
        [NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
        [NVML_ERROR_DRIVER_NOT_LOADED] = "Driver Not Loaded",
        [NVML_ERROR_TIMEOUT] = "Timeout",
        [NVML_ERROR_LIBRARY_NOT_FOUND] = "Shared Library Not Found",
        [NVML_ERROR_FUNCTION_NOT_FOUND] = "Function Not Found",
        [NVML_ERROR_GPU_IS_LOST] = "GPU is lost",
        [NVML_ERROR_MEMORY] = "Insufficient Memory",
        [NVML_ERROR_INSUFFICIENT_RESOURCES] = "Insufficient Resources",
        [NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "Argument Version Mismatch",
    };
    unsigned index = (unsigned)result;
    bool known = index < sizeof texts / sizeof texts[0] && texts[index] != NULL;
    return known ? texts[index] : "Unknown Error";
}
