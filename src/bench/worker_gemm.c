/* SPDX-License-Identifier: Apache-2.0 */
/* A chain of matrix products, each on the one before, by cuBLAS where the loader finds it. */
#include "bench/worker.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define SIDE 4096
#define FLOATS ((size_t)SIDE * SIDE)
#define PRODUCTS 4 /* a step */

/* cublas_api.h of CUDA 11 to 13: int is cublasStatus_t, 0 success; CUBLAS_OP_N is 0. */
struct cublas {
    int (*create)(void **handle);
    int (*set_stream)(void *handle, CUstream stream);
    int (*sgemm)(void *handle, int, int, int m, int n, int k, const float *alpha, CUdeviceptr a,
        int lda, CUdeviceptr b, int ldb, const float *beta, CUdeviceptr c, int ldc);
};

static void find(struct cublas *cublas)
{
    static const char *const names[] = {
        "libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"};
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof(names) / sizeof(names[0]); i++)
        library = dlopen(names[i], RTLD_NOW);
    if (!library)
        load_fail("the loader finds no libcublas.so (11 to 13)");
    *(void **)&cublas->create = dlsym(library, "cublasCreate_v2");
    *(void **)&cublas->set_stream = dlsym(library, "cublasSetStream_v2");
    *(void **)&cublas->sgemm = dlsym(library, "cublasSgemm_v2");
    if (!cublas->create || !cublas->set_stream || !cublas->sgemm)
        load_fail("libcublas.so lacks a function");
}

static void must(int status, const char *call)
{
    if (status)
        load_fail("%s: status %d", call, status);
}

/* KEY SECONDS */
int worker_gemm(int argc, char **argv)
{
    struct cublas cublas;
    struct load_device device;
    CUdeviceptr matrices[3];
    CUstream stream;
    void *handle;
    const float one = 1.0f / SIDE, zero = 0;
    if (argc < 2)
        load_fail("gemm: KEY SECONDS");
    worker_open();
    find(&cublas);
    load_device_open(&device, 0);
    LOAD_CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    must(cublas.create(&handle), "cublasCreate");
    must(cublas.set_stream(handle, stream), "cublasSetStream");
    for (int i = 0; i < 3; i++) {
        LOAD_CALL(cuMemAlloc_v2, &matrices[i], FLOATS * sizeof(float));
        LOAD_CALL(cuMemsetD32_v2, matrices[i], 0x3f800000, FLOATS); /* 1.0f */
    }
    double seconds = atof(argv[1]);
    uint64_t begin = worker_now_ns(), warm = begin + (uint64_t)(seconds * 2e8), end;
    unsigned long steps = 0;
    for (int measured = 0; measured < 2; measured++, begin = worker_now_ns()) {
        end = measured ? begin + (uint64_t)(seconds * 1e9) : warm;
        for (steps = 0; worker_now_ns() < end; steps++) {
            for (int i = 0; i < PRODUCTS; i++)
                must(cublas.sgemm(handle, 0, 0, SIDE, SIDE, SIDE, &one, matrices[i % 2], SIDE,
                         matrices[2], SIDE, &zero, matrices[1 - i % 2], SIDE),
                    "cublasSgemm");
            if (steps % 2)
                LOAD_CALL(cuStreamSynchronize, stream);
        }
        LOAD_CALL(cuStreamSynchronize, stream);
        if (measured)
            worker_write(argv[0], (double)steps / ((double)(worker_now_ns() - begin) / 1e9), steps);
    }
    return 0;
}
