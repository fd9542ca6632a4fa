/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checkpoint calls' side of a process that they are called about, where its description has the
 * word `checkpoint`: a gate at which its calls wait, and a thread that does what is asked.
 */
#ifndef VGPU_SIM_CUDA_CHECKPOINT_H
#define VGPU_SIM_CUDA_CHECKPOINT_H

#include "abi/cuda.h"

#include <stdbool.h>

/* As in the machine's file, for this process alone; set under the driver's lock. */
extern CUprocessState checkpoint_gate;

static inline bool checkpoint_gate_is_closed(void)
{
    return __builtin_expect(
        __atomic_load_n(&checkpoint_gate, __ATOMIC_ACQUIRE) != CU_PROCESS_STATE_RUNNING, 0);
}
void checkpoint_gate_set(CUprocessState state);
/* Without the driver's lock: until the process runs. */
void checkpoint_gate_wait(void);
/*
 * What a call does that begins while the gate is closed: it waits; while the process is
 * checkpointed only launches, copies and fills do, and others end the process by SIGSEGV (seen on
 * an H100, driver 580.159.04: launches, graph launches and copies wait, cuEventQuery and
 * cuCtxSynchronize crash). The checkpoint calls themselves pass.
 */
void checkpoint_gate_enter(const char *name);

/* Makes the thread; it is known to other processes on return. */
CUresult checkpoint_serve_start(void);

#endif
