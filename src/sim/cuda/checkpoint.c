/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint calls, which one process makes about another. */
#include "sim/cuda/checkpoint.h"

#include <errno.h>
#include <string.h>

#include "sim/cuda/cuda_sim.h"

_Static_assert((int)SIM_CHECKPOINT_RUNNING == (int)CU_PROCESS_STATE_RUNNING &&
                   (int)SIM_CHECKPOINT_LOCKED == (int)CU_PROCESS_STATE_LOCKED &&
                   (int)SIM_CHECKPOINT_DONE == (int)CU_PROCESS_STATE_CHECKPOINTED &&
                   (int)SIM_CHECKPOINT_FAILED == (int)CU_PROCESS_STATE_FAILED,
    "the machine's states are the driver's");
_Static_assert(sizeof(CUcheckpointLockArgs) == 64 && sizeof(CUcheckpointRestoreArgs) == 64 &&
                   sizeof(CUcheckpointUnlockArgs) == 64,
    "arguments");

static CUresult target_find(int pid, struct sim_checkpoint_process *ret_target)
{
    if (!sim_description()->checkpoint)
        return CUDA_ERROR_NOT_SUPPORTED;
    switch (sim_checkpoint_find(pid, ret_target)) {
    case 0:
        return ret_target->thread ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    case -EPERM:
        return CUDA_ERROR_NOT_PERMITTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult step(int pid, enum sim_checkpoint_kind kind, uint64_t until_ns)
{
    struct sim_checkpoint_process target;
    uint32_t result = CUDA_SUCCESS;
    CUresult r = target_find(pid, &target);

    if (r != CUDA_SUCCESS)
        return r;
    switch (sim_checkpoint_ask(&target, kind, until_ns, &result)) {
    case 0:
        return (CUresult)result;
    case -EINVAL:
        return CUDA_ERROR_ILLEGAL_STATE;
    case -ETIMEDOUT:
        return CUDA_ERROR_NOT_READY;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* "Reserved for future use, must be zeroed." */
static bool is_zero(const void *bytes, size_t count)
{
    static const char zeros[64];

    return memcmp(bytes, zeros, count) == 0;
}

CUresult sim_cuCheckpointProcessGetState(int pid, CUprocessState *state)
{
    struct sim_checkpoint_process target;
    enum sim_checkpoint_state now;
    CUresult r = target_find(pid, &target);

    if (r == CUDA_SUCCESS && (!state || sim_checkpoint_state(&target, &now) != 0))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *state = (CUprocessState)now;
    return r;
}

CUresult sim_cuCheckpointProcessGetRestoreThreadId(int pid, int *tid)
{
    struct sim_checkpoint_process target;
    CUresult r = target_find(pid, &target);

    if (r == CUDA_SUCCESS && !tid)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *tid = target.thread;
    return r;
}

CUresult sim_cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    uint64_t until_ns = SIM_NEVER;

    if (args && (args->reserved0 || !is_zero(args->reserved1, sizeof args->reserved1)))
        return CUDA_ERROR_INVALID_VALUE;
    if (args && args->timeoutMs)
        until_ns = sim_clock_ns() + (uint64_t)args->timeoutMs * 1000000u;
    return step(pid, SIM_CHECKPOINT_LOCK, until_ns);
}

CUresult sim_cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    if (args && !is_zero(args, sizeof *args))
        return CUDA_ERROR_INVALID_VALUE;
    return step(pid, SIM_CHECKPOINT_SAVE, SIM_NEVER);
}

/* No process moves to another GPU here. */
static CUresult pairs_check(const CUcheckpointRestoreArgs *args)
{
    if (!is_zero(args->reserved, sizeof args->reserved) || args->reserved1 ||
        (args->gpuPairsCount && !args->gpuPairs))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < args->gpuPairsCount; i++) {
        const CUcheckpointGpuPair *pair = &args->gpuPairs[i];

        if (memcmp(&pair->oldUuid, &pair->newUuid, sizeof pair->oldUuid) != 0)
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    CUresult r = args ? pairs_check(args) : CUDA_SUCCESS;

    return r == CUDA_SUCCESS ? step(pid, SIM_CHECKPOINT_RESTORE, SIM_NEVER) : r;
}

CUresult sim_cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    if (args && !is_zero(args, sizeof *args))
        return CUDA_ERROR_INVALID_VALUE;
    return step(pid, SIM_CHECKPOINT_UNLOCK, SIM_NEVER);
}
