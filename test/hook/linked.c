/* SPDX-License-Identifier: Apache-2.0 */
/* A program linked with -lcuda, alone and among interposers that go on by RTLD_NEXT. */
#include "abi/cuda.h"
#include "bed.h"
#include "where.h"

#define NEXT "test/hook/libtest-next.so"

static unsigned interposer_calls(void)
{
    unsigned (*calls)(void) = (unsigned (*)(void))dlsym(RTLD_DEFAULT, "test_next_calls");
    REQUIRE(calls != NULL);
    return calls();
}

static void *interposer_next(const char *name)
{
    void *(*next)(const char *) = (void *(*)(const char *))dlsym(RTLD_DEFAULT, "test_next_of");
    REQUIRE(next != NULL);
    return next(name);
}

/* By the symbols that the loader bound. */
static void allocate(void)
{
    CUcontext context;
    CUdeviceptr pointer;
    size_t free, total;
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxSetCurrent(context) == CUDA_SUCCESS);
    CHECK_EQ(cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
    CHECK_EQ(total, GIB);
    CHECK_EQ(cuMemAlloc_v2(&pointer, GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(cuMemAlloc_v2(&pointer, 64 * MIB), CUDA_SUCCESS);
    CHECK_EQ(cuMemFree_v2(pointer), CUDA_SUCCESS);
}

BED_TEST("a program linked with the driver is limited", .limit = "1GiB")
{
    CHECK_STR(where_is((void *)cuMemAlloc_v2), "libvgpu.so");
    CHECK_STR(where_is((void *)cuDriverGetVersion), "libcuda.so.1");
    allocate();
    CHECK(bed_card_bytes(0) < GIB);
}

BED_TEST("a linked program natively is not", .native = true)
{
    CUdeviceptr pointer;
    bed_context(0);
    CHECK_EQ(cuMemAlloc_v2(&pointer, GIB), CUDA_SUCCESS);
}

BED_TEST("RTLD_DEFAULT and RTLD_NEXT from the program find our functions")
{
    CHECK_STR(where_is(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")), "libvgpu.so");
    CHECK_STR(where_is(dlsym(RTLD_NEXT, "cuMemAlloc_v2")), "libvgpu.so");
    CHECK_STR(where_is(dlsym(RTLD_DEFAULT, "cuDriverGetVersion")), "libcuda.so.1");
    CHECK_STR(where_is(dlsym(RTLD_NEXT, "cuDriverGetVersion")), "libcuda.so.1");
}

BED_TEST("an interposer before us goes on to us", .before = NEXT, .limit = "1GiB")
{
    CHECK_STR(where_is((void *)cuMemAlloc_v2), "libtest-next.so");
    CHECK_STR(where_is(interposer_next("cuMemAlloc_v2")), "libvgpu.so");
    CHECK_STR(where_is(interposer_next("puts")), "libc.so.6");
    CHECK_STR(where_is(interposer_next("ioctl")), "libvgpu.so");
    allocate();
    CHECK_EQ(interposer_calls(), 2);
}

BED_TEST("an interposer behind us goes on to us, too, and each call counts once", .behind = NEXT,
    .limit = "1GiB")
{
    CHECK_STR(where_is((void *)cuMemAlloc_v2), "libvgpu.so");
    CHECK_STR(where_is(interposer_next("cuMemAlloc_v2")), "libvgpu.so");
    CHECK_STR(where_is(interposer_next("cuDriverGetVersion")), "libcuda.so.1");
    CHECK_STR(where_is(interposer_next("puts")), "libc.so.6");
    CHECK_STR(where_is(interposer_next("ioctl")), "libvgpu-sim-rm.so");
    allocate();
}

BED_TEST("RTLD_NEXT does not recurse through an interposer of the C library", .before = NEXT)
{
    unsigned before = interposer_calls();
    CHECK(puts("# a line by the interposed puts") >= 0);
    CHECK_EQ(interposer_calls(), before + 1);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
