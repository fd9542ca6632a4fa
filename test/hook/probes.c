/* SPDX-License-Identifier: Apache-2.0 */
/* What a look at the device takes: nothing of the library's own; contexts that a program makes only
 * to look leave nothing; and what the environment says later does not matter. */
#include "abi/nvml.h"
#include "allocate.h"
#include "bed.h"
#include "sim/machine/machine.h"

#define LIMIT "4GiB"
#define ROUNDS 200

/* Calls that make a context, of all processes on the machine. */
static uint64_t contexts_made(void)
{
    return sim_calls("cuDevicePrimaryCtxRetain") + sim_calls("cuCtxCreate_v2") +
           sim_calls("cuCtxCreate_v3") + sim_calls("cuCtxCreate_v4") + sim_calls("cuCtxCreate");
}

static void look_by_cuda(void)
{
    size_t total = 0;
    int count = 0, value = 0;
    char name[64];
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDeviceGetCount)(&count), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDeviceGetName)(name, sizeof(name), 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDeviceTotalMem_v2)(&total, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
        CUDA_SUCCESS);
    CHECK_EQ(total, 4 * GIB);
}

static void look_by_nvml(void)
{
    nvmlDevice_t device;
    nvmlMemory_t memory;
    CHECK_EQ(ML(nvmlInit_v2)(), NVML_SUCCESS);
    CHECK_EQ(ML(nvmlDeviceGetHandleByIndex_v2)(0, &device), NVML_SUCCESS);
    CHECK_EQ(ML(nvmlDeviceGetMemoryInfo)(device, &memory), NVML_SUCCESS);
    CHECK_EQ(memory.total, 4 * GIB);
    CHECK_EQ(memory.used, 0);
    CHECK_EQ(ML(nvmlShutdown)(), NVML_SUCCESS);
}

BED_TEST("a start and a look by CUDA make no context", .limit = LIMIT)
{
    look_by_cuda();
    CHECK_EQ(bed_card_bytes(0), 0);
    CHECK_EQ(contexts_made(), 0);
    CHECK_EQ(sim_calls("cuMemAlloc_v2"), 0);
}

BED_TEST("a look by NVML alone starts no CUDA", .limit = LIMIT)
{
    look_by_nvml();
    CHECK_EQ(bed_card_bytes(0), 0);
    CHECK_EQ(sim_calls("cuInit"), 0);
    CHECK_EQ(contexts_made(), 0);
}

BED_TEST("with a context the library makes no other", .limit = LIMIT)
{
    uint64_t handle;
    bed_context(0);
    look_by_cuda();
    CHECK_EQ(allocation_kinds[0].make(64 * MIB, &handle), CUDA_SUCCESS);
    CHECK_EQ(allocation_kinds[0].make(8 * GIB, &handle), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(contexts_made(), 1);
}

BED_TEST("a context that is made and destroyed again and again leaves nothing", .limit = LIMIT)
{
    CUcontext context;
    CUdeviceptr pointer;
    size_t free, total, first_free = 0;
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    for (int i = 0; i < ROUNDS; i++) {
        REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
        first_free = i ? first_free : free;
        REQUIRE(CHECK_EQ(free, first_free));
        CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 64 * MIB), CUDA_SUCCESS);
        REQUIRE(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
        REQUIRE(CHECK_EQ(allocation_charged(), 0));
    }
    CHECK_EQ(bed_card_bytes(0), 0);
    CHECK_EQ(contexts_made(), ROUNDS);
}

BED_TEST("so does a primary context that is retained and released", .limit = LIMIT)
{
    CUcontext context;
    CUdeviceptr pointer;
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    for (int i = 0; i < ROUNDS; i++) {
        REQUIRE(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
        CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 64 * MIB), CUDA_SUCCESS);
        REQUIRE(CU(cuDevicePrimaryCtxRelease_v2)(0) == CUDA_SUCCESS);
        REQUIRE(CHECK_EQ(allocation_charged(), 0));
    }
    CHECK_EQ(bed_card_bytes(0), 0);
}

static void probe(void *argument)
{
    CUcontext context;
    (void)argument;
    REQUIRE(CU(cuInit)(0) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
}

BED_TEST(
    "a hundred processes that only look, one after the other, leave no slot taken", .limit = LIMIT)
{
    for (int i = 0; i < 100; i++)
        CHECK(bed_ended_well(bed_fork(probe, NULL)));
    bed_context(0);
    CHECK_EQ(bed_region_bytes(0), allocation_charged());
    REQUIRE(bed_region() != NULL);
    CHECK(bed_region()->slot_high <= 2);
}

BED_TEST("where a context does not fit each try is refused, and nothing is left of it",
    .limit = "300MiB")
{
    CUcontext context;
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK_EQ(CU(cuCtxCreate_v2)(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
        REQUIRE(CHECK_EQ(allocation_charged(), 0));
    }
    CHECK_EQ(bed_card_bytes(0), 0);
}

BED_TEST("the environment is read at the first call and not again", .limit = LIMIT)
{
    CUdeviceptr pointer;
    bed_context(0);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "100g", 1);
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/nonexistent/region", 1);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 5 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    clearenv();
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 5 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_SUCCESS);
    look_by_cuda();
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
