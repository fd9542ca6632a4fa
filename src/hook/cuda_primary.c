/* SPDX-License-Identifier: Apache-2.0 */
/* Primary contexts: retained, released and reset. With the API ledger each counts as CONTEXT_BYTES
 * while it is active. */
#include "hook/green.h"
#include "hook/hook.h"
#include "hook/primary.h"
#include "pace/pace.h"

CUresult hook_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    hook_enter();
    return primary_retain(pctx, dev);
}

CUresult hook_cuDevicePrimaryCtxRelease(CUdevice dev)
{
    hook_enter();
    pace_wait_while_held();
    return primary_release(dev, cuda.cuDevicePrimaryCtxRelease);
}

CUresult hook_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    hook_enter();
    pace_wait_while_held();
    return primary_release(dev, cuda.cuDevicePrimaryCtxRelease_v2);
}

CUresult hook_cuDevicePrimaryCtxReset(CUdevice dev)
{
    hook_enter();
    pace_wait_while_held();
    return primary_reset(dev, green_is_on(dev), cuda.cuDevicePrimaryCtxReset);
}

CUresult hook_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    hook_enter();
    pace_wait_while_held();
    return primary_reset(dev, green_is_on(dev), cuda.cuDevicePrimaryCtxReset_v2);
}
