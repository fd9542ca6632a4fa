/* SPDX-License-Identifier: Apache-2.0 */
/* What every call does first. */
#include "sim/cuda/entry.h"

#include "sim/cuda/checkpoint.h"
#include "sim/cuda/cuda_sim.h"

#include <pthread.h>
#include <stdatomic.h>

static _Thread_local CUresult refusal;
static _Thread_local bool per_thread;
static atomic_bool initialised;
static atomic_bool forked;

static CUresult body_refused(void)
{
    return refusal;
}

bool cuda_entry_per_thread(void)
{
    return per_thread;
}

bool cuda_initialised(void)
{
    return atomic_load(&initialised);
}

bool cuda_forked(void)
{
    return atomic_load(&forked);
}

static void fork_child(void)
{
    atomic_store(&forked, true);
}

void cuda_initialised_set(void)
{
    if (!atomic_exchange(&initialised, true))
        pthread_atfork(NULL, NULL, fork_child);
}

static CUresult entry_check(struct cuda_entry *entry)
{
    uint32_t code;

    cuda_description_load();
    if (cuda_forked() && !(entry->flags & ENTRY_ANYTIME))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (sim_fail(entry->name, &code))
        return (CUresult)code;
    if (cuda_attach_error())
        return entry->flags & ENTRY_ANYTIME ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    if (entry->since > (int)sim_cuda_version())
        return CUDA_ERROR_NOT_SUPPORTED;
    if (entry->flags & ENTRY_ANYTIME)
        return CUDA_SUCCESS;
    if (!cuda_initialised())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (checkpoint_gate_is_closed())
        checkpoint_gate_enter(entry->name);
    if ((entry->flags & ENTRY_CONTEXT) && !context_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    if ((entry->flags & ENTRY_UNSAFE) && capture_forbids())
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return CUDA_SUCCESS;
}

void (*cuda_entry_begin(struct cuda_entry *entry))(void);

__attribute__((used, visibility("hidden"))) void (*cuda_entry_begin(struct cuda_entry *entry))(void)
{
    __atomic_fetch_add(&entry->calls, 1, __ATOMIC_RELAXED);
    refusal = entry_check(entry);
    per_thread = entry->flags & ENTRY_PER_THREAD;
    return refusal == CUDA_SUCCESS ? entry->body : (void (*)(void))body_refused;
}
