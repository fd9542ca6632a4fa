/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemAlloc and its kin: linear memory, pitched and managed. */
#include "base/saturating.h"
#include "hook/hook.h"
#include "memory/allocation.h"
#include "memory/pools.h"
#include "vmem/freeze.h"
#include "vmem/placement.h"
#include "vmem/use.h"
#include "vmem/vmem.h"

#include <stddef.h>

/* With oversubscription, as what can be moved. */
static bool served(CUdeviceptr *dptr, size_t bytes, CUresult *ret_result)
{
    if (!vmem_allocate(dptr, bytes, ret_result))
        return false;
    freeze_watch();
    placement_watch();
    return true;
}

CUresult hook_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    hook_enter();
    CUresult result;
    if (served(dptr, bytesize, &result))
        return result;
    struct allocation memory = allocation_here(bytesize, ACCOUNT_BUFFER);
    while (allocation_begin(&memory)) {
        memory.result = cuda.cuMemAlloc_v2(dptr, bytesize);
        allocation_end(&memory, MEMORY_POINTER, dptr ? *dptr : 0);
    }
    return memory.result;
}

CUresult hook_cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
    hook_enter();
    struct allocation memory = allocation_here(bytesize, ACCOUNT_BUFFER);
    while (allocation_begin(&memory)) {
        memory.result = cuda.cuMemAlloc(dptr, bytesize);
        allocation_end(&memory, MEMORY_POINTER, dptr ? *dptr : 0);
    }
    return memory.result;
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

/* With oversubscription; what the driver would refuse is left to it. */
static bool served_rows(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
    unsigned int element_bytes, CUresult *ret_result)
{
    if (!pitch || !width || width > SIZE_MAX - ROW_BYTES || !height ||
        (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
        return false;
    size_t row = (width + ROW_BYTES - 1) / ROW_BYTES * ROW_BYTES;
    if (!served(dptr, saturating_product(row, height), ret_result))
        return false;
    if (*ret_result == CUDA_SUCCESS)
        *pitch = row;
    return true;
}

/* Under the API ledger rows count as wide as the driver makes them. */
CUresult hook_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
    size_t Height, unsigned int ElementSizeBytes)
{
    hook_enter();
    CUresult result;
    if (served_rows(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes, &result))
        return result;
    struct allocation rows = allocation_here(rows_bytes(WidthInBytes, Height), ACCOUNT_BUFFER);
    while (allocation_begin(&rows)) {
        rows.result = cuda.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
        allocation_end(&rows, MEMORY_POINTER, dptr ? *dptr : 0);
        if (rows.result == CUDA_SUCCESS && dptr && pPitch)
            rows.result = count_rows(&rows.request, *dptr, *pPitch, Height);
    }
    return rows.result;
}

CUresult hook_cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
    unsigned int Height, unsigned int ElementSizeBytes)
{
    hook_enter();
    struct allocation rows = allocation_here(rows_bytes(WidthInBytes, Height), ACCOUNT_BUFFER);
    while (allocation_begin(&rows)) {
        rows.result = cuda.cuMemAllocPitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
        allocation_end(&rows, MEMORY_POINTER, dptr ? *dptr : 0);
        if (rows.result == CUDA_SUCCESS && dptr && pPitch)
            rows.result = count_rows(&rows.request, *dptr, *pPitch, Height);
    }
    return rows.result;
}

/* Managed memory shows neither below the API nor in NVML: it is counted here under both ledgers. */
CUresult hook_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    hook_enter();
    struct allocation memory = allocation_here(bytesize, ACCOUNT_MANAGED);
    while (allocation_begin(&memory)) {
        memory.result = cuda.cuMemAllocManaged(dptr, bytesize, flags);
        allocation_end(&memory, MEMORY_POINTER, dptr ? *dptr : 0);
    }
    return memory.result;
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
    CUresult served;
    if (vmem_free(dptr, &served))
        return served;
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

/* Of cuMemAlloc's memory, which the driver refuses, it says where to keep it (vmem/use.h). */
static void note_advice(CUdeviceptr pointer, CUmem_advise advice, bool to_host)
{
    if (!load_relaxed(&vmem_range_count))
        return;
    if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
        use_note_advice_slow(pointer, to_host ? RESIDENCY_HOST : RESIDENCY_CARD);
    else if (advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)
        use_note_advice_slow(pointer, RESIDENCY_NO_ADVICE);
}

CUresult hook_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
    hook_enter();
    note_advice(devPtr, advice, device < 0);
    return cuda.cuMemAdvise(devPtr, count, advice, device);
}

CUresult hook_cuMemAdvise_v2(
    CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
{
    hook_enter();
    note_advice(devPtr, advice, location.type != CU_MEM_LOCATION_TYPE_DEVICE);
    return cuda.cuMemAdvise_v2(devPtr, count, advice, location);
}
