/* SPDX-License-Identifier: Apache-2.0 */
/* dlsym and dlvsym over a driver that gives its functions a version. */
#include "abi/cuda.h"
#include "bed.h"
#include "where.h"

#define VERSION "VGPU_SIM_1"
#define VERSIONED .driver = "test/abi/versioned"

static void *open_cuda(int flags)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | flags);
    REQUIRE(library != NULL);
    return library;
}

BED_TEST("dlvsym finds each hooked function of a driver with versions as ours", VERSIONED,
    .sim = "cuda=13050")
{
    void *library = open_cuda(0);
    for (size_t i = 0; i < WHERE_COUNT(where_hooked_cuda); i++) {
        void *found = dlvsym(library, where_hooked_cuda[i], VERSION);
        CHECK_STR(where_is(found), "libvgpu.so");
        CHECK_STR(where_name(found), where_hooked_cuda[i]);
        CHECK(found == dlsym(library, where_hooked_cuda[i]));
    }
}

BED_TEST("and its other functions as the driver's", VERSIONED)
{
    void *library = open_cuda(0);
    void *found = dlvsym(library, "cuDriverGetVersion", VERSION);
    CHECK_STR(where_is(found), "libcuda.so.1");
    CHECK(found == dlsym(library, "cuDriverGetVersion"));
}

BED_TEST("another version than the driver's is absent, and dlerror says so", VERSIONED)
{
    void *library = open_cuda(0);
    dlerror();
    CHECK(dlvsym(library, "cuMemAlloc_v2", "VGPU_SIM_2") == NULL);
    CHECK(dlerror() != NULL);
    CHECK(dlvsym(library, "cuDriverGetVersion", "VGPU_SIM_2") == NULL);
    CHECK(dlerror() != NULL);
}

BED_TEST("dlvsym without a handle finds ours once such a driver is loaded for all", VERSIONED)
{
    CHECK(dlvsym(RTLD_DEFAULT, "cuMemAlloc_v2", VERSION) == NULL);
    CHECK(dlerror() != NULL);
    open_cuda(RTLD_GLOBAL);
    CHECK_STR(where_is(dlvsym(RTLD_DEFAULT, "cuMemAlloc_v2", VERSION)), "libvgpu.so");
    CHECK_STR(where_is(dlvsym(RTLD_DEFAULT, "cuDriverGetVersion", VERSION)), "libcuda.so.1");
}

BED_TEST("what dlvsym found holds the limit", VERSIONED, .limit = "1GiB")
{
    CUdeviceptr pointer;
    bed_context(0);
    __typeof__(cuMemAlloc_v2) *allocate =
        (__typeof__(cuMemAlloc_v2) *)dlvsym(open_cuda(0), "cuMemAlloc_v2", VERSION);
    REQUIRE(allocate != NULL);
    CHECK_EQ(allocate(&pointer, GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(allocate(&pointer, 64 * MIB), CUDA_SUCCESS);
}

BED_TEST("a function that was linked by its version in the C library is found by it")
{
#if defined(__x86_64__)
    const char *oldest = "GLIBC_2.2.5";
#else
    const char *oldest = "GLIBC_2.17";
#endif
    CHECK(dlvsym(RTLD_DEFAULT, "qsort", oldest) == (void *)qsort);
    CHECK(dlvsym(RTLD_NEXT, "qsort", oldest) == (void *)qsort);
    CHECK_STR(where_is(dlvsym(RTLD_DEFAULT, "dlsym", oldest)), "libvgpu.so");
    CHECK_STR(where_is(dlvsym(RTLD_NEXT, "dlsym", oldest)), "libvgpu.so");
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
