/* SPDX-License-Identifier: Apache-2.0 */
/* slice: prints what the slice looks like to a program, one line a device: the memory that CUDA and
 * NVML tell of, and what a context and an allocation of 1 MiB and of 64 MiB answer. Exit status
 * 7, so that who passes it through can be told from who makes one up. */
#define _GNU_SOURCE
#include "driver.h"

#include "abi/nvml.h"

#include <dlfcn.h>
#include <stdio.h>

#define MIB 1048576.0
#define EXIT_SLICE 7

static __typeof__(nvmlInit_v2) *nvml_init;
static __typeof__(nvmlDeviceGetHandleByIndex_v2) *nvml_handle;
static __typeof__(nvmlDeviceGetMemoryInfo) *nvml_memory;

static bool load_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library)
        return false;
    nvml_init = (__typeof__(nvml_init))dlsym(library, "nvmlInit_v2");
    nvml_handle = (__typeof__(nvml_handle))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    nvml_memory = (__typeof__(nvml_memory))dlsym(library, "nvmlDeviceGetMemoryInfo");
    return nvml_init && nvml_handle && nvml_memory && nvml_init() == NVML_SUCCESS;
}

static void print_device(int device)
{
    size_t total = 0, context_free = 0, context_total = 0;
    nvmlDevice_t handle;
    nvmlMemory_t memory = {0};
    CUcontext context;
    CUdeviceptr small = 0, large = 0;
    CUresult small_result = CUDA_ERROR_INVALID_CONTEXT, large_result = CUDA_ERROR_INVALID_CONTEXT;
    DRIVER_CALL(driver.cuDeviceTotalMem_v2(&total, device));
    if (nvml_handle((unsigned)device, &handle) == NVML_SUCCESS)
        nvml_memory(handle, &memory);
    CUresult retained = driver.cuDevicePrimaryCtxRetain(&context, device);
    if (retained == CUDA_SUCCESS) {
        driver.cuCtxSetCurrent(context);
        driver.cuMemGetInfo_v2(&context_free, &context_total);
        small_result = driver.cuMemAlloc_v2(&small, 1 << 20);
        large_result = driver.cuMemAlloc_v2(&large, 64 << 20);
    }
    printf("%d total %.0f nvml %.0f free %.0f context %d free %.0f small %d large %d\n", device,
        (double)total / MIB, (double)memory.total / MIB, (double)memory.free / MIB, (int)retained,
        (double)context_free / MIB, (int)small_result, (int)large_result);
}

int main(void)
{
    int count = 0;
    if (!driver_load())
        return 77;
    DRIVER_CALL(driver.cuInit(0));
    if (!load_nvml())
        return 1;
    DRIVER_CALL(driver.cuDeviceGetCount(&count));
    for (int device = 0; device < count; device++)
        print_device(device);
    return EXIT_SLICE;
}
