/* SPDX-License-Identifier: Apache-2.0 */
/* Answers, for each pid on its input, the bytes that NVML gives for it on the first device; -1
 * where NVML does not list it; for 0, what is in use on the whole device. Runs outside the slice.
 */
#include "abi/nvml.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>

#define PROCESSES_MAX 512

static __typeof__(nvmlInit_v2) *init;
static __typeof__(nvmlDeviceGetHandleByIndex_v2) *device_by_index;
static __typeof__(nvmlDeviceGetComputeRunningProcesses_v3) *list;
static __typeof__(nvmlDeviceGetMemoryInfo) *memory;

int main(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    nvmlDevice_t device = NULL;
    if (library) {
        init = (__typeof__(init))dlsym(library, "nvmlInit_v2");
        device_by_index =
            (__typeof__(device_by_index))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
        list = (__typeof__(list))dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
    }
    if (library)
        memory = (__typeof__(memory))dlsym(library, "nvmlDeviceGetMemoryInfo");
    bool ready = init && device_by_index && list && memory && init() == NVML_SUCCESS &&
                 device_by_index(0, &device) == NVML_SUCCESS;
    for (int pid; scanf("%d", &pid) == 1;) {
        nvmlProcessInfo_t processes[PROCESSES_MAX];
        unsigned count = PROCESSES_MAX;
        long long bytes = -1;
        if (!ready || list(device, &count, processes) != NVML_SUCCESS)
            count = 0;
        for (unsigned i = 0; i < count; i++) {
            if ((int)processes[i].pid == pid)
                bytes = (long long)processes[i].usedGpuMemory;
        }
        nvmlMemory_t whole;
        if (!pid && ready && memory(device, &whole) == NVML_SUCCESS)
            bytes = (long long)whole.used;
        printf("%lld\n", bytes);
        fflush(stdout);
    }
    return 0;
}
