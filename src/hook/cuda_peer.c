/* SPDX-License-Identifier: Apache-2.0 */
/* Access to another device's memory. The driver gives it for all memory of its own that the peer
 * context has or will have; mappings have to be told one by one (vmem/vmem.h). The page tables that
 * this takes are counted below the API. */
#include "hook/hook.h"
#include "vmem/vmem.h"
#include "vmem/world.h"

static CUresult set_peer(CUcontext peer, bool access)
{
    CUcontext accessor;
    CUdevice ordinal;
    CUresult result = cuda.cuCtxGetCurrent(&accessor);
    if (result == CUDA_SUCCESS)
        result = cuda.cuCtxGetDevice(&ordinal);
    if (result != CUDA_SUCCESS)
        return result;
    bool entered = world_enter(); /* no range is being moved */
    return world_left(
        entered, vmem_set_peer((uintptr_t)peer, (uintptr_t)accessor, ordinal, access));
}

CUresult hook_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    hook_enter();
    CUresult result = cuda.cuCtxEnablePeerAccess(peerContext, Flags);
    if (result != CUDA_SUCCESS || !load_relaxed(&vmem_is_asked_for))
        return result;
    result = set_peer(peerContext, true);
    if (result != CUDA_SUCCESS) {
        (void)set_peer(peerContext, false);
        (void)cuda.cuCtxDisablePeerAccess(peerContext);
    }
    return result;
}

CUresult hook_cuCtxDisablePeerAccess(CUcontext peerContext)
{
    hook_enter();
    CUresult result = cuda.cuCtxDisablePeerAccess(peerContext);
    if (result == CUDA_SUCCESS && load_relaxed(&vmem_is_asked_for))
        (void)set_peer(peerContext, false);
    return result;
}
