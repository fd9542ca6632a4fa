/* SPDX-License-Identifier: Apache-2.0 */
/* A small CUDA program for tools that watch one. small: adds vectors; small oob: a thread writes
 * beyond an allocation; small full: asks for more memory than any card has; small many: adds 50 times. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#define COUNT (1 << 20)

__global__ void add(const int *a, const int *b, int *sum, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        sum[i] = a[i] + b[i];
}

__global__ void beyond(int *cells, int count)
{
    cells[count + threadIdx.x] = 1;
}

static void must(cudaError_t error, const char *call)
{
    if (error == cudaSuccess)
        return;
    printf("small: %s: %s\n", call, cudaGetErrorName(error));
    exit(4);
}

int main(int argc, char **argv)
{
    int *a, *b, *sum, *host = (int *)malloc(COUNT * sizeof(int));
    size_t free_bytes, total_bytes;
    long long checksum = 0;
    must(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    printf("total %zu MiB\n", total_bytes >> 20);
    must(cudaMalloc(&a, COUNT * sizeof(int)), "cudaMalloc");
    must(cudaMalloc(&b, COUNT * sizeof(int)), "cudaMalloc");
    must(cudaMalloc(&sum, COUNT * sizeof(int)), "cudaMalloc");
    for (int i = 0; i < COUNT; i++)
        host[i] = i % 1000;
    must(cudaMemcpy(a, host, COUNT * sizeof(int), cudaMemcpyHostToDevice), "cudaMemcpy");
    must(cudaMemcpy(b, host, COUNT * sizeof(int), cudaMemcpyHostToDevice), "cudaMemcpy");
    add<<<COUNT / 256, 256>>>(a, b, sum, COUNT);
    must(cudaMemcpy(host, sum, COUNT * sizeof(int), cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (int i = 0; i < COUNT; i++)
        checksum += host[i];
    printf("small: checksum %lld\n", checksum);
    if (argc > 1 && !strcmp(argv[1], "many")) {
        /* Each on the sum before: one that is lost or runs twice shows. */
        for (int i = 0; i < 50; i++)
            add<<<COUNT / 256, 256>>>(sum, b, sum, COUNT);
        must(cudaMemcpy(host, sum, COUNT * sizeof(int), cudaMemcpyDeviceToHost), "cudaMemcpy");
        checksum = 0;
        for (int i = 0; i < COUNT; i++)
            checksum += host[i];
        printf("small: 50 more: %lld\n", checksum);
    } else if (argc > 1 && !strcmp(argv[1], "full")) {
        void *block;
        printf("small: 4 TiB: %s\n", cudaGetErrorName(cudaMalloc(&block, (size_t)4 << 40)));
        cudaGetLastError();
    } else if (argc > 1 && !strcmp(argv[1], "oob")) {
        /* Inside the driver's 2 MiB page: without a tool nothing happens. */
        int *cells;
        must(cudaMalloc(&cells, 1000 * sizeof(int)), "cudaMalloc");
        beyond<<<1, 1>>>(cells, 1000);
        printf("small: beyond: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    }
    must(cudaFree(a), "cudaFree");
    must(cudaFree(b), "cudaFree");
    must(cudaFree(sum), "cudaFree");
    free(host);
    printf("small: end\n");
    return 0;
}
