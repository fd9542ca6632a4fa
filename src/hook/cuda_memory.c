/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemAlloc and its kin: linear memory, pitched and managed. */
#include "base/saturate.h"
#include "hook/hook.h"
#include "memory/pools.h"

#include <stddef.h>

CUresult hook_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    hook_enter();
    int device;
    unsigned attempts = 0;
    CUresult result = device_identify_current(&device);
    if (result != CUDA_SUCCESS)
        return result;
    do {
        struct memory_request request;
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (memory_begin(&request, device, bytesize, ACCOUNT_BUFFER) == 0) {
            result = cuda.cuMemAlloc_v2(dptr, bytesize);
            memory_end(&request, result == CUDA_SUCCESS, MEMORY_POINTER, dptr ? *dptr : 0);
        }
    } while (pools_try_again(result, &attempts));
    return result;
}

CUresult hook_cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
    hook_enter();
    int device;
    unsigned attempts = 0;
    CUresult result = device_identify_current(&device);
    if (result != CUDA_SUCCESS)
        return result;
    do {
        struct memory_request request;
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (memory_begin(&request, device, bytesize, ACCOUNT_BUFFER) == 0) {
            result = cuda.cuMemAlloc(dptr, bytesize);
            memory_end(&request, result == CUDA_SUCCESS, MEMORY_POINTER, dptr ? *dptr : 0);
        }
    } while (pools_try_again(result, &attempts));
    return result;
}

/* The driver's rows are wider than the program's: at 580.159.04 multiples of 512 bytes. */
#define ROW_BYTES 512

static uint64_t rows_bytes(uint64_t width, uint64_t height)
{
    if (memory_ledger() == MEMORY_LEDGER_API && width <= UINT64_MAX - ROW_BYTES)
        width = (width + ROW_BYTES - 1) / ROW_BYTES * ROW_BYTES;
    return saturating_product(width, height);
}

/* API ledger: rows that are wider still are counted anew; what does not fit then is given back. */
static CUresult count_rows(
    const struct memory_request *former, CUdeviceptr pointer, uint64_t pitch, uint64_t height)
{
    struct memory_request request;
    uint64_t bytes = saturating_product(pitch, height);
    if (!former->reserved || bytes <= former->bytes)
        return CUDA_SUCCESS;
    if (memory_begin(&request, former->device, bytes, ACCOUNT_BUFFER) == 0) {
        memory_end(&request, true, MEMORY_POINTER, pointer); /* in the former's place */
        return CUDA_SUCCESS;
    }
    struct memory_record record = memory_take(MEMORY_POINTER, pointer);
    CUresult freed = cuda.cuMemFree_v2(pointer);
    memory_taken(&record, freed == CUDA_SUCCESS, MEMORY_POINTER, pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Under the API ledger rows count as wide as the driver makes them. */
CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
    size_t Height, unsigned int ElementSizeBytes)
{
    hook_enter();
    int device;
    unsigned attempts = 0;
    CUresult result = device_identify_current(&device);
    if (result != CUDA_SUCCESS)
        return result;
    do {
        struct memory_request request;
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (memory_begin(&request, device, rows_bytes(WidthInBytes, Height), ACCOUNT_BUFFER) == 0) {
            result = cuda.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
            memory_end(&request, result == CUDA_SUCCESS, MEMORY_POINTER, dptr ? *dptr : 0);
            if (result == CUDA_SUCCESS && dptr && pPitch)
                result = count_rows(&request, *dptr, *pPitch, Height);
        }
    } while (pools_try_again(result, &attempts));
    return result;
}

CUresult hook_cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
    unsigned int Height, unsigned int ElementSizeBytes)
{
    hook_enter();
    int device;
    unsigned attempts = 0;
    CUresult result = device_identify_current(&device);
    if (result != CUDA_SUCCESS)
        return result;
    do {
        struct memory_request request;
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (memory_begin(&request, device, rows_bytes(WidthInBytes, Height), ACCOUNT_BUFFER) == 0) {
            result = cuda.cuMemAllocPitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
            memory_end(&request, result == CUDA_SUCCESS, MEMORY_POINTER, dptr ? *dptr : 0);
            if (result == CUDA_SUCCESS && dptr && pPitch)
                result = count_rows(&request, *dptr, *pPitch, Height);
        }
    } while (pools_try_again(result, &attempts));
    return result;
}

/* Managed memory shows neither below the API nor in NVML: it is counted here under both ledgers. */
CUresult hook_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    hook_enter();
    int device;
    unsigned attempts = 0;
    CUresult result = device_identify_current(&device);
    if (result != CUDA_SUCCESS)
        return result;
    do {
        struct memory_request request;
        result = CUDA_ERROR_OUT_OF_MEMORY;
        if (memory_begin(&request, device, bytesize, ACCOUNT_MANAGED) == 0) {
            result = cuda.cuMemAllocManaged(dptr, bytesize, flags);
            memory_end(&request, result == CUDA_SUCCESS, MEMORY_POINTER, dptr ? *dptr : 0);
        }
    } while (pools_try_again(result, &attempts));
    return result;
}

static void freed(CUdeviceptr dptr, const struct memory_record *record, CUresult result)
{
    memory_taken(record, result == CUDA_SUCCESS, MEMORY_POINTER, dptr);
    if (result == CUDA_SUCCESS)
        pools_note_freed(dptr);
}

CUresult hook_cuMemFree_v2(CUdeviceptr dptr)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_POINTER, dptr);
    CUresult result = cuda.cuMemFree_v2(dptr);
    freed(dptr, &record, result);
    return result;
}

CUresult hook_cuMemFree(CUdeviceptr_v1 dptr)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_POINTER, dptr);
    CUresult result = cuda.cuMemFree(dptr);
    freed(dptr, &record, result);
    return result;
}
