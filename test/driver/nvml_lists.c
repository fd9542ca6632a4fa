/* SPDX-License-Identifier: Apache-2.0 */
/* nvml_lists [PROCESSES]: prints what NVML answers of the processes on the first device and of its
 * memory, natively: codes for missing arguments, counts, the pids, and how many bytes it writes for
 * each element, by a buffer of known bytes. Runs 2 processes that work on the device meanwhile (or
 * PROCESSES), in whose PID namespace it asks. Exit status 1 where an element has not the length
 * that src/abi/nvml_types.h says; 77 without a driver. */
#include "driver.h"

#include "abi/nvml.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define UNTOUCHED 0xA5
#define BUFFER_BYTES (1 << 20)
#define PROCESSES_MAX 16
#define KERNEL_NS 20000000ull
#define SAMPLES_SECONDS 2

static unsigned char buffer[BUFFER_BYTES] __attribute__((aligned(16)));
static void *library;
static nvmlDevice_t device;
static int wrong;

static void *find(const char *name)
{
    void *function = dlsym(library, name);
    if (!function)
        printf("%-46s not exported\n", name);
    return function;
}

#define FIND(name) __typeof__(name) *name##_ = (__typeof__(name) *)find(#name)

/* How many bytes of the buffer were written, as far as that can be seen. */
static size_t written(void)
{
    size_t bytes = BUFFER_BYTES;
    while (bytes && buffer[bytes - 1] == UNTOUCHED)
        bytes--;
    return bytes;
}

static void print_pids(unsigned count, size_t stride, size_t pid_offset)
{
    for (unsigned i = 0; i < count && i < 12; i++) {
        unsigned pid;
        memcpy(&pid, buffer + i * stride + pid_offset, sizeof(pid));
        printf(" %u", pid);
    }
    printf("\n");
}

typedef nvmlReturn_t list_function(nvmlDevice_t device, unsigned *count, void *elements);

/* A list with a count and an array. */
static void show_list(const char *name, size_t stride, size_t pid_offset)
{
    list_function *ask = (list_function *)find(name);
    if (!ask)
        return;
    unsigned zero = 0, room = 1000, one = 1;
    nvmlReturn_t asked = ask(device, &zero, NULL), missing = ask(device, NULL, buffer);
    memset(buffer, UNTOUCHED, sizeof(buffer));
    nvmlReturn_t got = ask(device, &room, buffer);
    size_t bytes = written();
    unsigned count = got == NVML_SUCCESS ? room : 0;
    size_t seen = count ? (bytes + count - 1) / count : 0;
    printf("%-46s count 0: %d (%u)  no count: %d  room 1000: %d (%u), %zu bytes, %zu each;", name,
        asked, zero, missing, got, room, bytes, seen);
    print_pids(count, stride, pid_offset);
    nvmlReturn_t less = ask(device, &one, buffer);
    printf("%-46s room 1: %d (%u)\n", "", less, one);
    if (count && seen != stride) {
        printf("%-46s WRONG: %zu bytes were expected\n", "", stride);
        wrong = 1;
    }
}

static const struct {
    const char *name;
    size_t stride, pid_offset;
} lists[] = {
    {"nvmlDeviceGetComputeRunningProcesses", sizeof(nvmlProcessInfo_v1_t), 0},
    {"nvmlDeviceGetComputeRunningProcesses_v2", sizeof(nvmlProcessInfo_v2_t), 0},
    {"nvmlDeviceGetComputeRunningProcesses_v3", 0, 0},
    {"nvmlDeviceGetGraphicsRunningProcesses", sizeof(nvmlProcessInfo_v1_t), 0},
    {"nvmlDeviceGetGraphicsRunningProcesses_v2", sizeof(nvmlProcessInfo_v2_t), 0},
    {"nvmlDeviceGetGraphicsRunningProcesses_v3", 0, 0},
    {"nvmlDeviceGetMPSComputeRunningProcesses", sizeof(nvmlProcessInfo_v1_t), 0},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v2", sizeof(nvmlProcessInfo_v2_t), 0},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v3", 0, 0},
    {"nvmlDeviceGetAccountingPids", sizeof(unsigned), 0},
    {"nvmlDeviceGetEncoderSessions", sizeof(nvmlEncoderSessionInfo_t),
        offsetof(nvmlEncoderSessionInfo_t, pid)},
    {"nvmlDeviceGetFBCSessions", sizeof(nvmlFBCSessionInfo_t), offsetof(nvmlFBCSessionInfo_t, pid)},
};
#define LISTS (sizeof(lists) / sizeof(lists[0]))

static void show_lists(void)
{
    bool is_long = dlsym(library, "nvmlDeviceGetConfComputeMemSizeInfo") &&
                   !dlsym(library, "nvmlDeviceGetRunningProcessDetailList");
    size_t third = is_long ? sizeof(nvmlProcessDetail_v1_t) : sizeof(nvmlProcessInfo_t);
    for (size_t i = 0; i < LISTS; i++)
        show_list(lists[i].name, lists[i].stride ? lists[i].stride : third, lists[i].pid_offset);
}

/* Last: a driver that does not look would end the program here. */
static void show_room_without_array(void)
{
    for (size_t i = 0; i < LISTS; i++) {
        list_function *ask = (list_function *)find(lists[i].name);
        unsigned count = 5;
        if (ask) {
            nvmlReturn_t got = ask(device, &count, NULL);
            printf("%-46s room 5 without an array: %d (%u)\n", lists[i].name, got, count);
        }
    }
}

static void show_details(void)
{
    FIND(nvmlDeviceGetRunningProcessDetailList);
    for (unsigned mode = 0; nvmlDeviceGetRunningProcessDetailList_ && mode < 4; mode++) {
        nvmlProcessDetailList_t list = {.version = nvmlProcessDetailList_v1, .mode = mode};
        nvmlProcessDetailList_t blind = list, other = list;
        blind.numProcArrayEntries = 5;
        other.version = 77;
        nvmlReturn_t asked = nvmlDeviceGetRunningProcessDetailList_(device, &list);
        unsigned there = list.numProcArrayEntries;
        list.numProcArrayEntries = 1000;
        list.procArray = (void *)buffer;
        memset(buffer, UNTOUCHED, sizeof(buffer));
        nvmlReturn_t got = nvmlDeviceGetRunningProcessDetailList_(device, &list);
        unsigned count = got == NVML_SUCCESS ? list.numProcArrayEntries : 0;
        printf("details, mode %u: count 0: %d (%u)  room 1000: %d (%u), %zu bytes; without an "
               "array: %d; another version: %d;",
            mode, asked, there, got, list.numProcArrayEntries, written(),
            nvmlDeviceGetRunningProcessDetailList_(device, &blind),
            nvmlDeviceGetRunningProcessDetailList_(device, &other));
        print_pids(count, sizeof(nvmlProcessDetail_v1_t), 0);
        for (unsigned i = 0; i < count; i++)
            printf("    protected memory of %u: %llu\n", list.procArray[i].pid,
                list.procArray[i].usedGpuCcProtectedMemory);
    }
}

static void show_utilisation(void)
{
    FIND(nvmlDeviceGetProcessUtilization);
    FIND(nvmlDeviceGetProcessesUtilizationInfo);
    if (nvmlDeviceGetProcessUtilization_) {
        unsigned zero = 0, room = 1000;
        nvmlReturn_t asked = nvmlDeviceGetProcessUtilization_(device, NULL, &zero, 0);
        memset(buffer, UNTOUCHED, sizeof(buffer));
        nvmlReturn_t got = nvmlDeviceGetProcessUtilization_(device, (void *)buffer, &room, 0);
        printf("utilisation: count 0: %d (%u)  room 1000: %d (%u), %zu bytes; pids:", asked, zero,
            got, room, written());
        print_pids(got == NVML_SUCCESS ? room : 0, sizeof(nvmlProcessUtilizationSample_t), 0);
    }
    if (nvmlDeviceGetProcessesUtilizationInfo_) {
        nvmlProcessesUtilizationInfo_t list = {.version = nvmlProcessesUtilizationInfo_v1};
        nvmlReturn_t asked = nvmlDeviceGetProcessesUtilizationInfo_(device, &list);
        unsigned there = list.processSamplesCount;
        list.processSamplesCount = 1000;
        list.procUtilArray = (void *)buffer;
        memset(buffer, UNTOUCHED, sizeof(buffer));
        nvmlReturn_t got = nvmlDeviceGetProcessesUtilizationInfo_(device, &list);
        printf("utilisation in one structure: count 0: %d (%u)  room 1000: %d (%u), %zu bytes; "
               "pids:",
            asked, there, got, list.processSamplesCount, written());
        print_pids(got == NVML_SUCCESS ? list.processSamplesCount : 0,
            sizeof(nvmlProcessUtilizationInfo_v1_t),
            offsetof(nvmlProcessUtilizationInfo_v1_t, pid));
    }
}

static void show_accounting(const pid_t *pids, int count)
{
    FIND(nvmlDeviceGetAccountingMode);
    FIND(nvmlDeviceGetAccountingBufferSize);
    FIND(nvmlDeviceGetAccountingStats);
    FIND(nvmlDeviceGetAccountingStats_v2);
    nvmlEnableState_t mode = NVML_FEATURE_DISABLED;
    unsigned size = 0;
    if (nvmlDeviceGetAccountingMode_ && nvmlDeviceGetAccountingBufferSize_) {
        nvmlReturn_t moded = nvmlDeviceGetAccountingMode_(device, &mode);
        nvmlReturn_t sized = nvmlDeviceGetAccountingBufferSize_(device, &size);
        printf("accounting mode: %d (%d), buffer: %d (%u)\n", moded, (int)mode, sized, size);
    }
    for (int i = 0; i < count; i++) {
        nvmlAccountingStats_t stats = {0};
        nvmlAccountingStats_v2_t second = {.pid = (unsigned)pids[i]};
        if (nvmlDeviceGetAccountingStats_) {
            nvmlReturn_t got = nvmlDeviceGetAccountingStats_(device, (unsigned)pids[i], &stats);
            printf("accounting of %d: %d, running %u, %llu bytes, start %llu, time %llu\n",
                (int)pids[i], got, stats.isRunning, stats.maxMemoryUsage, stats.startTime,
                stats.time);
        }
        if (nvmlDeviceGetAccountingStats_v2_)
            printf("    version 2: %d, running %u, %llu bytes\n",
                nvmlDeviceGetAccountingStats_v2_(device, &second), second.isRunning,
                second.maxMemoryUsage);
    }
}

static void show_memory(void)
{
    FIND(nvmlDeviceGetMemoryInfo);
    FIND(nvmlDeviceGetConfComputeMemSizeInfo);
    FIND(nvmlDeviceGetConfComputeProtectedMemoryUsage);
    FIND(nvmlDeviceGetBAR1MemoryInfo);
    FIND(nvmlDeviceGetAttributes_v2);
    nvmlMemory_t memory = {0}, guarded = {0};
    nvmlConfComputeMemSizeInfo_t sizes = {0};
    nvmlBAR1Memory_t bar1 = {0};
    nvmlDeviceAttributes_t attributes = {0};
    if (nvmlDeviceGetMemoryInfo_)
        printf("memory: %d", nvmlDeviceGetMemoryInfo_(device, &memory));
    printf(", total %llu, free %llu, used %llu\n", memory.total, memory.free, memory.used);
    if (nvmlDeviceGetConfComputeMemSizeInfo_)
        printf("sizes by protection: %d", nvmlDeviceGetConfComputeMemSizeInfo_(device, &sizes));
    printf(", protected %llu KiB, not %llu KiB\n", sizes.protectedMemSizeKib,
        sizes.unprotectedMemSizeKib);
    if (nvmlDeviceGetConfComputeProtectedMemoryUsage_)
        printf("protected memory: %d",
            nvmlDeviceGetConfComputeProtectedMemoryUsage_(device, &guarded));
    printf(", total %llu, free %llu, used %llu\n", guarded.total, guarded.free, guarded.used);
    if (nvmlDeviceGetBAR1MemoryInfo_)
        printf("BAR1: %d", nvmlDeviceGetBAR1MemoryInfo_(device, &bar1));
    printf(", total %llu, used %llu\n", bar1.bar1Total, bar1.bar1Used);
    if (nvmlDeviceGetAttributes_v2_)
        printf("attributes: %d", nvmlDeviceGetAttributes_v2_(device, &attributes));
    printf(", %llu MiB\n", attributes.memorySizeMB);
}

/* A process that keeps the device busy until the parent ends it. */
__attribute__((noreturn)) static void work(int tell)
{
    CUmodule module;
    CUfunction spin;
    unsigned long long duration = KERNEL_NS;
    void *params[] = {&duration};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!driver_load())
        _exit(77);
    (void)driver_enter();
    DRIVER_CALL(driver.cuModuleLoadData(&module, driver_spin_ptx));
    DRIVER_CALL(driver.cuModuleGetFunction(&spin, module, "spin"));
    for (bool told = false;; told = true) {
        DRIVER_CALL(driver.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        DRIVER_CALL(driver.cuCtxSynchronize());
        if (!told)
            (void)!write(tell, "x", 1);
    }
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 2, told = 0, pipes[2];
    pid_t pids[PROCESSES_MAX];
    char byte;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count < 1 || count > PROCESSES_MAX || pipe(pipes) != 0)
        return 2;
    for (int i = 0; i < count; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            work(pipes[1]);
    }
    close(pipes[1]);
    while (told < count && read(pipes[0], &byte, 1) == 1)
        told++;
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (told < count || !library) {
        printf("SKIP: no device to work on\n");
        return 77;
    }
    FIND(nvmlInit_v2);
    FIND(nvmlDeviceGetHandleByIndex_v2);
    FIND(nvmlSystemGetDriverVersion);
    char version[80] = "";
    if (!nvmlInit_v2_ || nvmlInit_v2_() != NVML_SUCCESS || !nvmlDeviceGetHandleByIndex_v2_ ||
        nvmlDeviceGetHandleByIndex_v2_(0, &device) != NVML_SUCCESS)
        return 77;
    if (nvmlSystemGetDriverVersion_)
        (void)nvmlSystemGetDriverVersion_(version, sizeof(version));
    char namespace[64] = "";
    (void)!readlink("/proc/self/ns/pid", namespace, sizeof(namespace) - 1);
    printf("driver %s, %s, the processes that work:", version, namespace);
    for (int i = 0; i < count; i++)
        printf(" %d", (int)pids[i]);
    printf("\n");
    sleep(SAMPLES_SECONDS); /* until there are samples of utilisation */
    show_lists();
    show_details();
    show_utilisation();
    show_accounting(pids, count);
    show_memory();
    show_room_without_array();
    for (int i = 0; i < count; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    show_accounting(pids, count);
    return wrong;
}
