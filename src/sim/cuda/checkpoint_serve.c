/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that does in its own process what other processes ask for by the checkpoint calls. The
 * contents of memory lie in the process anyway: what goes and comes back are the resource manager's
 * objects, by its calls. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "sim/cuda/checkpoint.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sim/cuda/context.h"
#include "sim/cuda/cuda_sim.h"

/* Between two looks at whether something is asked, and at what is waited for. */
#define LOOK_NS 1000000

#define DRIVER_HELD                                                                                \
    __attribute__((cleanup(cuda_unlock), unused)) int cuda_guard = cuda_lock_ungated()

/* The memory that a checkpoint took; under the driver's lock. */
struct saved {
    struct sim_memory_object object;
    bool is_there;
};
static struct saved *saved;
static size_t saved_count;
static bool is_lost; /* memory of the host was mapped or held, which the driver does not restore */

/* A restore has failed for lack of room: each further one answers OPERATING_SYSTEM, and the process
 * stays checkpointed (seen on an H100, driver 580.159.04). */
static bool is_stranded;

static struct sim_checkpoint_process self;

static void nap(void)
{
    struct timespec pause = {.tv_nsec = LOOK_NS};

    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

static void gate_set(CUprocessState state)
{
    DRIVER_HELD;

    checkpoint_gate_set(state);
}

static bool is_managed(const struct allocation *allocation, const void *unused)
{
    (void)unused;
    return allocation->kind == ALLOCATION_MANAGED ||
           (allocation->kind == ALLOCATION_POOL && allocation->place == PLACE_MANAGED);
}

static bool has_managed(void)
{
    size_t count;

    free(allocation_collect(is_managed, NULL, &count));
    return count != 0;
}

/* ---- memory ---- */

static void saved_drop(void)
{
    free(saved);
    saved = NULL;
    saved_count = 0;
}

/* Memory that another process has as well cannot be made again as it was (assumed). */
static CUresult saved_list(void)
{
    size_t count = sim_memory_objects(rm_client(), NULL, 0);
    struct sim_memory_object *objects = calloc(count + 1, sizeof *objects);
    CUresult r = CUDA_SUCCESS;

    saved = calloc(count + 1, sizeof *saved);
    if (!objects || !saved)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS && sim_memory_objects(rm_client(), objects, count) != count)
        r = CUDA_ERROR_UNKNOWN;
    for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++) {
        saved[i] = (struct saved){.object = objects[i], .is_there = true};
        if (objects[i].held)
            r = CUDA_ERROR_NOT_SUPPORTED;
    }
    saved_count = count;
    free(objects);
    if (r != CUDA_SUCCESS)
        saved_drop();
    return r;
}

/* As far as the resource manager does it. */
static CUresult memory_give(void)
{
    CUresult r = CUDA_SUCCESS;

    for (size_t i = 0; i < saved_count && r == CUDA_SUCCESS; i++) {
        if (saved[i].is_there)
            r = rm_memory_give(&saved[i].object);
        if (r == CUDA_SUCCESS)
            saved[i].is_there = false;
    }
    return r;
}

static CUresult memory_take(void)
{
    CUresult r = CUDA_SUCCESS;

    for (size_t i = 0; i < saved_count && r == CUDA_SUCCESS; i++) {
        if (!saved[i].is_there)
            r = rm_memory_take(&saved[i].object);
        if (r == CUDA_SUCCESS)
            saved[i].is_there = true;
    }
    return r;
}

/* ---- all objects ---- */

/* Nothing is freed where this fails, unless it cannot be made again. */
static CUresult objects_give(CUprocessState *ret_state)
{
    CUresult r = memory_give();

    *ret_state = CU_PROCESS_STATE_CHECKPOINTED;
    if (r == CUDA_SUCCESS)
        r = rm_client_end();
    if (r == CUDA_SUCCESS)
        return r;
    *ret_state = memory_take() == CUDA_SUCCESS ? CU_PROCESS_STATE_LOCKED : CU_PROCESS_STATE_FAILED;
    return r;
}

/* With a new client, and the former handles below it, as the driver does. */
static CUresult objects_take(void)
{
    CUresult r = rm_client_begin();

    if (r != CUDA_SUCCESS)
        return r;
    r = devices_restore();
    if (r == CUDA_SUCCESS)
        r = contexts_restore();
    if (r == CUDA_SUCCESS)
        r = memory_take();
    if (r != CUDA_SUCCESS) {
        (void)memory_give();
        (void)rm_client_end();
    }
    return r;
}

/* ---- steps ---- */

/* The gate is shown to the process first, so that the asking one finds it as it was told. */
static void settle(uint32_t request, CUprocessState state, CUresult result)
{
    gate_set(state);
    (void)sim_checkpoint_answer(&self, request, (enum sim_checkpoint_state)state, result);
}

static void lock_step(uint32_t request)
{
    enum sim_checkpoint_kind kind;
    bool is_open = true;

    gate_set(CU_PROCESS_STATE_LOCKED);
    while (is_open && !(sim_checkpoint_is_enabled(&self) && sim_checkpoint_is_idle(&self))) {
        nap();
        is_open = sim_checkpoint_open(&self, request, &kind);
    }
    if (!is_open ||
        !sim_checkpoint_answer(&self, request, SIM_CHECKPOINT_LOCKED, (uint32_t)CUDA_SUCCESS))
        gate_set(CU_PROCESS_STATE_RUNNING);
}

static void save_step(uint32_t request)
{
    DRIVER_HELD;
    CUprocessState state = CU_PROCESS_STATE_LOCKED;
    CUresult r = has_managed() ? CUDA_ERROR_NOT_SUPPORTED : saved_list();

    if (r == CUDA_SUCCESS) {
        is_lost = vmm_has_host();
        r = objects_give(&state);
        if (state == CU_PROCESS_STATE_LOCKED)
            saved_drop();
    }
    settle(request, state, r);
}

static void restore_step(uint32_t request)
{
    DRIVER_HELD;
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    CUresult r = is_lost       ? CUDA_ERROR_UNKNOWN
                 : is_stranded ? CUDA_ERROR_OPERATING_SYSTEM
                               : objects_take();

    is_stranded |= r == CUDA_ERROR_OUT_OF_MEMORY;

    if (r == CUDA_SUCCESS) {
        state = CU_PROCESS_STATE_LOCKED;
        saved_drop();
    } else if (!is_lost) {
        state = CU_PROCESS_STATE_CHECKPOINTED;
    }
    settle(request, state, r);
}

/* As the driver's, it comes to its end when the channels are enabled (seen on an H100, driver
 * 580.159.04, in a pause). */
static void unlock_step(uint32_t request)
{
    enum sim_checkpoint_kind kind;

    while (!sim_checkpoint_is_enabled(&self) && sim_checkpoint_open(&self, request, &kind))
        nap();
    settle(request, CU_PROCESS_STATE_RUNNING, CUDA_SUCCESS);
}

static void step(uint32_t request)
{
    enum sim_checkpoint_kind kind;

    if (!sim_checkpoint_open(&self, request, &kind))
        return;
    switch (kind) {
    case SIM_CHECKPOINT_LOCK:
        lock_step(request);
        return;
    case SIM_CHECKPOINT_SAVE:
        save_step(request);
        return;
    case SIM_CHECKPOINT_RESTORE:
        restore_step(request);
        return;
    case SIM_CHECKPOINT_UNLOCK:
        unlock_step(request);
        return;
    }
}

/* ---- the thread ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done;
    int error;
} start = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *serve(void *unused)
{
    int error = sim_checkpoint_serve(rm_descriptor(), (pid_t)syscall(SYS_gettid), &self);

    (void)unused;
    pthread_mutex_lock(&start.lock);
    start.error = error;
    start.is_done = true;
    pthread_cond_signal(&start.changed);
    pthread_mutex_unlock(&start.lock);
    if (error != 0)
        return NULL;
    for (;;) {
        uint32_t request;

        if (sim_checkpoint_asked(&self, &request))
            step(request);
        nap();
    }
}

CUresult checkpoint_serve_start(void)
{
    sigset_t all, before;
    pthread_t thread;
    int error;

    start.is_done = false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, NULL, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return CUDA_ERROR_OPERATING_SYSTEM;
    pthread_detach(thread);
    pthread_mutex_lock(&start.lock);
    while (!start.is_done)
        pthread_cond_wait(&start.changed, &start.lock);
    error = start.error;
    pthread_mutex_unlock(&start.lock);
    return error ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
