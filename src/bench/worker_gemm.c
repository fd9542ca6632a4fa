/* SPDX-License-Identifier: Apache-2.0 */
/* A chain of matrix products, each on the one before, by cuBLAS where the loader finds it. */
#include "bench/worker.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        load_fail("the loader finds no libcublas.so (11 to 13; LD_LIBRARY_PATH): %s", dlerror());
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

struct chain {
    struct cublas cublas;
    void *handle;
    CUdeviceptr matrices[3];
    CUstream stream;
};

/* Steps that end within `seconds`; what they took is put into ret_s. */
static unsigned long steps_for(struct chain *chain, double seconds, double *ret_s)
{
    const float one = 1.0f / SIDE, zero = 0;
    const CUdeviceptr *matrices = chain->matrices;
    uint64_t begin = worker_now_ns(), end = begin + (uint64_t)(seconds * 1e9);
    unsigned long steps = 0;
    for (; worker_now_ns() < end; steps++) {
        for (int i = 0; i < PRODUCTS; i++)
            must(chain->cublas.sgemm(chain->handle, 0, 0, SIDE, SIDE, SIDE, &one, matrices[i % 2],
                     SIDE, matrices[2], SIDE, &zero, matrices[1 - i % 2], SIDE),
                "cublasSgemm");
        if (steps % 2)
            LOAD_CALL(cuStreamSynchronize, chain->stream);
    }
    LOAD_CALL(cuStreamSynchronize, chain->stream);
    *ret_s = (double)(worker_now_ns() - begin) / 1e9;
    return steps;
}

/* KEY: turns ("turn WARMUP SECONDS") */
int worker_gemm(int argc, char **argv)
{
    struct chain chain;
    struct load_device device;
    char seconds[64];
    if (argc < 1)
        load_fail("gemm: KEY");
    worker_open();
    find(&chain.cublas);
    load_device_open(&device, 0);
    LOAD_CALL(cuStreamCreate, &chain.stream, CU_STREAM_NON_BLOCKING);
    must(chain.cublas.create(&chain.handle), "cublasCreate");
    must(chain.cublas.set_stream(chain.handle, chain.stream), "cublasSetStream");
    for (int i = 0; i < 3; i++) {
        LOAD_CALL(cuMemAlloc_v2, &chain.matrices[i], FLOATS * sizeof(float));
        LOAD_CALL(cuMemsetD32_v2, chain.matrices[i], 0x3f800000, FLOATS); /* 1.0f */
    }
    double took_s;
    (void)steps_for(&chain, 0, &took_s);
    worker_say("ready");
    while (worker_command(seconds, sizeof(seconds))) {
        char *rest = strchr(seconds, ' ');
        double warm_s = rest ? strtod(rest, &rest) : 0, measured_s = rest ? strtod(rest, NULL) : 0;
        (void)steps_for(&chain, warm_s, &took_s);
        unsigned long steps = steps_for(&chain, measured_s, &took_s);
        worker_write(argv[0], (double)steps / took_s, steps ? steps : 1);
        worker_say("done");
    }
    return 0;
}
