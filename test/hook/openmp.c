/* SPDX-License-Identifier: Apache-2.0 */
/* A program built with OpenMP, whose runtime looks functions up and makes threads of its own. */
#include "allocate.h"
#include "bed.h"
#include "where.h"

#include <omp.h>

#define THREADS 8
#define SIZE (8 * MIB)

BED_TEST("OpenMP's threads look functions up and allocate under the limit", .limit = "2GiB")
{
    int refused = 0, served = 0;
    CUcontext context;
    bed_context(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    uint64_t before = allocation_charged();
    CHECK_STR(where_is((void *)omp_get_num_procs), where_is(dlsym(RTLD_NEXT, "omp_get_num_procs")));
#pragma omp parallel num_threads(THREADS) reduction(+ : refused, served)
    {
        CUdeviceptr pointer;
        CHECK(dlsym(RTLD_DEFAULT, "qsort") == (void *)qsort);
        CHECK(dlsym(RTLD_NEXT, "qsort") == (void *)qsort);
        CHECK_EQ(CU(cuCtxSetCurrent)(context), CUDA_SUCCESS);
        refused += CU(cuMemAlloc_v2)(&pointer, 2 * GIB) == CUDA_ERROR_OUT_OF_MEMORY;
        for (int i = 0; i < 50; i++) {
            served += CU(cuMemAlloc_v2)(&pointer, SIZE) == CUDA_SUCCESS;
            CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
        }
    }
    CHECK_EQ(refused, THREADS);
    CHECK_EQ(served, 50 * THREADS);
    CHECK_EQ(allocation_charged(), before);
}

BED_TEST("a first call of CUDA within a parallel loop is served", .limit = "2GiB")
{
    int served = 0;
#pragma omp parallel for num_threads(THREADS) reduction(+ : served)
    for (int i = 0; i < 4 * THREADS; i++)
        served += CU(cuInit)(0) == CUDA_SUCCESS;
    CHECK_EQ(served, 4 * THREADS);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
