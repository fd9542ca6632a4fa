/* SPDX-License-Identifier: Apache-2.0 */
/* What the checkpoint calls say between processes: who is in which state, and the one step that is
 * asked of a process. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "sim/machine/machine.h"

#include "sim/machine/machine_timeline.h"
#include "sim/machine/rm_objects.h"

#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Between two looks at what another process has done. */
#define LOOK_NS 1000000

static void nap(void)
{
    struct timespec pause = {.tv_nsec = LOOK_NS};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

static struct sim_checkpoint *checkpoint_of_locked(const struct sim_checkpoint_process *process)
{
    struct sim_slot *slot = &sim_machine->slots[process->slot];
    return slot->live && slot->generation == process->generation ? &slot->checkpoint : NULL;
}

/* A child that inherited the descriptor keeps the slot after its parent's death; the thread is gone
 * with that. */
static int thread_probe(pid_t pid, pid_t thread)
{
    return syscall(SYS_tgkill, pid, thread, 0) == 0 ? 0 : -errno;
}

static bool slot_has_client(uint32_t slot)
{
    for (uint32_t i = 0; i < sim_machine->clients_end; i++) {
        if (sim_machine->clients[i].live && sim_machine->clients[i].slot == slot)
            return true;
    }
    return false;
}

int sim_checkpoint_find(pid_t pid, struct sim_checkpoint_process *ret_process)
{
    struct sim_checkpoint_process found = {.pid = pid};
    int error = -ESRCH;
    if (pid <= 0)
        return -ESRCH;
    sim_lock();
    sim_reap_locked();
    for (uint32_t i = 0; i < sim_machine->slots_end && found.thread == 0; i++) {
        const struct sim_slot *slot = &sim_machine->slots[i];
        bool serves = slot->checkpoint.thread != 0; /* while checkpointed it has no client */
        if (!slot->live || slot->pid != pid || !(serves || slot_has_client(i)))
            continue;
        found.slot = i;
        found.generation = slot->generation;
        found.thread = slot->checkpoint.thread;
        error = 0;
    }
    sim_unlock();
    if (error == 0 && found.thread != 0)
        error = thread_probe(pid, found.thread);
    if (error == 0)
        *ret_process = found;
    return error;
}

int sim_checkpoint_state(
    const struct sim_checkpoint_process *process, enum sim_checkpoint_state *ret_state)
{
    sim_lock();
    const struct sim_checkpoint *checkpoint = checkpoint_of_locked(process);
    if (checkpoint != NULL)
        *ret_state = checkpoint->state;
    sim_unlock();
    return checkpoint != NULL ? 0 : -ESRCH;
}

/* ---- the process that asks ---- */

static bool kind_is_for(enum sim_checkpoint_kind kind, uint32_t state)
{
    switch (kind) {
    case SIM_CHECKPOINT_LOCK:
        return state == SIM_CHECKPOINT_RUNNING;
    case SIM_CHECKPOINT_RESTORE:
        return state == SIM_CHECKPOINT_DONE;
    default:
        return state == SIM_CHECKPOINT_LOCKED;
    }
}

static bool is_asked(const struct sim_checkpoint *checkpoint)
{
    return checkpoint->request != checkpoint->answered;
}

/* -EBUSY: another step is not over. */
static int ask_locked(struct sim_checkpoint *checkpoint, enum sim_checkpoint_kind kind,
    uint64_t until_ns, uint32_t *ret_request)
{
    if (!kind_is_for(kind, checkpoint->state))
        return -EINVAL;
    if (is_asked(checkpoint))
        return -EBUSY;
    checkpoint->kind = kind;
    checkpoint->until_ns = until_ns;
    *ret_request = checkpoint->request + 1;
    set_word(&checkpoint->request, *ret_request);
    return 0;
}

/* -EBUSY: not yet. What is late is given up, in favour of an answer that has come. */
static int look_locked(
    struct sim_checkpoint *checkpoint, uint32_t request, bool late, uint32_t *ret_result)
{
    if (checkpoint->answered == request) {
        *ret_result = checkpoint->result;
        return 0;
    }
    if (!late)
        return -EBUSY;
    set_word(&checkpoint->answered, request);
    return -ETIMEDOUT;
}

/* The answer of a step that its process gave up for its time. */
#define RESULT_LATE UINT32_MAX

int sim_checkpoint_ask(const struct sim_checkpoint_process *process, enum sim_checkpoint_kind kind,
    uint64_t until_ns, uint32_t *ret_result)
{
    uint32_t request = 0, result = 0;
    bool asked = false;
    for (;;) {
        bool late = sim_clock_ns() >= until_ns;
        int error = -ESRCH;
        sim_lock();
        struct sim_checkpoint *checkpoint = checkpoint_of_locked(process);
        if (checkpoint != NULL && asked)
            error = look_locked(checkpoint, request, late, &result);
        else if (checkpoint != NULL)
            error = ask_locked(checkpoint, kind, until_ns, &request);
        sim_unlock();
        if (error == 0 && asked) {
            *ret_result = result;
            return result == RESULT_LATE ? -ETIMEDOUT : 0;
        }
        asked |= error == 0;
        if (error == -EBUSY && !asked && late)
            return -ETIMEDOUT;
        if (error != 0 && error != -EBUSY)
            return error;
        if (thread_probe(process->pid, process->thread) == -ESRCH)
            return -ESRCH;
        nap();
    }
}

/* ---- the process that is asked ---- */

int sim_checkpoint_serve(int fd, pid_t thread, struct sim_checkpoint_process *ret_self)
{
    sim_lock();
    uint32_t index = sim_slot_of_locked(fd);
    if (index != SIM_NONE) {
        struct sim_slot *slot = &sim_machine->slots[index];
        slot->checkpoint = (struct sim_checkpoint){.thread = thread};
        *ret_self = (struct sim_checkpoint_process){
            .slot = index, .generation = slot->generation, .pid = slot->pid, .thread = thread};
    }
    sim_unlock();
    return index != SIM_NONE ? 0 : -EBADF;
}

bool sim_checkpoint_asked(const struct sim_checkpoint_process *self, uint32_t *ret_request)
{
    const struct sim_checkpoint *checkpoint = &sim_machine->slots[self->slot].checkpoint;
    uint32_t request = __atomic_load_n(&checkpoint->request, __ATOMIC_ACQUIRE);
    *ret_request = request;
    return request != __atomic_load_n(&checkpoint->answered, __ATOMIC_ACQUIRE);
}

bool sim_checkpoint_open(
    const struct sim_checkpoint_process *self, uint32_t request, enum sim_checkpoint_kind *ret_kind)
{
    bool open = false;
    sim_lock();
    struct sim_checkpoint *checkpoint = checkpoint_of_locked(self);
    if (checkpoint != NULL && is_asked(checkpoint) && checkpoint->request == request) {
        open = sim_clock_ns() < checkpoint->until_ns;
        if (open)
            *ret_kind = checkpoint->kind;
        else
            checkpoint->result = RESULT_LATE, set_word(&checkpoint->answered, request);
    }
    sim_unlock();
    return open;
}

bool sim_checkpoint_answer(const struct sim_checkpoint_process *self, uint32_t request,
    enum sim_checkpoint_state state, uint32_t result)
{
    sim_lock();
    struct sim_checkpoint *checkpoint = checkpoint_of_locked(self);
    bool open = checkpoint != NULL && is_asked(checkpoint) && checkpoint->request == request;
    if (open) {
        checkpoint->state = state;
        checkpoint->result = result;
        set_word(&checkpoint->answered, request);
    }
    sim_unlock();
    return open;
}

enum sim_checkpoint_state sim_checkpoint_own_state(const struct sim_checkpoint_process *self)
{
    return __atomic_load_n(&sim_machine->slots[self->slot].checkpoint.state, __ATOMIC_ACQUIRE);
}

bool sim_checkpoint_is_idle(const struct sim_checkpoint_process *self)
{
    bool idle = true;
    sim_lock();
    (void)sim_timeline_advance_locked();
    for (uint32_t i = 0; i < timeline()->rings_end && idle; i++)
        idle = !ring_at(i)->live || group_at(ring_at(i)->group)->slot != self->slot;
    sim_unlock();
    return idle;
}

bool sim_checkpoint_is_enabled(const struct sim_checkpoint_process *self)
{
    bool enabled = true;
    sim_lock();
    for (uint32_t i = 0; i < timeline()->groups_end && enabled; i++) {
        const struct sim_group *group = group_at(i);
        enabled = !group->live || group->slot != self->slot || !group->stopped;
    }
    sim_unlock();
    return enabled;
}

size_t sim_memory_objects(uint32_t client_handle, struct sim_memory_object *ret_objects, size_t max)
{
    size_t count = 0;
    sim_lock();
    uint32_t client = sim_client_find_locked(client_handle);
    for (uint32_t i = 0; client != SIM_NONE && i < sim_machine->objects_end; i++) {
        const struct sim_object *object = &sim_machine->objects[i];
        if (!object->live || object->client != client || object->memory == SIM_NONE)
            continue;
        const struct sim_memory *memory = &sim_machine->memories[object->memory];
        if (count < max)
            ret_objects[count] = (struct sim_memory_object){.handle = object->handle,
                .parent = object->parent == SIM_NONE ? client_handle
                                                     : sim_machine->objects[object->parent].handle,
                .bytes = memory->bytes,
                .mapped = object->mapped != 0,
                .shared = object->shared != 0,
                .held = memory->references > 1};
        count++;
    }
    sim_unlock();
    return count;
}
