/* SPDX-License-Identifier: Apache-2.0 */
/* Memory shared between processes by handle: no new memory, but the owner's free is not its end.
 * Only the API ledger needs to look; below the API it is seen as it happens (rm/rm_export.h). */
#include "hook/hook.h"
#include "vmem/vmem.h"

#include <stddef.h>

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    hook_enter();
    struct vmem_allocation allocation;
    if (vmem_find(dptr, &allocation)) {
        vmem_say_not_shared("cuIpcGetMemHandle");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUdeviceptr base = dptr;
    bool counted = memory_ledger() == MEMORY_LEDGER_API;
    CUresult result = counted ? cuda.cuMemGetAddressRange_v2(&base, NULL, dptr) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = cuda.cuIpcGetMemHandle(pHandle, dptr);
    if (result == CUDA_SUCCESS && counted)
        memory_mark_exported(MEMORY_POINTER, base, (struct rm_export_fd){.fd = -1});
    return result;
}

/* Asked before the memory is opened, so that none is held without being noted. */
static CUresult begin_open(int *ret_device)
{
    *ret_device = CONTAINER_DEVICE_UNKNOWN;
    return memory_ledger() == MEMORY_LEDGER_API ? device_identify_current(ret_device)
                                                : CUDA_SUCCESS;
}

static CUresult opened(CUresult result, const CUdeviceptr *pointer, int device)
{
    if (result == CUDA_SUCCESS && memory_ledger() == MEMORY_LEDGER_API)
        memory_add_import(MEMORY_POINTER, *pointer, device);
    return result;
}

CUresult hook_cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    hook_enter();
    int device;
    CUresult result = begin_open(&device);
    return result == CUDA_SUCCESS
               ? opened(cuda.cuIpcOpenMemHandle(pdptr, handle, Flags), pdptr, device)
               : result;
}

CUresult hook_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    hook_enter();
    int device;
    CUresult result = begin_open(&device);
    return result == CUDA_SUCCESS
               ? opened(cuda.cuIpcOpenMemHandle_v2(pdptr, handle, Flags), pdptr, device)
               : result;
}

CUresult hook_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_POINTER, dptr);
    CUresult result = cuda.cuIpcCloseMemHandle(dptr);
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_POINTER, dptr);
    return result;
}
