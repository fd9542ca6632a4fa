/* SPDX-License-Identifier: Apache-2.0 */
/* Memory shared between processes by handle: no new memory, but the owner's free is not its end.
 * Only the API ledger needs to look; below the API it is seen as it happens (limit/rm_export.h). */
#include "hook/hook.h"

#include <stddef.h>

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    hook_enter();
    CUresult result = cuda.cuIpcGetMemHandle(pHandle, dptr);
    CUdeviceptr base = dptr;
    if (result == CUDA_SUCCESS && memory_ledger() == MEMORY_LEDGER_API) {
        (void)cuda.cuMemGetAddressRange_v2(&base, NULL, dptr);
        memory_mark_exported(MEMORY_POINTER, base, -1);
    }
    return result;
}

static CUresult opened(CUresult result, const CUdeviceptr *pointer)
{
    if (result == CUDA_SUCCESS && memory_ledger() == MEMORY_LEDGER_API)
        memory_add_import(MEMORY_POINTER, *pointer, hook_current_device());
    return result;
}

CUresult hook_cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    hook_enter();
    return opened(cuda.cuIpcOpenMemHandle(pdptr, handle, Flags), pdptr);
}

CUresult hook_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    hook_enter();
    return opened(cuda.cuIpcOpenMemHandle_v2(pdptr, handle, Flags), pdptr);
}

CUresult hook_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    hook_enter();
    struct memory_record record = memory_take(MEMORY_POINTER, dptr);
    CUresult result = cuda.cuIpcCloseMemHandle(dptr);
    memory_taken(&record, result == CUDA_SUCCESS, MEMORY_POINTER, dptr);
    return result;
}
