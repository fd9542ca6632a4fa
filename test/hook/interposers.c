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

/* What is charged twice is refused at half the limit, and has two slots. */
static void allocate_once(const char *first)
{
    CUdeviceptr pointer;
    size_t free, total, later;
    bed_context(0);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
    CHECK_EQ(total, GIB);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, free - 64 * MIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&later, &total), CUDA_SUCCESS);
    CHECK(later >= 60 * MIB && later <= 64 * MIB);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 65 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(bed_region_bytes(0), GIB - later);
    CHECK_STR(where_is(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")), first);
    CHECK_STR(where_is((void *)CU(cuMemAlloc_v2)), first);
    unsigned live = 0;
    for (unsigned i = 0; i < VGPU_REGION_SLOTS; i++)
        live += (bed_region()->slots[i].state & 3) == VGPU_SLOT_LIVE;
    CHECK_EQ(live, 1);
}

BED_TEST("of the library and the one of vgpu-controller's name behind it one works",
    .behind = "libvgpu-control.so", .limit = "1GiB")
{
    allocate_once("libvgpu.so");
}

BED_TEST("and likewise where that comes first", .before = "libvgpu-control.so", .limit = "1GiB")
{
    allocate_once("libvgpu-control.so");
}

BED_TEST("and with the API ledger", .before = "libvgpu-control.so", .limit = "1GiB",
    .environment = {"VGPU_LEDGER=api"})
{
    allocate_once("libvgpu-control.so");
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
