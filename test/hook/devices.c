/* SPDX-License-Identifier: Apache-2.0 */
/* Several devices: a limit belongs to a UUID, whatever numbers a program sees it under. */
#include "abi/nvml.h"
#include "allocate.h"
#include "bed.h"
#include "sim/machine/machine.h"

#define TWO "2xh200"
#define LIMITS                                                                                     \
    {                                                                                              \
        "CUDA_DEVICE_MEMORY_LIMIT_0=1g", "CUDA_DEVICE_MEMORY_LIMIT_1=2g"                           \
    }

static uint64_t cuda_total(int ordinal)
{
    size_t bytes = 0;
    CHECK_EQ(CU(cuDeviceTotalMem_v2)(&bytes, ordinal), CUDA_SUCCESS);
    return bytes;
}

static uint64_t nvml_total(unsigned index)
{
    nvmlDevice_t device;
    nvmlMemory_t memory = {0};
    CHECK_EQ(ML(nvmlInit_v2)(), NVML_SUCCESS);
    CHECK_EQ(ML(nvmlDeviceGetHandleByIndex_v2)(index, &device), NVML_SUCCESS);
    CHECK_EQ(ML(nvmlDeviceGetMemoryInfo)(device, &memory), NVML_SUCCESS);
    return memory.total;
}

static void check_ordinals(const uint64_t *totals, int count)
{
    int found = 0;
    CUdeviceptr pointer;
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDeviceGetCount)(&found), CUDA_SUCCESS);
    CHECK_EQ(found, count);
    for (int i = 0; i < count; i++) {
        CHECK_EQ(cuda_total(i), totals[i] * GIB);
        bed_context(i);
        CHECK_EQ(
            CU(cuMemAlloc_v2)(&pointer, totals[i] * GIB - 256 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, totals[i] * GIB - 600 * MIB), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    }
    CHECK_EQ(nvml_total(0), GIB);
    CHECK_EQ(nvml_total(1), 2 * GIB);
}

BED_TEST("each device has the limit of its number", .sim = TWO, .environment = LIMITS)
{
    check_ordinals((const uint64_t[]){1, 2}, 2);
}

static void permuted(void *argument)
{
    (void)argument;
    setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    check_ordinals((const uint64_t[]){2, 1}, 2);
}

static void subset(void *argument)
{
    (void)argument;
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    check_ordinals((const uint64_t[]){2}, 1);
}

static void uuid_of(unsigned index, char uuid[96])
{
    REQUIRE(sim_attach() == 0 && sim_device(index) != NULL);
    snprintf(uuid, 96, "%s", sim_device(index)->uuid);
}

static void by_uuid(void *argument)
{
    char uuid[96];
    (void)argument;
    uuid_of(1, uuid);
    setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
    check_ordinals((const uint64_t[]){2}, 1);
}

static void by_short_uuid(void *argument)
{
    char uuid[96];
    (void)argument;
    uuid_of(1, uuid);
    uuid[12] = '\0';
    setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
    check_ordinals((const uint64_t[]){2}, 1);
}

BED_TEST("CUDA_VISIBLE_DEVICES moves ordinals, not limits, nor NVML's numbers", .sim = TWO,
    .environment = LIMITS)
{
    CHECK(bed_ended_well(bed_fork(permuted, NULL)));
    CHECK(bed_ended_well(bed_fork(subset, NULL)));
    CHECK(bed_ended_well(bed_fork(by_uuid, NULL)));
    CHECK(bed_ended_well(bed_fork(by_short_uuid, NULL)));
}

BED_TEST("NVML first, then CUDA with a permutation", .sim = TWO, .environment = LIMITS)
{
    CHECK_EQ(nvml_total(1), 2 * GIB);
    setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(cuda_total(0), 2 * GIB);
    CHECK_EQ(cuda_total(1), GIB);
}

/* The container's list says which device is its first. */
static void listed(void *argument)
{
    char first[96], second[96], list[200];
    uuid_of(0, first);
    uuid_of(1, second);
    snprintf(list, sizeof(list), "%s,%s", second, first);
    setenv(argument, list, 1);
    CHECK_EQ(nvml_total(0), 2 * GIB);
    CHECK_EQ(nvml_total(1), GIB);
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(cuda_total(0), 2 * GIB);
    CHECK_EQ(cuda_total(1), GIB);
}

static void listed_by_number(void *argument)
{
    (void)argument;
    setenv("NVIDIA_VISIBLE_DEVICES", "1,0", 1);
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(cuda_total(0), 2 * GIB);
    CHECK_EQ(cuda_total(1), GIB);
    CHECK_EQ(nvml_total(0), 2 * GIB);
}

BED_TEST("limits count in the container's device list: by UUID", .sim = TWO, .environment = LIMITS)
{
    CHECK(bed_ended_well(bed_fork(listed, "NVIDIA_VISIBLE_DEVICES")));
}

BED_TEST("limits count in the container's device list: by HAMi's variable", .sim = TWO,
    .environment = LIMITS)
{
    CHECK(bed_ended_well(bed_fork(listed, "GPU_DEVICES_UUID")));
}

BED_TEST(
    "limits count in the container's device list: by number", .sim = TWO, .environment = LIMITS)
{
    CHECK(bed_ended_well(bed_fork(listed_by_number, NULL)));
}

/* A program that sees the second card alone: it is under the second limit, as without a list. */
static void second_alone(void *list)
{
    setenv("NVIDIA_VISIBLE_DEVICES", list, 1);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    if (cuda_total(0) != 2 * GIB)
        CHECK_STR(list, "a list that names no device");
    bed_context(0);
    CUdeviceptr pointer;
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_ERROR_OUT_OF_MEMORY);
}

BED_TEST("a list that names no device moves no limit", .sim = TWO, .environment = LIMITS)
{
    static char *const lists[] = {"void", "none", "all", "ALL", " ", ",", ",,", " , ", "\"all\"",
        "'0,1'", "\"1,0\"", "/var/run/nvidia-container-devices",
        "/var/run/nvidia-container-devices/1,/var/run/nvidia-container-devices/0",
        "nvidia.com/gpu=all", "nvidia.com/gpu=1", "nvidia.com/gpu=1,nvidia.com/gpu=0",
        "runtime.nvidia.com/gpu=0,runtime.nvidia.com/gpu=1", "nvidia.com/mig=1:0",
        "k8s.device-plugin.nvidia.com/gpu=GPU-00000000-0000-0000-0000-000000000000",
        "management.nvidia.com/gpu=all,example.com/fpga=1", "GPU-", "gpu", "G", "MIG-", "0:1",
        "1:0,0:0", "7", "7,9", "-1", "1.0", "0x1", "99999999999999999999", "1-0", "1;0",
        "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f,MIG-ab",
        "MIG-GPU-00000000-0000-0000-0000-000000000000/1/0",
        "GPU-00000000-0000-0000-0000-000000000000"};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        CHECK(bed_ended_well(bed_fork(second_alone, lists[i])));
}

static void long_list(void *unused)
{
    static char list[100001];
    (void)unused;
    memset(list, 'x', sizeof(list) - 1);
    for (size_t i = 7; i < sizeof(list) - 1; i += 8)
        list[i] = ',';
    second_alone(list);
}

BED_TEST("a very long list that names no device moves no limit", .sim = TWO, .environment = LIMITS)
{
    CHECK(bed_ended_well(bed_fork(long_list, NULL)));
}

static void next_list(void *argument)
{
    (void)argument;
    setenv("GPU_DEVICES_UUID", "/var/run/nvidia-container-devices", 1);
    setenv("NVIDIA_VISIBLE_DEVICES", "1,0", 1);
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(cuda_total(0), 2 * GIB);
    CHECK_EQ(cuda_total(1), GIB);
}

BED_TEST("a list that names no device leaves the word to the next variable's", .sim = TWO,
    .environment = LIMITS)
{
    CHECK(bed_ended_well(bed_fork(next_list, NULL)));
}

/* The second card met first: the list gives the first limit to the other one. */
static void mixed(void *list)
{
    setenv("NVIDIA_VISIBLE_DEVICES", list, 1);
    setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(cuda_total(0), 2 * GIB);
    CHECK_EQ(cuda_total(1), GIB);
}

BED_TEST("a device that the list does not name takes a place that names no other", .sim = TWO,
    .environment = LIMITS)
{
    CHECK(bed_ended_well(bed_fork(mixed, "0")));
    CHECK(bed_ended_well(bed_fork(mixed, "0,nvidia.com/gpu=1")));
    CHECK(bed_ended_well(bed_fork(mixed, "MIG-ab,1")));
}

BED_TEST("one value is every device's", .sim = "3xh200", .limit = "3g")
{
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(cuda_total(i), 3 * GIB);
}

BED_TEST("a device of its own value beside the common one", .sim = "3xh200", .limit = "3g",
    .environment = {"CUDA_DEVICE_MEMORY_LIMIT_1=1g", "CUDA_DEVICE_MEMORY_LIMIT_2=0"})
{
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(cuda_total(0), 3 * GIB);
    CHECK_EQ(cuda_total(1), GIB);
    CHECK(cuda_total(2) > 100 * GIB);
}

BED_TEST("memory on another device than the current one is charged there", .sim = TWO,
    .environment = LIMITS)
{
    CUmemAllocationProp property = allocation_property(1);
    CUmemGenericAllocationHandle handle;
    bed_context(0);
    const struct vgpu_slot *slot = bed_region_slot(getpid());
    REQUIRE(slot != NULL);
    uint64_t first = slot->usage[0].bytes, card = bed_card_bytes(1);
    CHECK_EQ(CU(cuMemCreate)(&handle, 4 * GIB, &property, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemCreate)(&handle, GIB + 256 * MIB, &property, 0), CUDA_SUCCESS);
    CHECK_EQ(slot->usage[0].bytes, first);
    CHECK_EQ(slot->usage[1].bytes, bed_card_bytes(1));
    CHECK(bed_card_bytes(1) >= card + GIB + 256 * MIB);
    CHECK_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
    CHECK_EQ(slot->usage[1].bytes, bed_card_bytes(1));
}

BED_TEST("a free under another device's context is given back where it was charged", .sim = TWO,
    .environment = LIMITS)
{
    CUdeviceptr pointer;
    bed_context(0);
    const struct vgpu_slot *slot = bed_region_slot(getpid());
    REQUIRE(slot != NULL);
    uint64_t before = slot->usage[0].bytes;
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 256 * MIB), CUDA_SUCCESS);
    bed_context(1);
    uint64_t second = slot->usage[1].bytes;
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    CHECK_EQ(slot->usage[0].bytes, before);
    CHECK_EQ(slot->usage[1].bytes, second);
}

BED_TEST("a pool of another device counts there", .sim = TWO, .environment = LIMITS)
{
    CUmemoryPool pool;
    CUdeviceptr pointer;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    bed_context(0);
    bed_context(1);
    bed_context(0);
    const struct vgpu_slot *slot = bed_region_slot(getpid());
    REQUIRE(slot != NULL);
    uint64_t first = slot->usage[0].bytes, second = slot->usage[1].bytes;
    CHECK_EQ(CU(cuMemPoolCreate)(&pool, &props), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAllocFromPoolAsync)(&pointer, GIB, pool, NULL), CUDA_SUCCESS);
    CHECK_EQ(slot->usage[0].bytes, first);
    CHECK(slot->usage[1].bytes >= second + GIB);
}

BED_TEST("sixteen devices have sixteen limits", .sim = "16xa100", .limit = "9g",
    .environment = {"CUDA_DEVICE_MEMORY_LIMIT_0=1g", "CUDA_DEVICE_MEMORY_LIMIT_10=2g",
        "CUDA_DEVICE_MEMORY_LIMIT_15=3g"})
{
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(cuda_total(0), GIB);
    CHECK_EQ(cuda_total(1), 9 * GIB);
    CHECK_EQ(cuda_total(10), 2 * GIB);
    CHECK_EQ(cuda_total(15), 3 * GIB);
    CHECK_EQ(nvml_total(15), 3 * GIB);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
