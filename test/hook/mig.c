/* SPDX-License-Identifier: Apache-2.0 */
/* A card in MIG mode: a limit belongs to a compute instance, whichever way a program sees it: by
 * CUDA, whose first cuDeviceGetUuid names the card, by NVML, whose instance handles name instances
 * and whose other handles name cards, and by the resource manager, which knows the card's UUID. */
#include "abi/nvml.h"
#include "allocate.h"
#include "bed.h"
#include "sim/machine/machine.h"

#include <string.h>

#define TWO_INSTANCES "a100,mig=1g.10gb+2g.20gb"
#define LIMITS                                                                                     \
    {                                                                                              \
        "CUDA_DEVICE_MEMORY_LIMIT_0=2g", "CUDA_DEVICE_MEMORY_LIMIT_1=4g"                           \
    }

static nvmlDevice_t card_handle(unsigned index)
{
    nvmlDevice_t card = NULL;
    CHECK_EQ(ML(nvmlInit_v2)(), NVML_SUCCESS);
    CHECK_EQ(ML(nvmlDeviceGetHandleByIndex_v2)(index, &card), NVML_SUCCESS);
    return card;
}

static nvmlDevice_t instance_handle(unsigned index)
{
    nvmlDevice_t instance = NULL;
    CHECK_EQ(
        ML(nvmlDeviceGetMigDeviceHandleByIndex)(card_handle(0), index, &instance), NVML_SUCCESS);
    return instance;
}

static void instance_uuid(unsigned index, char uuid[96])
{
    CHECK_EQ(ML(nvmlDeviceGetUUID)(instance_handle(index), uuid, 96), NVML_SUCCESS);
}

static nvmlMemory_t nvml_memory(nvmlDevice_t device)
{
    nvmlMemory_t memory = {0};
    CHECK_EQ(ML(nvmlDeviceGetMemoryInfo)(device, &memory), NVML_SUCCESS);
    return memory;
}

static uint64_t cuda_total(void)
{
    size_t bytes = 0;
    CHECK_EQ(CU(cuDeviceTotalMem_v2)(&bytes, 0), CUDA_SUCCESS);
    return bytes;
}

static void check_limit(uint64_t limit)
{
    CUdeviceptr pointer;
    size_t free = 0, total = 0;
    bed_context(0);
    CHECK_EQ(cuda_total(), limit);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, limit), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, limit - GIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
    CHECK_EQ(total, limit);
    CHECK(free < GIB);
}

BED_TEST("CUDA and NVML name an instance by two UUIDs, of the card and of its own",
    .sim = TWO_INSTANCES, .native = true)
{
    CUuuid first, second;
    char card[96], instance[96];
    unsigned value = 0, pending = 0;
    nvmlDevice_t handle = NULL;
    int count = 0;
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDeviceGetCount)(&count), CUDA_SUCCESS);
    CHECK_EQ(count, 1);
    CHECK_EQ(CU(cuDeviceGetUuid)(&first, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDeviceGetUuid_v2)(&second, 0), CUDA_SUCCESS);
    CHECK(memcmp(&first, &second, sizeof(first)) != 0);
    CHECK_EQ(cuda_total(), 10 * GIB);
    CHECK_EQ(nvml_memory(instance_handle(0)).total, 10 * GIB);
    CHECK_EQ(nvml_memory(instance_handle(1)).total, 20 * GIB);
    CHECK_EQ(nvml_memory(card_handle(0)).total, 40960 * MIB);
    CHECK_EQ(ML(nvmlDeviceGetUUID)(card_handle(0), card, sizeof(card)), NVML_SUCCESS);
    instance_uuid(0, instance);
    CHECK(!strncmp(card, "GPU-", 4) && !strncmp(instance, "MIG-", 4));
    CHECK_EQ(ML(nvmlDeviceGetMigMode)(card_handle(0), &value, &pending), NVML_SUCCESS);
    CHECK_EQ(value, NVML_DEVICE_MIG_ENABLE);
    CHECK_EQ(ML(nvmlDeviceGetMaxMigDeviceCount)(card_handle(0), &value), NVML_SUCCESS);
    CHECK_EQ(value, 7);
    CHECK_EQ(
        ML(nvmlDeviceGetMigDeviceHandleByIndex)(card_handle(0), 2, &handle), NVML_ERROR_NOT_FOUND);
    CHECK_EQ(ML(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)(instance_handle(1), &handle),
        NVML_SUCCESS);
    CHECK(handle == card_handle(0));
    CHECK_EQ(ML(nvmlDeviceIsMigDeviceHandle)(instance_handle(1), &value), NVML_SUCCESS);
    CHECK_EQ(value, 1);
}

static void second_natively(void *visible)
{
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(cuda_total(), 20 * GIB);
}

BED_TEST(
    "CUDA_VISIBLE_DEVICES names the instance that CUDA sees", .sim = TWO_INSTANCES, .native = true)
{
    char uuid[96], old[96];
    REQUIRE(sim_attach() == 0);
    snprintf(uuid, sizeof(uuid), "%s", sim_device(2)->uuid);
    snprintf(old, sizeof(old), "MIG-%s/2/0", sim_device(0)->uuid);
    CHECK(bed_ended_well(bed_fork(second_natively, uuid)));
    CHECK(bed_ended_well(bed_fork(second_natively, old)));
}

/* Memory that CUDA takes on the instance is in the view of each handle that stands for it. */
static void check_one_device(uint64_t limit, unsigned instance)
{
    check_limit(limit);
    nvmlMemory_t own = nvml_memory(instance_handle(instance)), card = nvml_memory(card_handle(0));
    CHECK_EQ(own.total, limit);
    CHECK(own.used > limit - GIB);
    CHECK_EQ(card.total, limit);
    CHECK_EQ(card.used, own.used);
    const struct vgpu_region *region = bed_region();
    const struct vgpu_slot *slot = bed_region_slot(getpid());
    REQUIRE(region != NULL && slot != NULL);
    char uuid[96];
    instance_uuid(instance, uuid);
    for (unsigned i = 0; i < region->device_count; i++) {
        bool is_it = !strcmp(region->devices[i].uuid, uuid);
        CHECK_EQ(slot->usage[i].bytes, is_it ? own.used : 0);
        CHECK(is_it || strncmp(region->devices[i].uuid, "GPU-", 4) != 0);
    }
}

BED_TEST("an instance is one device to CUDA, NVML and the account", .sim = TWO_INSTANCES,
    .environment = LIMITS)
{
    check_one_device(2 * GIB, 0);
}

BED_TEST(
    "NVML first, then CUDA: an instance is one device", .sim = TWO_INSTANCES, .environment = LIMITS)
{
    CHECK_EQ(nvml_memory(card_handle(0)).total, 2 * GIB);
    CHECK_EQ(nvml_memory(instance_handle(0)).total, 2 * GIB);
    CHECK_EQ(nvml_memory(instance_handle(1)).total, 4 * GIB);
    check_one_device(2 * GIB, 0);
}

static void second_instance(void *nvml_first)
{
    char uuid[96];
    REQUIRE(sim_attach() == 0);
    snprintf(uuid, sizeof(uuid), "%s", sim_device(2)->uuid);
    setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
    if (nvml_first)
        CHECK_EQ(nvml_memory(instance_handle(1)).total, 4 * GIB);
    check_one_device(4 * GIB, 1);
}

BED_TEST("the second instance has its own limit", .sim = TWO_INSTANCES, .environment = LIMITS)
{
    CHECK(bed_ended_well(bed_fork(second_instance, NULL)));
    CHECK(bed_ended_well(bed_fork(second_instance, "NVML first")));
}

BED_TEST("an un-indexed limit is each instance's own", .sim = TWO_INSTANCES, .limit = "4g")
{
    check_one_device(4 * GIB, 0);
    CHECK_EQ(nvml_memory(instance_handle(1)).used, 0);
}

static void listed(void *unused)
{
    char first[96], second[96], list[200];
    (void)unused;
    REQUIRE(sim_attach() == 0);
    snprintf(first, sizeof(first), "%s", sim_device(1)->uuid);
    snprintf(second, sizeof(second), "%s", sim_device(2)->uuid);
    snprintf(list, sizeof(list), "%s,%s", second, first);
    setenv("NVIDIA_VISIBLE_DEVICES", list, 1);
    check_limit(4 * GIB);
    CHECK_EQ(nvml_memory(instance_handle(0)).total, 4 * GIB);
    CHECK_EQ(nvml_memory(instance_handle(1)).total, 2 * GIB);
}

BED_TEST("limits count in a device list of instances", .sim = TWO_INSTANCES, .environment = LIMITS)
{
    CHECK(bed_ended_well(bed_fork(listed, NULL)));
}

static void card_listed(void *list)
{
    char uuid[96];
    REQUIRE(sim_attach() == 0);
    snprintf(uuid, sizeof(uuid), "%s", sim_device(1)->uuid);
    setenv("NVIDIA_VISIBLE_DEVICES", list ? list : uuid, 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT_2", "8g", 1);
    check_limit(2 * GIB); /* the second card's instance comes first */
    CHECK_EQ(nvml_memory(card_handle(0)).total, 4 * GIB);
}

BED_TEST("a list that names a card in MIG mode names its first instance",
    .sim = "2xa100,mig=1:1g.10gb+2g.20gb", .environment = LIMITS)
{
    CHECK(bed_ended_well(bed_fork(card_listed, NULL)));
    CHECK(bed_ended_well(bed_fork(card_listed, "1")));
}

static void beside(void *unused)
{
    (void)unused;
    setenv("CUDA_DEVICE_MEMORY_LIMIT_2", "8g", 1);
    check_limit(4 * GIB);
    CHECK_EQ(nvml_memory(card_handle(0)).total, 2 * GIB);
    CHECK_EQ(nvml_memory(card_handle(1)).total, 4 * GIB);
}

BED_TEST("without a list, instances count in their card's place",
    .sim = "2xa100,mig=1:1g.10gb+2g.20gb", .environment = LIMITS)
{
    CHECK(bed_ended_well(bed_fork(beside, NULL)));
}

BED_TEST("where CUDA tells only cards, an instance counts as its card",
    .sim = TWO_INSTANCES ",driver=470,cuda=11020", .environment = LIMITS)
{
    check_limit(2 * GIB);
    CHECK_EQ(nvml_memory(card_handle(0)).total, 2 * GIB);
    CHECK(nvml_memory(card_handle(0)).used > GIB);
    CHECK_EQ(nvml_memory(instance_handle(0)).total, 2 * GIB);
    CHECK(nvml_memory(instance_handle(0)).used > GIB);
    REQUIRE(bed_region() != NULL);
    CHECK_EQ(bed_region()->device_count, 1);
}

BED_TEST("memory on two instances of a card does not add up", .sim = TWO_INSTANCES, .limit = "3g")
{
    bed_context(0);
    CUdeviceptr pointer;
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 2 * GIB), CUDA_SUCCESS);
    CHECK(nvml_memory(instance_handle(0)).used > 2 * GIB);
    CHECK_EQ(nvml_memory(instance_handle(1)).used, 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
