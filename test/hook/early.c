/* SPDX-License-Identifier: Apache-2.0 */
/* Who looks functions up before the library's own constructor has run, in a constructor of theirs,
 * or from within malloc. */
#include "abi/cuda.h"
#include "bed.h"
#include "where.h"

#include <pthread.h>

#define EARLY "test/hook/libtest-early.so"
#define MALLOC "test/hook/libtest-malloc.so"

static void *before_all_qsort, *before_all_next, *before_all_cuda, *before_all_version;
static int before_all_ran;

/* The program's own, which the loader runs before any library's constructor. */
static void before_all(void)
{
    before_all_qsort = dlsym(RTLD_DEFAULT, "qsort");
    before_all_next = dlsym(RTLD_NEXT, "qsort");
    before_all_cuda = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    before_all_version = dlvsym(RTLD_DEFAULT, "qsort", "NO_VERSION");
    before_all_ran++;
}

__attribute__((section(".preinit_array"), used)) static void (*const first[])(void) = {before_all};

static void allocate(void)
{
    CUdeviceptr pointer;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 64 * MIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
}

BED_TEST("a program that looks functions up before all constructors finds them", .limit = "1GiB")
{
    CHECK_EQ(before_all_ran, 1);
    CHECK(before_all_qsort == (void *)qsort);
    CHECK(before_all_next == (void *)qsort);
    CHECK(before_all_cuda == NULL);
    CHECK(before_all_version == NULL);
    allocate();
}

static void *found(const char *name, bool next)
{
    void *(*ask)(const char *, bool) =
        (void *(*)(const char *, bool))dlsym(RTLD_DEFAULT, "test_early_found");
    REQUIRE(ask != NULL);
    return ask(name, next);
}

static void check_found_early(bool before_us)
{
    unsigned (*looked)(void) = (unsigned (*)(void))dlsym(RTLD_DEFAULT, "test_early_looked");
    REQUIRE(looked != NULL);
    CHECK_EQ(looked(), 8);
    CHECK(found("qsort", true) == (void *)qsort);
    CHECK(found("qsort", false) == (void *)qsort);
    CHECK_STR(where_is(found("ioctl", true)), before_us ? "libvgpu.so" : "libvgpu-sim-rm.so");
    CHECK_STR(where_is(found("ioctl", false)), "libvgpu.so");
    CHECK_STR(where_is(found("dlsym", false)), "libvgpu.so");
    CHECK(found("ompt_start_tool", true) == NULL && found("ompt_start_tool", false) == NULL);
    CHECK(found("custom", true) == NULL && found("custom", false) == NULL);
    CHECK(found("cuInit", false) == NULL && found("nvmlInit_v2", false) == NULL);
}

BED_TEST("a library before us that looks functions up in its constructor finds them",
    .before = EARLY, .limit = "1GiB")
{
    check_found_early(true);
    allocate();
}

BED_TEST("so does one behind us, whose constructor comes first", .behind = EARLY, .limit = "1GiB")
{
    check_found_early(false);
    allocate();
}

static void check_malloc_replaced(void)
{
    unsigned (*calls)(void) = (unsigned (*)(void))dlsym(RTLD_DEFAULT, "test_malloc_calls");
    REQUIRE(calls != NULL);
    CHECK(calls() > 0);
    CHECK_STR(where_is((void *)malloc), "libtest-malloc.so");
}

BED_TEST("a library before us that replaces malloc finds the next one by dlsym", .before = MALLOC,
    .limit = "1GiB")
{
    check_malloc_replaced();
    allocate();
}

BED_TEST("one behind us that replaces malloc does so too", .behind = MALLOC, .limit = "1GiB")
{
    check_malloc_replaced();
    allocate();
}

#define THREADS 8

static void *look_and_allocate(void *argument)
{
    CUdeviceptr pointer;
    for (int i = 0; i < 200; i++) {
        CHECK(dlsym(RTLD_NEXT, "qsort") == (void *)qsort);
        CHECK(dlsym(RTLD_DEFAULT, "qsort") == (void *)qsort);
        CHECK_STR(where_is(bed_cuda("cuMemAlloc_v2")), "libvgpu.so");
    }
    CHECK_EQ(CU(cuCtxSetCurrent)((CUcontext)argument), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 2 * MIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    return NULL;
}

BED_TEST("threads that look functions up at once all find them", .limit = "1GiB")
{
    pthread_t threads[THREADS];
    CUcontext context;
    bed_context(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, look_and_allocate, context) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void *first_call(void *argument)
{
    pthread_barrier_wait(argument);
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    return NULL;
}

BED_TEST("threads whose first calls of CUDA come at once are all served", .limit = "1GiB")
{
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    REQUIRE(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, first_call, &barrier) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    allocate();
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
