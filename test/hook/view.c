/* SPDX-License-Identifier: Apache-2.0 */
/* What a program is told: one view, by CUDA and by NVML. */
#include "abi/nvml.h"
#include "allocate.h"
#include "bed.h"
#include "sim/machine/machine.h"

#define LIMIT "2GiB"
#define LIMIT_BYTES (2 * GIB)
#define ROOM 64

struct view {
    uint64_t device_total, total, free;        /* CUDA */
    uint64_t nvml_total, nvml_used, nvml_free; /* NVML, first form */
};

static nvmlDevice_t nvml_device(unsigned index)
{
    nvmlDevice_t device = NULL;
    REQUIRE(ML(nvmlInit_v2)() == NVML_SUCCESS);
    REQUIRE(ML(nvmlDeviceGetHandleByIndex_v2)(index, &device) == NVML_SUCCESS);
    return device;
}

/* All forms agree with each other. */
static struct view look(void)
{
    size_t device_total, free, total, same;
    nvmlMemory_t first;
    nvmlMemory_v2_t second = {.version = nvmlMemory_v2};
    CHECK_EQ(CU(cuDeviceTotalMem_v2)(&device_total, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&same, &total), CUDA_SUCCESS);
    CHECK_EQ(free, same);
    CHECK_EQ(ML(nvmlDeviceGetMemoryInfo)(nvml_device(0), &first), NVML_SUCCESS);
    CHECK_EQ(ML(nvmlDeviceGetMemoryInfo_v2)(nvml_device(0), &second), NVML_SUCCESS);
    CHECK_EQ(second.version, nvmlMemory_v2);
    CHECK_EQ(first.total, second.total);
    CHECK_EQ(first.free, second.free);
    CHECK_EQ(first.used, second.used + second.reserved);
    return (struct view){device_total, total, free, first.total, first.used, first.free};
}

static void check_slice(const struct view *view, uint64_t total)
{
    CHECK_EQ(view->device_total, total);
    CHECK_EQ(view->total, total);
    CHECK_EQ(view->nvml_total, total);
    CHECK_EQ(view->nvml_free, view->free);
    CHECK_EQ(view->nvml_used, bed_region_bytes(0));
}

BED_TEST("total is the limit, used the container's bytes, free the rest", .limit = LIMIT)
{
    CUdeviceptr pointer;
    bed_context(0);
    struct view before = look();
    check_slice(&before, LIMIT_BYTES);
    CHECK_EQ(before.free, LIMIT_BYTES - allocation_charged());
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 500 * MIB), CUDA_SUCCESS);
    struct view after = look();
    check_slice(&after, LIMIT_BYTES);
    CHECK_EQ(after.free, before.free - 500 * MIB);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    struct view end = look();
    CHECK_EQ(end.free, before.free);
}

BED_TEST("a missing argument is the driver's to judge", .limit = LIMIT)
{
    size_t bytes = 4711, total = 4711;
    bed_context(0);
    /* Either may be missing, or both (seen on an H200, driver 580.159.04). */
    CHECK_EQ(CU(cuMemGetInfo_v2)(NULL, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemGetInfo_v2)(NULL, &total), CUDA_SUCCESS);
    CHECK_EQ(total, LIMIT_BYTES);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&bytes, NULL), CUDA_SUCCESS);
    CHECK_EQ(bytes, LIMIT_BYTES - allocation_charged());
    bytes = 4711;
    CHECK_EQ(CU(cuDeviceTotalMem_v2)(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(CU(cuDeviceTotalMem_v2)(&bytes, 17), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(bytes, 4711);
    CHECK_EQ(ML(nvmlDeviceGetMemoryInfo)(nvml_device(0), NULL), NVML_ERROR_INVALID_ARGUMENT);
    CHECK_EQ(ML(nvmlDeviceGetMemoryInfo_v2)(nvml_device(0), NULL), NVML_ERROR_INVALID_ARGUMENT);
    nvmlMemory_v2_t wrong = {.version = 3};
    CHECK(ML(nvmlDeviceGetMemoryInfo_v2)(nvml_device(0), &wrong) != NVML_SUCCESS);
    CHECK_EQ(wrong.version, 3);
}

BED_TEST("the 32-bit form is cut to what it holds", .limit = "8GiB")
{
    unsigned total;
    bed_context(0);
    CHECK_EQ(CU(cuDeviceTotalMem)(&total, 0), CUDA_SUCCESS);
    CHECK_EQ(total, UINT32_MAX);
}

BED_TEST("the 32-bit form tells the slice where it fits", .limit = LIMIT)
{
    unsigned total, free;
    bed_context(0);
    CHECK_EQ(CU(cuDeviceTotalMem)(&total, 0), CUDA_SUCCESS);
    CHECK_EQ(total, LIMIT_BYTES);
    /* This one knows no context of a 64-bit process (H200, driver 580.159.04). */
    CHECK_EQ(CU(cuMemGetInfo)(&free, &total), CUDA_ERROR_INVALID_CONTEXT);
}

BED_TEST("with more used than a lowered limit, free is 0", .limit = LIMIT)
{
    CUdeviceptr pointer;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_SUCCESS);
    REQUIRE(bed_region() != NULL);
    bed_region()->devices[0].memory_limit = GIB;
    struct view view = look();
    CHECK_EQ(view.total, GIB);
    CHECK_EQ(view.free, 0);
    CHECK_EQ(view.nvml_free, 0);
    CUdeviceptr other;
    CHECK_EQ(CU(cuMemAlloc_v2)(&other, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&other, 2 * MIB), CUDA_SUCCESS);
}

BED_TEST("a raised limit holds at once", .limit = LIMIT)
{
    CUdeviceptr pointer;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 2 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    bed_region()->devices[0].memory_limit = 4 * GIB;
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 2 * GIB), CUDA_SUCCESS);
    struct view view = look();
    check_slice(&view, 4 * GIB);
}

/* Of another container, or of none: the machine is the same. */
static void be_a_stranger(const char *limit)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/other-region", bed_directory());
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    if (limit)
        setenv("CUDA_DEVICE_MEMORY_LIMIT", limit, 1);
    else
        unsetenv("CUDA_DEVICE_MEMORY_LIMIT");
}

struct stranger {
    uint64_t bytes;
    const char *limit;
    int pipes[2]; /* it tells when it holds its memory */
};

static void hold(void *argument)
{
    struct stranger *stranger = argument;
    CUdeviceptr pointer;
    if (stranger->limit)
        be_a_stranger(strcmp(stranger->limit, "none") ? stranger->limit : NULL);
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, stranger->bytes), CUDA_SUCCESS);
    (void)!write(stranger->pipes[1], "x", 1);
    for (;;)
        pause();
}

static pid_t start_holder(struct stranger *stranger)
{
    char told;
    REQUIRE(pipe(stranger->pipes) == 0);
    pid_t pid = bed_fork(hold, stranger);
    close(stranger->pipes[1]);
    REQUIRE(read(stranger->pipes[0], &told, 1) == 1);
    return pid;
}

static void end_holder(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

BED_TEST("free is never more than the card has", .limit = "3GiB", .sim = "memory=4GiB")
{
    pid_t stranger = start_holder(&(struct stranger){.bytes = 2 * GIB, .limit = "none"});
    bed_context(0);
    struct view view = look();
    CHECK_EQ(view.total, 3 * GIB);
    CHECK(view.free < 2 * GIB);
    CHECK_EQ(view.free, bed_card_free(0));
    CUdeviceptr pointer;
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 2 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    end_holder(stranger);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 2 * GIB), CUDA_SUCCESS);
}

BED_TEST("a limit beyond the card is the card", .limit = "1t")
{
    bed_context(0);
    size_t free, total;
    struct sim_usage usage;
    REQUIRE(sim_attach() == 0);
    sim_device_usage(0, &usage);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
    CHECK_EQ(total, usage.total_bytes - usage.reserved_bytes);
    CHECK(free <= usage.free_bytes);
    CHECK(free + GIB > usage.free_bytes);
}

BED_TEST("without a limit the figures are the card's")
{
    pid_t stranger = start_holder(&(struct stranger){.bytes = GIB, .limit = "none"});
    struct sim_usage usage;
    size_t free, total;
    nvmlMemory_t first;
    unsigned count = ROOM;
    nvmlProcessInfo_t list[ROOM];
    bed_context(0);
    REQUIRE(sim_attach() == 0);
    sim_device_usage(0, &usage);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
    CHECK_EQ(total, usage.total_bytes - usage.reserved_bytes);
    CHECK_EQ(free, usage.free_bytes);
    CHECK_EQ(ML(nvmlDeviceGetMemoryInfo)(nvml_device(0), &first), NVML_SUCCESS);
    CHECK_EQ(first.total, usage.total_bytes);
    CHECK_EQ(
        ML(nvmlDeviceGetComputeRunningProcesses_v3)(nvml_device(0), &count, list), NVML_SUCCESS);
    CHECK_EQ(count, 2);
    end_holder(stranger);
}

static int place_of(const nvmlProcessInfo_t *list, unsigned count, pid_t pid)
{
    for (unsigned i = 0; i < count; i++) {
        if ((pid_t)list[i].pid == pid)
            return (int)i;
    }
    return -1;
}

BED_TEST("the process list names the container's processes with their bytes, and no others",
    .limit = "8GiB")
{
    nvmlProcessInfo_t list[ROOM];
    unsigned count = ROOM;
    pid_t own = start_holder(&(struct stranger){.bytes = GIB});
    pid_t other = start_holder(&(struct stranger){.bytes = GIB, .limit = "4GiB"});
    bed_context(0);
    CHECK_EQ(
        ML(nvmlDeviceGetComputeRunningProcesses_v3)(nvml_device(0), &count, list), NVML_SUCCESS);
    CHECK_EQ(count, 2);
    int mine = place_of(list, count, getpid()), child = place_of(list, count, own);
    REQUIRE(mine >= 0 && child >= 0);
    CHECK_EQ(place_of(list, count, other), -1);
    CHECK_EQ(list[mine].usedGpuMemory, allocation_charged());
    CHECK_EQ(list[child].usedGpuMemory, bed_region_slot(own)->usage[0].bytes);
    CHECK_EQ(list[mine].gpuInstanceId, 0xFFFFFFFFu);
    end_holder(own);
    count = ROOM;
    CHECK_EQ(
        ML(nvmlDeviceGetComputeRunningProcesses_v3)(nvml_device(0), &count, list), NVML_SUCCESS);
    CHECK_EQ(count, 1);
    end_holder(other);
}

BED_TEST("the detailed list and the utilisation name no others either", .limit = "8GiB")
{
    nvmlProcessDetail_v1_t details[ROOM];
    nvmlProcessDetailList_t list = {
        .version = nvmlProcessDetailList_v1, .numProcArrayEntries = ROOM, .procArray = details};
    nvmlProcessUtilizationSample_t samples[128];
    unsigned count = 128;
    pid_t own = start_holder(&(struct stranger){.bytes = GIB});
    pid_t other = start_holder(&(struct stranger){.bytes = GIB, .limit = "4GiB"});
    bed_context(0);
    CHECK_EQ(ML(nvmlDeviceGetRunningProcessDetailList)(nvml_device(0), &list), NVML_SUCCESS);
    CHECK_EQ(list.numProcArrayEntries, 2);
    for (unsigned i = 0; i < list.numProcArrayEntries; i++)
        CHECK(details[i].pid == (unsigned)own || details[i].pid == (unsigned)getpid());
    list.numProcArrayEntries = 1;
    CHECK_EQ(ML(nvmlDeviceGetRunningProcessDetailList)(nvml_device(0), &list),
        NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQ(list.numProcArrayEntries, 2);
    nvmlReturn_t result = ML(nvmlDeviceGetProcessUtilization)(nvml_device(0), samples, &count, 0);
    for (unsigned i = 0; result == NVML_SUCCESS && i < count; i++)
        CHECK(samples[i].pid != (unsigned)other);
    end_holder(own);
    end_holder(other);
}

BED_TEST("every list of a device whose limit cannot be kept is empty", .limit = LIMIT,
    .environment = {"CUDA_DEVICE_MEMORY_SHARED_CACHE=/proc/self/nowhere/region"})
{
    nvmlProcessInfo_t plain[ROOM];
    nvmlProcessDetail_v1_t details[ROOM];
    nvmlProcessDetailList_t list = {
        .version = nvmlProcessDetailList_v1, .numProcArrayEntries = ROOM, .procArray = details};
    unsigned count = ROOM;
    pid_t other = start_holder(&(struct stranger){.bytes = GIB, .limit = "none"});
    CHECK_EQ(
        ML(nvmlDeviceGetComputeRunningProcesses_v3)(nvml_device(0), &count, plain), NVML_SUCCESS);
    CHECK_EQ(count, 0);
    CHECK_EQ(ML(nvmlDeviceGetRunningProcessDetailList)(nvml_device(0), &list), NVML_SUCCESS);
    CHECK_EQ(list.numProcArrayEntries, 0);
    end_holder(other);
}

BED_TEST("too small a list is told how many there are", .limit = "8GiB")
{
    nvmlProcessInfo_t list[ROOM];
    nvmlProcessInfo_v1_t first[ROOM];
    nvmlProcessInfo_v2_t second[ROOM];
    unsigned count = 0;
    pid_t own = start_holder(&(struct stranger){.bytes = GIB});
    bed_context(0);
    nvmlDevice_t device = nvml_device(0);
    CHECK_EQ(ML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, NULL),
        NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQ(count, 2);
    count = 1;
    CHECK_EQ(ML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, list),
        NVML_ERROR_INSUFFICIENT_SIZE);
    CHECK_EQ(count, 2);
    CHECK_EQ(ML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, list), NVML_SUCCESS);
    CHECK_EQ(count, 2);
    count = ROOM;
    CHECK_EQ(ML(nvmlDeviceGetComputeRunningProcesses_v2)(device, &count, second), NVML_SUCCESS);
    CHECK_EQ(count, 2);
    count = ROOM;
    CHECK_EQ(ML(nvmlDeviceGetComputeRunningProcesses)(device, &count, first), NVML_SUCCESS);
    CHECK_EQ(count, 2);
    CHECK_EQ(first[0].pid, second[0].pid);
    CHECK_EQ(first[1].usedGpuMemory, second[1].usedGpuMemory);
    count = ROOM;
    CHECK_EQ(ML(nvmlDeviceGetGraphicsRunningProcesses_v3)(device, &count, list), NVML_SUCCESS);
    CHECK_EQ(count, 0);
    CHECK_EQ(ML(nvmlDeviceGetComputeRunningProcesses_v3)(device, NULL, list),
        NVML_ERROR_INVALID_ARGUMENT);
    end_holder(own);
}

BED_TEST("processes are listed where NVML knows none, or by other pids", .limit = "8GiB",
    .sim = "nvml-pid=none")
{
    nvmlProcessInfo_t list[ROOM];
    unsigned count = ROOM;
    bed_context(0);
    CHECK_EQ(
        ML(nvmlDeviceGetComputeRunningProcesses_v3)(nvml_device(0), &count, list), NVML_SUCCESS);
    CHECK_EQ(count, 1);
    CHECK_EQ(list[0].pid, getpid());
}

BED_TEST("NVML alone shows the slice", .limit = LIMIT)
{
    nvmlMemory_t memory;
    unsigned count = ROOM;
    nvmlProcessInfo_t list[ROOM];
    CHECK_EQ(ML(nvmlDeviceGetMemoryInfo)(nvml_device(0), &memory), NVML_SUCCESS);
    CHECK_EQ(memory.total, LIMIT_BYTES);
    CHECK_EQ(memory.used, 0);
    CHECK_EQ(memory.free, LIMIT_BYTES);
    CHECK_EQ(
        ML(nvmlDeviceGetComputeRunningProcesses_v3)(nvml_device(0), &count, list), NVML_SUCCESS);
    CHECK_EQ(count, 0);
}

BED_TEST("NVML before its init answers so", .limit = LIMIT)
{
    nvmlMemory_t memory;
    nvmlDevice_t device = NULL;
    unsigned count = 0;
    CHECK_EQ(ML(nvmlDeviceGetMemoryInfo)(device, &memory), NVML_ERROR_UNINITIALIZED);
    CHECK_EQ(ML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, NULL),
        NVML_ERROR_UNINITIALIZED);
    CHECK_EQ(ML(nvmlDeviceGetHandleByIndex_v2)(0, &device), NVML_ERROR_UNINITIALIZED);
}

BED_TEST("utilisation stays the card's", .limit = LIMIT)
{
    nvmlUtilization_t rates = {77, 77};
    CHECK_EQ(ML(nvmlDeviceGetUtilizationRates)(nvml_device(0), &rates), NVML_SUCCESS);
    CHECK_EQ(rates.gpu, 0);
}

BED_TEST("managed memory is used memory, but no process's on the card", .limit = LIMIT)
{
    uint64_t handle;
    nvmlProcessInfo_t list[ROOM];
    unsigned count = ROOM;
    bed_context(0);
    uint64_t before = allocation_charged();
    CHECK_EQ(allocation_kinds[2].make(256 * MIB, &handle), CUDA_SUCCESS);
    struct view view = look();
    CHECK_EQ(view.nvml_used, before + 256 * MIB);
    CHECK_EQ(
        ML(nvmlDeviceGetComputeRunningProcesses_v3)(nvml_device(0), &count, list), NVML_SUCCESS);
    CHECK_EQ(count, 1);
    CHECK_EQ(list[0].usedGpuMemory, before);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
