/* SPDX-License-Identifier: Apache-2.0 */
/* The wide driver (wide.h): as little of libcuda as a program that allocates needs. No call takes a
 * lock that another one holds on. */
#include "wide.h"

#include "abi/cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define DEVICE_BYTES (80ull << 30)
#define SIZES_MAX 4096

static _Thread_local int current; /* ordinal + 1; a context is its number */
static uint64_t taken;            /* addresses that were given out */
static size_t sizes[SIZES_MAX];   /* by address */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static size_t held_bytes;
static bool held;

void wide_hold(size_t bytes)
{
    pthread_mutex_lock(&gate);
    held_bytes = bytes;
    held = false;
    pthread_mutex_unlock(&gate);
}

void wide_wait_for_held(void)
{
    pthread_mutex_lock(&gate);
    while (!held)
        pthread_cond_wait(&moved, &gate);
    pthread_mutex_unlock(&gate);
}

void wide_let_go(void)
{
    pthread_mutex_lock(&gate);
    held_bytes = 0;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&gate);
}

static void pass(size_t bytes)
{
    pthread_mutex_lock(&gate);
    while (bytes && bytes == held_bytes) {
        held = true;
        pthread_cond_broadcast(&moved);
        pthread_cond_wait(&moved, &gate);
    }
    pthread_mutex_unlock(&gate);
}

CUresult cuInit(unsigned int flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = WIDE_DEVICES;
    return CUDA_SUCCESS;
}

static bool is_device(CUdevice device)
{
    return device >= 0 && device < WIDE_DEVICES;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    if (!is_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    memset(uuid, device, sizeof(*uuid));
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    *bytes = DEVICE_BYTES;
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    *context = (CUcontext)(uintptr_t)(device + 1);
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    current = (int)(uintptr_t)context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = (CUcontext)(uintptr_t)current;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = current - 1;
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    *free = *total = DEVICE_BYTES;
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    uint64_t index = __atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED) % SIZES_MAX;
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    pass(bytes);
    __atomic_store_n(&sizes[index], bytes, __ATOMIC_RELAXED);
    *address = (index + 1) << 32;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    pass(__atomic_exchange_n(&sizes[(address >> 32) - 1], 0, __ATOMIC_RELAXED));
    return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch_v2(
    CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element_bytes)
{
    (void)element_bytes;
    *pitch = WIDE_PITCH(width);
    return cuMemAlloc_v2(address, *pitch * height);
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    (void)stream;
    return cuMemAlloc_v2(address, bytes);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    (void)stream;
    return cuMemFree_v2(address);
}

/* One pool a device, which holds nothing for later. */
CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice ordinal)
{
    *pool = (CUmemoryPool)(uintptr_t)(ordinal + 1);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice ordinal)
{
    return cuDeviceGetMemPool(pool, ordinal);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    uint64_t bytes = 0;
    (void)pool;
    (void)attribute;
    for (uint64_t i = 0; i < SIZES_MAX; i++)
        bytes += __atomic_load_n(&sizes[i], __ATOMIC_RELAXED);
    memcpy(value, &bytes, sizeof(bytes));
    return CUDA_SUCCESS;
}
