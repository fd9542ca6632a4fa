/* SPDX-License-Identifier: Apache-2.0 */
/* cuInit: where most programs enter. */
#include "hook/hook.h"
#include "pace/pace.h"

CUresult hook_cuInit(unsigned int Flags)
{
    hook_enter();
    container_prepare_devices();
    pace_read_environment();
    return cuda.cuInit(Flags);
}
