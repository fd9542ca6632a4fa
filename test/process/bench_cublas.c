/* SPDX-License-Identifier: Apache-2.0 */
/* A libcublas.so for bench.py, whose products are a moment's sleep: that the chain of them is
 * measured where the loader finds one. */
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int cublasCreate_v2(void **handle);
EXPORTED int cublasSetStream_v2(void *handle, void *stream);
EXPORTED int cublasSgemm_v2(void *handle, int, int, int m, int n, int k, const float *alpha,
    unsigned long long a, int lda, unsigned long long b, int ldb, const float *beta,
    unsigned long long c, int ldc);

static int context;

int cublasCreate_v2(void **handle)
{
    *handle = &context;
    return 0;
}

/* 1: not initialized; 7: an invalid value */
int cublasSetStream_v2(void *handle, void *stream)
{
    return handle != &context ? 1 : stream ? 0 : 7;
}

int cublasSgemm_v2(void *handle, int of_a, int of_b, int m, int n, int k, const float *alpha,
    unsigned long long a, int lda, unsigned long long b, int ldb, const float *beta,
    unsigned long long c, int ldc)
{
    static const struct timespec moment = {.tv_nsec = 1000000};
    bool square = m == n && n == k && lda == m && ldb == m && ldc == m && !of_a && !of_b;
    if (handle != &context)
        return 1;
    if (!square || !a || !b || !c || a == c || *alpha <= 0 || *beta != 0)
        return 7;
    nanosleep(&moment, NULL);
    return 0;
}
