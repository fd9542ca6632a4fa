/* SPDX-License-Identifier: Apache-2.0 */
/* steps: a program with CUDA whose calls come in phases, each between two system calls that fail
 * and whose argument names it, so that who traces it can tell how much each phase takes (calls.py).
 */
#include "driver.h"

#include "abi/nvml.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMES 100
#define TOO_MUCH (200ull << 30)

static CUfunction kernel;
static nvmlDevice_t device;
static __typeof__(nvmlDeviceGetMemoryInfo) *nvml_memory;

static void must(bool condition)
{
    if (!condition)
        _exit(1);
}

static void mark(const char *name)
{
    (void)!write(-1, name, strlen(name));
}

static void linear(void)
{
    CUdeviceptr pointer;
    DRIVER_CALL(driver.cuMemAlloc_v2(&pointer, 4 << 20));
    DRIVER_CALL(driver.cuMemFree_v2(pointer));
}

static void small(void)
{
    CUdeviceptr pointer;
    DRIVER_CALL(driver.cuMemAlloc_v2(&pointer, 512));
    DRIVER_CALL(driver.cuMemFree_v2(pointer));
}

static void in_stream_order(void)
{
    CUdeviceptr pointer;
    DRIVER_CALL(driver.cuMemAllocAsync(&pointer, 4 << 20, NULL));
    DRIVER_CALL(driver.cuMemFreeAsync(pointer, NULL));
}

static void view(void)
{
    size_t free, total;
    DRIVER_CALL(driver.cuMemGetInfo_v2(&free, &total));
}

static void refused(void)
{
    CUdeviceptr pointer;
    must(driver.cuMemAlloc_v2(&pointer, TOO_MUCH) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void launch(void)
{
    uint64_t value = 0;
    void *parameters[] = {&value};
    DRIVER_CALL(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
}

static void synchronise(void)
{
    DRIVER_CALL(driver.cuCtxSynchronize());
}

static void look_by_nvml(void)
{
    nvmlMemory_t memory;
    must(nvml_memory(device, &memory) == NVML_SUCCESS);
}

static const struct phase {
    const char *name;
    void (*step)(void);
} phases[] = {{"linear", linear}, {"small", small}, {"async", in_stream_order}, {"view", view},
    {"refused", refused}, {"launch", launch}, {"synchronise", synchronise}, {"nvml", look_by_nvml}};

static void start_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    must(library != NULL);
    nvmlReturn_t (*init)(void) = (nvmlReturn_t(*)(void))dlsym(library, "nvmlInit_v2");
    __typeof__(nvmlDeviceGetHandleByIndex_v2) *handle =
        (__typeof__(handle))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    nvml_memory = (__typeof__(nvml_memory))dlsym(library, "nvmlDeviceGetMemoryInfo");
    must(init && handle && nvml_memory && init() == NVML_SUCCESS);
    must(handle(0, &device) == NVML_SUCCESS);
}

int main(void)
{
    CUcontext context;
    CUmodule module;
    if (!driver_load())
        return 77;
    start_nvml();
    DRIVER_CALL(driver.cuInit(0));
    DRIVER_CALL(driver.cuDevicePrimaryCtxRetain(&context, 0));
    DRIVER_CALL(driver.cuCtxSetCurrent(context));
    DRIVER_CALL(driver.cuModuleLoadData(&module, driver_ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&kernel, module, "nop"));
    for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
        phases[i].step();
        mark(phases[i].name);
        for (int n = 0; n < TIMES; n++)
            phases[i].step();
        mark("end");
    }
    return 0;
}
