/* SPDX-License-Identifier: Apache-2.0 */
/* What nvidia-smi shows of the devices, by NVML alone: memory, utilisation, processes. NVML is
 * opened at run time, so that no toolkit is needed to build it. */
#include "abi/nvml.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB(bytes) ((bytes) >> 20)
#define PROCESSES_SPARE 16 /* that may start between the count and the list */

/* The functions that it calls. */
#define FUNCTIONS(ROW)                                                                             \
    ROW(nvmlInit_v2)                                                                               \
    ROW(nvmlShutdown)                                                                              \
    ROW(nvmlErrorString)                                                                           \
    ROW(nvmlSystemGetDriverVersion)                                                                \
    ROW(nvmlSystemGetCudaDriverVersion)                                                            \
    ROW(nvmlDeviceGetCount_v2)                                                                     \
    ROW(nvmlDeviceGetHandleByIndex_v2)                                                             \
    ROW(nvmlDeviceGetName)                                                                         \
    ROW(nvmlDeviceGetUUID)                                                                         \
    ROW(nvmlDeviceGetMemoryInfo)                                                                   \
    ROW(nvmlDeviceGetUtilizationRates)                                                             \
    ROW(nvmlDeviceGetComputeRunningProcesses_v3)

static struct {
#define ROW(name) __typeof__(name) *name;
    FUNCTIONS(ROW)
#undef ROW
} nvml;

static void *find(void *library, const char *name)
{
    void *function = dlsym(library, name);
    /* Drivers before 510 lack it; _v2 fills the same structure. */
    if (!function && !strcmp(name, "nvmlDeviceGetComputeRunningProcesses_v3"))
        function = dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v2");
    if (!function)
        fprintf(stderr, "vgpu-example-smi: this driver has no %s\n", name);
    return function;
}

static bool load(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "vgpu-example-smi: %s\n", dlerror());
        return false;
    }
#define ROW(name)                                                                                  \
    nvml.name = (__typeof__(name) *)find(library, #name);                                          \
    found = found && nvml.name;
    bool found = true;
    FUNCTIONS(ROW)
#undef ROW
    return found;
}

/* Says what failed; true where nothing did. */
static bool succeeded(const char *call, nvmlReturn_t result)
{
    if (result != NVML_SUCCESS)
        fprintf(stderr, "vgpu-example-smi: %s: %s\n", call, nvml.nvmlErrorString(result));
    return result == NVML_SUCCESS;
}

static bool print_device(unsigned index)
{
    nvmlDevice_t device;
    nvmlMemory_t memory;
    nvmlUtilization_t utilization;
    char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE] = "?", uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "?";
    char busy[16] = "-";
    if (!succeeded(
            "nvmlDeviceGetHandleByIndex_v2", nvml.nvmlDeviceGetHandleByIndex_v2(index, &device)) ||
        !succeeded("nvmlDeviceGetMemoryInfo", nvml.nvmlDeviceGetMemoryInfo(device, &memory)))
        return false;
    nvml.nvmlDeviceGetName(device, name, sizeof(name));
    nvml.nvmlDeviceGetUUID(device, uuid, sizeof(uuid));
    if (nvml.nvmlDeviceGetUtilizationRates(device, &utilization) == NVML_SUCCESS)
        snprintf(busy, sizeof(busy), "%u %%", utilization.gpu);
    printf("%3u  %-24s %-13.12s %7lluMiB / %6lluMiB  %11s\n", index, name, uuid, MIB(memory.used),
        MIB(memory.total), busy);
    return true;
}

/* "-" where this pid namespace has no such process. */
static void read_name(unsigned pid, char *name, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%u/comm", pid);
    snprintf(name, size, "-");
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fgets(name, (int)size, file))
        name[strcspn(name, "\n")] = '\0';
    fclose(file);
}

static nvmlReturn_t list_processes(
    nvmlDevice_t device, nvmlProcessInfo_t **ret_processes, unsigned *ret_count)
{
    unsigned count = 0;
    nvmlReturn_t result = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL);
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
        return result;
    count += PROCESSES_SPARE;
    nvmlProcessInfo_t *processes = calloc(count, sizeof(*processes));
    if (!processes)
        return NVML_ERROR_MEMORY;
    result = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes);
    if (result != NVML_SUCCESS) {
        free(processes);
        return result;
    }
    *ret_processes = processes;
    *ret_count = count;
    return NVML_SUCCESS;
}

static bool print_processes(unsigned index)
{
    nvmlDevice_t device;
    nvmlProcessInfo_t *processes;
    unsigned count;
    if (!succeeded(
            "nvmlDeviceGetHandleByIndex_v2", nvml.nvmlDeviceGetHandleByIndex_v2(index, &device)) ||
        !succeeded(
            "nvmlDeviceGetComputeRunningProcesses", list_processes(device, &processes, &count)))
        return false;
    for (unsigned i = 0; i < count; i++) {
        char name[32], used[32] = "-";
        unsigned long long bytes = processes[i].usedGpuMemory;
        read_name(processes[i].pid, name, sizeof(name));
        if (bytes != (unsigned long long)NVML_VALUE_NOT_AVAILABLE)
            snprintf(used, sizeof(used), "%lluMiB", MIB(bytes));
        printf("%3u  pid %-9u %-24s %10s\n", index, processes[i].pid, name, used);
    }
    if (!count)
        printf("%3u  no process\n", index);
    free(processes);
    return true;
}

int main(void)
{
    char driver[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE] = "?";
    int cuda = 0;
    unsigned count;
    if (!load() || !succeeded("nvmlInit_v2", nvml.nvmlInit_v2()))
        return EXIT_FAILURE;
    if (!succeeded("nvmlDeviceGetCount_v2", nvml.nvmlDeviceGetCount_v2(&count)))
        return EXIT_FAILURE;
    nvml.nvmlSystemGetDriverVersion(driver, sizeof(driver));
    nvml.nvmlSystemGetCudaDriverVersion(&cuda);
    printf("driver %s   CUDA %d.%d\n", driver, cuda / 1000, cuda % 1000 / 10);
    printf("GPU  %-24s %-13s %22s  %11s\n", "name", "UUID", "memory used / total", "utilisation");
    bool done = true;
    for (unsigned i = 0; i < count; i++)
        done = print_device(i) && done;
    for (unsigned i = 0; i < count; i++)
        done = print_processes(i) && done;
    nvml.nvmlShutdown();
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
