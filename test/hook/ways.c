/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever way a library goes to find a driver function that we replace, it finds ours: behind the
 * driver in the search order, or loaded with RTLD_DEEPBIND. */
#include "abi/cuda.h"
#include "bed.h"
#include "library_ways.h"
#include "where.h"

#include <pthread.h>

#define LIBRARY "test/hook/libtest-library-ways.so"
#define NEXT "test/hook/libtest-next.so"

static const char *const way_names[WAYS] = {"RTLD_NEXT", "RTLD_DEFAULT", "a handle", "RTLD_NOLOAD",
    "a handle opened with RTLD_DEEPBIND", "RTLD_GLOBAL", "dlvsym", "the program's handle",
    "cuGetProcAddress found by RTLD_NEXT", "its own reference"};

typedef void *way_function(enum library_way way, const char *name);

static void *load_library(int mode)
{
    void *library = dlopen(bed_build_path(LIBRARY), RTLD_NOW | mode);
    if (!library)
        dprintf(STDOUT_FILENO, "# %s\n", dlerror());
    REQUIRE(library != NULL);
    return library;
}

static way_function *ways_of(void *library)
{
    way_function *ways = (way_function *)dlsym(library, "library_way");
    REQUIRE(ways != NULL);
    return ways;
}

/* Whichever way finds the function finds ours; a library that links the driver finds it in most. */
static void check_ways(void *library)
{
    way_function *ways = ways_of(library);
    unsigned found_ways = 0;
    for (int way = 0; way < WAYS; way++) {
        void *found = ways(way, "cuMemAlloc_v2");
        if (found && !CHECK_STR(where_is(found), "libvgpu.so"))
            dprintf(STDOUT_FILENO, "# by %s\n", way_names[way]);
        found_ways += found != NULL;
    }
    CHECK(found_ways >= 6);
    CHECK(ways(WAY_NEXT, "cuMemAlloc_v2") != NULL);
    CHECK(ways(WAY_LINKED, "") != NULL);
}

/* Functions that we do not replace are the driver's. */
static void check_others(void *library)
{
    way_function *ways = ways_of(library);
    CHECK_STR(where_is(ways(WAY_NEXT, "cuDriverGetVersion")), "libcuda.so.1");
    CHECK_STR(where_is(ways(WAY_HANDLE, "cuDriverGetVersion")), "libcuda.so.1");
    CHECK(ways(WAY_NEXT, "cuMemAllocFoo") == NULL);
}

static void check_refused(void *library)
{
    way_function *ways = ways_of(library);
    bed_context(0);
    for (int way = 0; way < WAYS; way++) {
        __typeof__(cuMemAlloc_v2) *allocate = (__typeof__(allocate))ways(way, "cuMemAlloc_v2");
        CUdeviceptr pointer = 0;
        if (allocate && !CHECK_EQ(allocate(&pointer, 2 * GIB), CUDA_ERROR_OUT_OF_MEMORY))
            dprintf(STDOUT_FILENO, "# by %s\n", way_names[way]);
    }
}

BED_TEST("a library behind the driver finds our functions in every way", .limit = "1GiB")
{
    void *library = load_library(RTLD_LOCAL);
    check_ways(library);
    check_others(library);
}

BED_TEST("and one that is loaded with RTLD_DEEPBIND", .limit = "1GiB")
{
    void *library = load_library(RTLD_DEEPBIND);
    check_ways(library);
    check_others(library);
}

BED_TEST("and one that is loaded with RTLD_DEEPBIND after the driver", .limit = "1GiB")
{
    bed_context(0);
    void *library = load_library(RTLD_DEEPBIND);
    check_ways(library);
    check_others(library);
}

BED_TEST("its allocations are refused over the limit", .limit = "1GiB",
    .environment = {"VGPU_LEDGER=api"})
{
    check_refused(load_library(RTLD_LOCAL));
}

BED_TEST("and those of one that is loaded with RTLD_DEEPBIND", .limit = "1GiB",
    .environment = {"VGPU_LEDGER=api"})
{
    check_refused(load_library(RTLD_DEEPBIND));
}

BED_TEST("the exact ledger sees a driver that comes with RTLD_DEEPBIND", .limit = "1GiB",
    .environment = {"VGPU_LEDGER=rm"})
{
    check_refused(load_library(RTLD_DEEPBIND));
    CHECK_EQ(bed_stderr_lines("API ledger"), 0);
}

BED_TEST("NVML's functions are found in the same ways", .limit = "1GiB")
{
    way_function *ways = ways_of(load_library(RTLD_DEEPBIND));
    static const enum library_way by_handle[] = {WAY_HANDLE, WAY_NOLOAD, WAY_DEEPBIND, WAY_GLOBAL};
    for (int i = 0; i < 4; i++) {
        CHECK_STR(where_is(ways(by_handle[i], "nvmlDeviceGetMemoryInfo")), "libvgpu.so");
        CHECK_STR(where_is(ways(by_handle[i], "nvmlDeviceGetName")), "libnvidia-ml.so.1");
    }
}

BED_TEST(
    "to an interposer behind us RTLD_NEXT is what comes after it", .behind = NEXT, .limit = "1GiB")
{
    void *(*next_of)(const char *) = (void *(*)(const char *))dlsym(RTLD_DEFAULT, "test_next_of");
    REQUIRE(next_of != NULL);
    bed_context(0);
    /* Behind the interposer there is no driver in the program's own order: absent, as natively. */
    CHECK(next_of("cuMemAlloc_v2") == NULL);
    load_library(RTLD_GLOBAL);
    CHECK_STR(where_is(next_of("cuMemAlloc_v2")), "libvgpu.so");
}

BED_TEST("a library's own name that begins as the driver's do is its own affair", .limit = "1GiB")
{
    for (int deep = 0; deep < 2; deep++) {
        void *library = load_library(deep ? RTLD_DEEPBIND : RTLD_LOCAL);
        int (*create)(void *) = (int (*)(void *))dlsym(library, "cudnnCreate");
        REQUIRE(create != NULL);
        CHECK_EQ(create(NULL), -1);
        dlclose(library);
    }
}

/* In the program: what a library that is loaded plainly is bound to. */
int library_hides(void)
{
    return 2;
}

/* glibc looks in the scope of the caller, which is its own where it is loaded with RTLD_LOCAL. */
BED_TEST("it finds its own names in its own scope, also where all of the driver's are held",
    .limit = "1GiB", .environment = {"CUDA_MEMORY_OVERSUBSCRIBE=true"})
{
    bed_context(0);
    way_function *ways = ways_of(load_library(RTLD_LOCAL));
    CHECK_STR(where_is(ways(WAY_DEFAULT, "cudnnCreate")), "libtest-library-ways.so");
    CHECK_STR(where_is(ways(WAY_DEFAULT, "cuWayOfItsOwn")), "libtest-library-ways.so");
    __typeof__(cuDriverGetVersion) *version =
        (__typeof__(version))ways(WAY_HANDLE, "cuDriverGetVersion");
    int number = 0;
    CHECK_EQ(version(&number), CUDA_SUCCESS);
    CHECK(number > 10000);
    CHECK_STR(where_is((void *)version), "libvgpu.so"); /* a stub */
    CHECK((void *)version == ways(WAY_HANDLE, "cuDriverGetVersion"));
    CHECK(ways(WAY_HANDLE, "cuMemAllocFoo") == NULL);
}

BED_TEST("RTLD_DEEPBIND keeps its meaning", .limit = "1GiB")
{
    int (*own)(void) = (int (*)(void))dlsym(load_library(RTLD_DEEPBIND), "library_own");
    REQUIRE(own != NULL);
    CHECK_EQ(own(), 1);
}

BED_TEST("without the flag the program's function is found as ever", .limit = "1GiB")
{
    int (*own)(void) = (int (*)(void))dlsym(load_library(RTLD_LOCAL), "library_own");
    REQUIRE(own != NULL);
    CHECK_EQ(own(), 2);
}

BED_TEST(
    "where there is no driver RTLD_DEEPBIND loads nothing else", .limit = "1GiB", .no_driver = true)
{
    dlerror();
    CHECK(dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND) != NULL);
    CHECK(dlerror() == NULL);
    CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == NULL);
    CHECK_STR(bed_stderr(), "");
}

BED_TEST("a failed dlopen with RTLD_DEEPBIND says what failed", .limit = "1GiB")
{
    CHECK(dlopen("libno-such-library.so", RTLD_NOW | RTLD_DEEPBIND) == NULL);
    const char *error = dlerror();
    CHECK(error && strstr(error, "libno-such-library.so"));
}

static void *look_up(void *library)
{
    way_function *ways = ways_of(library);
    for (int i = 0; i < 50; i++)
        CHECK_STR(where_is(ways(WAY_NEXT, "cuMemAlloc_v2")), "libvgpu.so");
    return NULL;
}

/* The driver's functions are looked up by us while other threads have them exchanged. */
BED_TEST("threads that look functions up at the same time find ours, and calls reach the driver",
    .limit = "1GiB")
{
    pthread_t threads[16];
    void *library = load_library(RTLD_LOCAL);
    for (int i = 0; i < 16; i++)
        REQUIRE(pthread_create(&threads[i], NULL, look_up, library) == 0);
    for (int i = 0; i < 16; i++)
        pthread_join(threads[i], NULL);
    CUdeviceptr pointer = 0;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 64 * MIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
}

BED_TEST("a forked child finds ours, too", .limit = "1GiB")
{
    void *library = load_library(RTLD_LOCAL);
    check_ways(library);
    pid_t child = bed_fork((void (*)(void *))check_ways, library);
    CHECK(bed_ended_well(child));
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
