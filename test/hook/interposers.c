/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that open the driver at run time, among other preloaded libraries. */
#include "abi/cuda.h"
#include "bed.h"
#include "where.h"

#define NEXT "test/hook/libtest-next.so"
#define OWN_DLSYM "test/hook/libtest-own-dlsym.so"

static void allocate(void)
{
    CUdeviceptr pointer;
    size_t free, total;
    bed_context(0);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
    CHECK_EQ(total, GIB);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 64 * MIB), CUDA_SUCCESS);
    CHECK(bed_card_bytes(0) < GIB);
}

static bool own_dlsym_is_called(void)
{
    unsigned (*calls)(void) = (unsigned (*)(void))dlsym(RTLD_DEFAULT, "test_own_dlsym_calls");
    return calls && calls() > 0;
}

BED_TEST("with an interposer before us", .before = NEXT, .limit = "1GiB")
{
    allocate();
}

BED_TEST("with an interposer behind us", .behind = NEXT, .limit = "1GiB")
{
    allocate();
}

BED_TEST("with a library that replaces dlsym before us", .before = OWN_DLSYM, .limit = "1GiB")
{
    allocate();
    CHECK(own_dlsym_is_called());
}

BED_TEST("with a library that replaces dlsym before us and the API ledger", .before = OWN_DLSYM,
    .limit = "1GiB", .environment = {"VGPU_LEDGER=api"})
{
    allocate();
}

BED_TEST("with a library that replaces dlsym behind us", .behind = OWN_DLSYM, .limit = "1GiB")
{
    allocate();
    CHECK(own_dlsym_is_called());
    CHECK_STR(where_is(dlsym(RTLD_NEXT, "qsort")), "libc.so.6");
}

BED_TEST("preloaded twice it works once", .before = "libvgpu.so", .limit = "1GiB")
{
    allocate();
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
