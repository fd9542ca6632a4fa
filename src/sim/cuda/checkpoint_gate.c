/* SPDX-License-Identifier: Apache-2.0 */
/* Where the calls of a process wait that is locked or checkpointed. */
#include "sim/cuda/checkpoint.h"

#include <pthread.h>
#include <string.h>

CUprocessState checkpoint_gate = CU_PROCESS_STATE_RUNNING;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

void checkpoint_gate_set(CUprocessState state)
{
    pthread_mutex_lock(&lock);
    __atomic_store_n(&checkpoint_gate, state, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void checkpoint_gate_wait(void)
{
    pthread_mutex_lock(&lock);
    while (checkpoint_gate_is_closed())
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static bool starts_with(const char *name, const char *start)
{
    return strncmp(name, start, strlen(start)) == 0;
}

static bool is_work(const char *name)
{
    static const char *const work[] = {"cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset"};

    if (starts_with(name, "cuLaunchHostFunc"))
        return false;
    for (size_t i = 0; i < sizeof work / sizeof *work; i++) {
        if (starts_with(name, work[i]))
            return true;
    }
    return false;
}

/* The driver reads what it has unmapped. */
static void crash(void)
{
    static volatile char *volatile unmapped;

    *unmapped = 0; // NOLINT(clang-analyzer-core.NullDereference)
}

void checkpoint_gate_enter(const char *name)
{
    if (starts_with(name, "cuCheckpoint"))
        return;
    if (__atomic_load_n(&checkpoint_gate, __ATOMIC_ACQUIRE) == CU_PROCESS_STATE_CHECKPOINTED &&
        !is_work(name))
        crash();
    checkpoint_gate_wait();
}
