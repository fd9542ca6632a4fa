/* SPDX-License-Identifier: Apache-2.0 */
/* libcudart, or the driver in its place. */
#include "runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER_VERSION 11030 /* whose functions are asked for; cuGetProcAddress came with it */

struct runtime runtime;

/* The driver's, by cuGetProcAddress. */
static struct {
    __typeof__(cuMemAlloc_v2) *cuMemAlloc;
    __typeof__(cuMemAllocHost_v2) *cuMemAllocHost;
    __typeof__(cuMemAllocManaged) *cuMemAllocManaged;
    __typeof__(cuMemFree_v2) *cuMemFree;
    __typeof__(cuMemFreeHost) *cuMemFreeHost;
    __typeof__(cuMemHostAlloc) *cuMemHostAlloc;
    __typeof__(cuMemHostRegister_v2) *cuMemHostRegister;
    __typeof__(cuMemHostUnregister) *cuMemHostUnregister;
    __typeof__(cuMemsetD8_v2) *cuMemsetD8;
} found;

static CUdeviceptr address(void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

static int take(CUresult result, CUdeviceptr taken, void **pointer)
{
    if (result == CUDA_SUCCESS)
        *pointer = (void *)(uintptr_t)taken;
    return (int)result;
}

static int by_driver_malloc(void **pointer, size_t bytes)
{
    CUdeviceptr taken = 0;
    CUresult result = found.cuMemAlloc(&taken, bytes);
    return take(result, taken, pointer);
}

static int by_driver_malloc_managed(void **pointer, size_t bytes, unsigned flags)
{
    CUdeviceptr taken = 0;
    CUresult result = found.cuMemAllocManaged(&taken, bytes, flags);
    return take(result, taken, pointer);
}

static int by_driver_malloc_host(void **pointer, size_t bytes)
{
    return (int)found.cuMemAllocHost(pointer, bytes);
}

static int by_driver_host_alloc(void **pointer, size_t bytes, unsigned flags)
{
    return (int)found.cuMemHostAlloc(pointer, bytes, flags);
}

static int by_driver_host_register(void *pointer, size_t bytes, unsigned flags)
{
    return (int)found.cuMemHostRegister(pointer, bytes, flags);
}

static int by_driver_host_unregister(void *pointer)
{
    return (int)found.cuMemHostUnregister(pointer);
}

static int by_driver_free(void *pointer)
{
    return (int)found.cuMemFree(address(pointer));
}

static int by_driver_free_host(void *pointer)
{
    return (int)found.cuMemFreeHost(pointer);
}

static int by_driver_memset(void *pointer, int value, size_t bytes)
{
    return (int)found.cuMemsetD8(address(pointer), (unsigned char)value, bytes);
}

static void missing(const char *name)
{
    printf("FAILED: there is no %s\n", name);
    exit(1);
}

static void *driver_function(const char *name)
{
    void *function = NULL;
    if (!driver.cuGetProcAddress)
        missing("cuGetProcAddress");
    if (driver.cuGetProcAddress(name, &function, DRIVER_VERSION, 0) != CUDA_SUCCESS || !function)
        missing(name);
    return function;
}

static void take_driver(void)
{
#define FIND(name) found.name = (__typeof__(found.name))driver_function(#name)
    FIND(cuMemAlloc);
    FIND(cuMemAllocHost);
    FIND(cuMemAllocManaged);
    FIND(cuMemFree);
    FIND(cuMemFreeHost);
    FIND(cuMemHostAlloc);
    FIND(cuMemHostRegister);
    FIND(cuMemHostUnregister);
    FIND(cuMemsetD8);
#undef FIND
    runtime = (struct runtime){.cudaFree = by_driver_free,
        .cudaFreeHost = by_driver_free_host,
        .cudaHostAlloc = by_driver_host_alloc,
        .cudaHostRegister = by_driver_host_register,
        .cudaHostUnregister = by_driver_host_unregister,
        .cudaMalloc = by_driver_malloc,
        .cudaMallocHost = by_driver_malloc_host,
        .cudaMallocManaged = by_driver_malloc_managed,
        .cudaMemset = by_driver_memset};
    puts("by the driver's functions, as the CUDA runtime calls them");
}

static bool take_library(void)
{
    static const char *const names[] = {"libcudart.so", "libcudart.so.13", "libcudart.so.12",
        "libcudart.so.11.0", "libcudart.so.10.2"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !library; i++) {
        library = dlopen(names[i], RTLD_NOW);
        if (library)
            printf("by %s\n", names[i]);
    }
    if (!library)
        return false;
#define FIND(name)                                                                                 \
    runtime.name = (__typeof__(runtime.name))dlsym(library, #name);                                \
    if (!runtime.name)                                                                             \
    missing(#name)
    FIND(cudaFree);
    FIND(cudaFreeHost);
    FIND(cudaHostAlloc);
    FIND(cudaHostRegister);
    FIND(cudaHostUnregister);
    FIND(cudaMalloc);
    FIND(cudaMallocHost);
    FIND(cudaMallocManaged);
    FIND(cudaMemset);
#undef FIND
    return true;
}

/* A libcudart asks the driver for private tables, which the simulator has none of. */
static bool simulated(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return library && dlsym(library, "vgpu_sim_call_count");
}

void runtime_begin(int argc, char **argv)
{
    bool by_driver = argc == 2 && !strcmp(argv[1], "--driver-api");
    if (argc > 1 && !by_driver) {
        fprintf(
            stderr, "%s: \"%.64s\" is not an option; accepted: --driver-api\n", argv[0], argv[1]);
        exit(2);
    }
    if (!driver_load())
        exit(77);
    if (by_driver || simulated() || !take_library())
        take_driver();
}
