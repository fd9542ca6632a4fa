/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA runtime program (built with the static and with the shared runtime): allocates until it is
 * refused, goes on, launches. runtime LIMIT_MIB; exit status 0 where all is as promised. */
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

__global__ void add(int *cell)
{
    atomicAdd(cell, 1);
}

static int failed;

static void check(const char *what, bool good, double figure)
{
    failed += !good;
    printf("%s - %s: %.0f\n", good ? "ok" : "NOT OK", what, figure);
}

int main(int argc, char **argv)
{
    size_t limit = (size_t)atoll(argv[1]) << 20, free_bytes = 0, total = 0;
    cudaDeviceProp properties;
    void *block;
    int *cell, value = 0, blocks = 0;
    check("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, 0) == cudaSuccess,
        0);
    check("total is the slice (MiB)", properties.totalGlobalMem == limit,
        (double)(properties.totalGlobalMem >> 20));
    check("cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total) == cudaSuccess && total == limit,
        (double)(free_bytes >> 20));
    cudaError_t error;
    while ((error = cudaMalloc(&block, 100 << 20)) == cudaSuccess)
        blocks++;
    check("refused with cudaErrorMemoryAllocation after (MiB)",
        error == cudaErrorMemoryAllocation && (size_t)blocks * 100 < limit >> 20, blocks * 100.0);
    cudaGetLastError();
    check("cudaMallocAsync over the limit is refused",
        cudaMallocAsync(&block, limit, 0) == cudaErrorMemoryAllocation, 0);
    cudaGetLastError();
    check("cudaMallocManaged over the limit is refused",
        cudaMallocManaged(&block, limit) == cudaErrorMemoryAllocation, 0);
    cudaGetLastError();
    check("a small allocation still works", cudaMalloc(&cell, sizeof(int)) == cudaSuccess, 0);
    cudaMemset(cell, 0, sizeof(int));
    add<<<4, 32>>>(cell);
    check("a kernel runs",
        cudaMemcpy(&value, cell, sizeof(int), cudaMemcpyDeviceToHost) == cudaSuccess && value == 128,
        value);
    return failed != 0;
}
