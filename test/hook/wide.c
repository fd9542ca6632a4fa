/* SPDX-License-Identifier: Apache-2.0 */
/* On a driver with more devices than a region's table has, and whose calls may wait (wide/wide.h).
 */
#include "wide/wide.h"

#include "abi/cuda.h"
#include "bed.h"

#include <pthread.h>

#define WIDE .driver = "test/hook/wide"
#define TABLE VGPU_REGION_DEVICES
#define SIZE (24 * MIB)
#define HELD (40 * MIB)
#define HANG_SECONDS 20

static uint64_t total(int ordinal)
{
    size_t bytes = 0;
    CHECK_EQ(CU(cuDeviceTotalMem_v2)(&bytes, ordinal), CUDA_SUCCESS);
    return bytes;
}

static uint64_t charged(unsigned device)
{
    const struct vgpu_slot *slot = bed_region_slot(getpid());
    return slot ? slot->usage[device].bytes : 0;
}

/* The container's list, in the driver's order; each UUID's first byte is the ordinal. */
static void list_devices(void)
{
    char list[TABLE * 8] = "";
    for (unsigned i = 0; i < TABLE; i++)
        sprintf(list + strlen(list), "%sGPU-%02x", i ? "," : "", i);
    setenv("GPU_DEVICES_UUID", list, 1);
}

static void check_limit(int ordinal, uint64_t limit)
{
    CUdeviceptr pointer;
    CHECK_EQ(total(ordinal), limit);
    bed_context(ordinal);
    bool right = CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, limit), CUDA_ERROR_OUT_OF_MEMORY);
    right &= CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, limit - 600 * MIB), CUDA_SUCCESS);
    right &= CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    if (!right)
        dprintf(STDOUT_FILENO, "# device %d\n", ordinal);
}

BED_TEST("the 17th and the 64th device have limits of their own", WIDE, .limit = "9g",
    .environment = {"CUDA_DEVICE_MEMORY_LIMIT_16=1g", "CUDA_DEVICE_MEMORY_LIMIT_63=2g"})
{
    list_devices();
    check_limit(63, 2 * GIB);
    check_limit(16, GIB);
    check_limit(15, 9 * GIB);
    check_limit(17, 9 * GIB);
    check_limit(62, 9 * GIB);
}

BED_TEST("each of 64 devices is charged what it gave", WIDE, .limit = "9g")
{
    uint64_t contexts[TABLE];
    CUdeviceptr pointer;
    for (unsigned i = 0; i < TABLE; i++) {
        bed_context((int)i);
        contexts[i] = charged(i);
        CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, (2 + 2 * i) * MIB), CUDA_SUCCESS);
    }
    for (unsigned i = 0; i < TABLE; i++)
        CHECK_EQ(charged(i) - contexts[i], (2 + 2 * i) * MIB);
}

static void check_closed_beyond_table(int met)
{
    CUdeviceptr pointer;
    for (int i = 0; i < met; i++)
        bed_context(i);
    for (int i = (int)TABLE; i < WIDE_DEVICES; i++) {
        CUcontext context;
        if (CU(cuDevicePrimaryCtxRetain)(&context, i) != CUDA_SUCCESS)
            continue;
        CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 20 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    }
}

BED_TEST("with a limit, devices for which the table has no room give nothing", WIDE, .limit = "9g")
{
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    check_closed_beyond_table((int)TABLE);
}

BED_TEST("a program that uses none but the 65th device is held to its limit", WIDE, .limit = "9g")
{
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    check_closed_beyond_table(0);
}

BED_TEST("without a limit they are the driver's, and so is a device that is not there", WIDE)
{
    CUdeviceptr pointer;
    CUcontext context;
    for (int i = 0; i < WIDE_DEVICES; i++) {
        bed_context(i);
        CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 20 * GIB), CUDA_SUCCESS);
    }
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&context, WIDE_DEVICES), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&context, -1), CUDA_ERROR_INVALID_DEVICE);
}

BED_TEST("with a limit a device that is not there gets the driver's answer", WIDE, .limit = "9g")
{
    CUcontext context;
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&context, WIDE_DEVICES), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(CU(cuDevicePrimaryCtxRetain)(&context, -1), CUDA_ERROR_INVALID_DEVICE);
}

BED_TEST("the program gets the pitch that the driver chose", WIDE, .limit = "9g")
{
    CUdeviceptr pointer;
    size_t pitch = 4711;
    bed_context(0);
    CHECK_EQ(CU(cuMemAllocPitch_v2)(&pointer, &pitch, GIB, 20, 4), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(pitch, 4711);
    for (size_t width = 1; width < 5000; width += 321) {
        CHECK_EQ(CU(cuMemAllocPitch_v2)(&pointer, &pitch, width, 100, 4), CUDA_SUCCESS);
        CHECK_EQ(pitch, WIDE_PITCH(width));
        CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    }
}

BED_TEST(
    "rows that are wider than what was asked for count as wide as they are", WIDE, .limit = "9g")
{
    CUdeviceptr pointer;
    size_t pitch;
    bed_context(0);
    uint64_t before = charged(0);
    CHECK_EQ(CU(cuMemAllocPitch_v2)(&pointer, &pitch, 4 * MIB, 100, 4), CUDA_SUCCESS);
    CHECK(charged(0) - before >= pitch * 100);
    CHECK_EQ(CU(cuMemAllocPitch_v2)(&pointer, &pitch, 30 * MIB, 100, 4), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(charged(0) - before < 2 * GIB);
}

/* A call that waits within the driver, in a thread of its own. */
struct waiting {
    CUresult (*call)(struct waiting *waiting);
    CUdeviceptr pointer;
};

static CUresult call_alloc(struct waiting *waiting)
{
    return CU(cuMemAlloc_v2)(&waiting->pointer, HELD);
}

static CUresult call_alloc_async(struct waiting *waiting)
{
    return CU(cuMemAllocAsync)(&waiting->pointer, HELD, NULL);
}

static CUresult call_free(struct waiting *waiting)
{
    return CU(cuMemFree_v2)(waiting->pointer);
}

static CUresult call_free_async(struct waiting *waiting)
{
    return CU(cuMemFreeAsync)(waiting->pointer, NULL);
}

static void *in_thread(void *argument)
{
    struct waiting *waiting = argument;
    bed_context(0);
    CHECK_EQ(waiting->call(waiting), CUDA_SUCCESS);
    return NULL;
}

static void use_all(void)
{
    CUdeviceptr first, second;
    size_t free, all;
    CHECK_EQ(CU(cuMemAlloc_v2)(&first, SIZE), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAllocAsync)(&second, SIZE, NULL), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &all), CUDA_SUCCESS);
    CHECK_EQ(all, 9 * GIB);
    CHECK_EQ(CU(cuMemAlloc_v2)(&second, 10 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemFree_v2)(first), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFreeAsync)(second, NULL), CUDA_SUCCESS);
    bed_context(1);
    CHECK_EQ(CU(cuMemAlloc_v2)(&first, SIZE), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(first), CUDA_SUCCESS);
    bed_context(0);
}

/* A hang ends by SIGALRM. */
static void check_not_kept(CUresult (*call)(struct waiting *), bool frees)
{
    struct waiting waiting = {.call = call};
    pthread_t thread;
    bed_context(0);
    if (frees)
        CHECK_EQ(CU(cuMemAlloc_v2)(&waiting.pointer, HELD), CUDA_SUCCESS);
    CU(wide_hold)(HELD);
    REQUIRE(pthread_create(&thread, NULL, in_thread, &waiting) == 0);
    alarm(HANG_SECONDS);
    CU(wide_wait_for_held)();
    use_all();
    CU(wide_let_go)();
    REQUIRE(pthread_join(thread, NULL) == 0);
    alarm(0);
}

BED_TEST("a thread that waits in the driver for an allocation keeps no other", WIDE, .limit = "9g")
{
    check_not_kept(call_alloc, false);
    check_not_kept(call_alloc_async, false);
}

BED_TEST("nor does one that waits there for a free", WIDE, .limit = "9g")
{
    check_not_kept(call_free, true);
    check_not_kept(call_free_async, true);
}

static void in_child(void *argument)
{
    (void)argument;
    bed_context(0);
    use_all();
}

BED_TEST("nor does it keep another process", WIDE, .limit = "9g")
{
    struct waiting waiting = {.call = call_alloc_async};
    int gate[2];
    char none;
    pthread_t thread;
    REQUIRE(pipe(gate) == 0);
    pid_t pid = fork(); /* before the first call of CUDA */
    if (pid == 0) {
        close(gate[1]);
        alarm(HANG_SECONDS);
        REQUIRE(read(gate[0], &none, 1) == 0);
        in_child(NULL);
        _exit(0);
    }
    close(gate[0]);
    bed_context(0);
    CU(wide_hold)(HELD);
    REQUIRE(pthread_create(&thread, NULL, in_thread, &waiting) == 0);
    CU(wide_wait_for_held)();
    close(gate[1]);
    CHECK(bed_ended_well(pid));
    CU(wide_let_go)();
    REQUIRE(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
