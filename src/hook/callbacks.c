/* SPDX-License-Identifier: Apache-2.0 */
/* What the layers below want of this one. */
#include "hook/hook.h"

#include "hook/green.h"
#include "memory/context_attach.h"
#include "memory/graph_execs.h"
#include "memory/mappings.h"
#include "memory/pools.h"
#include "pace/capture.h"
#include "pace/halt.h"
#include "pace/pace.h"
#include "vmem/freeze.h"
#include "vmem/host_pool.h"
#include "vmem/park.h"
#include "vmem/placement.h"
#include "vmem/use.h"
#include "vmem/vmem.h"

#include <errno.h>
#include <stdint.h>

static void reset(void)
{
    capture_reset();
    context_attach_reset();
    graph_execs_reset();
    green_reset();
    pace_reset();
    halt_reset();
    pools_reset();
    mappings_reset();
    park_reset();
    vmem_reset();
    freeze_reset();
    host_pool_reset();
    placement_reset();
    use_reset();
    report_reset();
}

static int current_context(uint64_t *ret_context)
{
    CUcontext context = NULL;
    if (cuda.cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return -EIO;
    *ret_context = (uintptr_t)green_home(context);
    return 0;
}

__attribute__((constructor)) static void register_callbacks(void)
{
    container_on_reset(reset);
    memory_current_context = current_context;
}
