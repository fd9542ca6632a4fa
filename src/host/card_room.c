/* SPDX-License-Identifier: Apache-2.0 */
#include "host/card_room.h"

#include "abi/nvml.h"

#include <dlfcn.h>
#include <stddef.h>

static struct {
    bool tried;
    __typeof__(nvmlDeviceGetHandleByUUID) *by_uuid;
    __typeof__(nvmlDeviceGetMemoryInfo) *memory;
} nvml;

static bool load_nvml(void)
{
    if (nvml.tried)
        return nvml.memory != NULL;
    nvml.tried = true;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    __typeof__(nvmlInit_v2) *init = NULL;
    if (library) {
        *(void **)&init = dlsym(library, "nvmlInit_v2");
        *(void **)&nvml.by_uuid = dlsym(library, "nvmlDeviceGetHandleByUUID");
    }
    if (init && nvml.by_uuid && init() == NVML_SUCCESS)
        *(void **)&nvml.memory = dlsym(library, "nvmlDeviceGetMemoryInfo");
    return nvml.memory != NULL;
}

bool card_free_bytes(const char *uuid, uint64_t *ret_bytes)
{
    nvmlDevice_t device;
    nvmlMemory_t memory;
    if (!load_nvml() || nvml.by_uuid(uuid, &device) != NVML_SUCCESS ||
        nvml.memory(device, &memory) != NVML_SUCCESS)
        return false;
    *ret_bytes = memory.free;
    return true;
}
