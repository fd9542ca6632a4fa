/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated resource manager's calls: duplicating and sharing objects, and the way to each
 * call. */
#include "sim/machine/rm.h"

#include "sim/machine/machine.h"
#include "sim/machine/machine_layout.h"
#include "sim/machine/rm_objects.h"

#include <errno.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)
        address; // NOLINT(performance-no-int-to-ptr): that is how the ABI carries it
}

static uint32_t execute_dup(uint32_t slot, struct rm_dup *form)
{
    const struct sim_rule *rule;
    if (sim_rule_hits(SIM_RULE_RM_DUP, NULL, 0, &rule))
        return rule->code;
    struct sim_object_request request = {.handle = form->object};
    uint32_t status = sim_rm_client_locked(slot, form->client, &request.client);
    if (status == RM_OK)
        status = sim_rm_object_locked(request.client, form->parent, &request.parent);
    if (status == RM_OK)
        status = sim_rm_handle_free_locked(request.client, request.handle);
    if (status != RM_OK)
        return status;
    /* The source may be another process' (IPC) if it was shared. */
    uint32_t client = sim_client_find_locked(form->client_src);
    if (client == SIM_NONE)
        return RM_ERR_INVALID_CLIENT;
    uint32_t source = sim_object_find_locked(client, form->object_src);
    if (source == SIM_NONE)
        return RM_ERR_OBJECT_NOT_FOUND;
    const struct sim_object *original = &sim_machine->objects[source];
    uint32_t owner = sim_machine->clients[client].slot;
    if (!original->shared && sim_machine->slots[owner].pid != sim_machine->slots[slot].pid)
        return RM_ERR_INSUFFICIENT_PERMISSIONS;
    request.class_id = original->class_id;
    request.memory = original->memory;
    request.engine_type = original->engine_type;
    request.timeslice_us = original->timeslice_us;
    request.device =
        request.parent == SIM_NONE ? original->device : sim_machine->objects[request.parent].device;
    uint32_t object = sim_object_create_locked(&request);
    if (object == SIM_NONE)
        return RM_ERR_INSUFFICIENT_RESOURCES;
    form->object = sim_machine->objects[object].handle;
    return RM_OK;
}

/* The policy is not read: a process that shares, shares with all (assumed). */
static uint32_t execute_share(uint32_t slot, const struct rm_share *form)
{
    uint32_t client, object;
    uint32_t status = sim_rm_client_locked(slot, form->client, &client);
    if (status == RM_OK)
        status = sim_rm_object_locked(client, form->object, &object);
    if (status == RM_OK && object != SIM_NONE)
        sim_machine->objects[object].shared = 1;
    return status;
}

void sim_memory_map(int fd, uint32_t client_handle, uint32_t handle, bool mapped)
{
    uint32_t client, object;
    sim_lock();
    uint32_t slot = sim_slot_of_locked(fd);
    if (slot != SIM_NONE && sim_rm_client_locked(slot, client_handle, &client) == RM_OK &&
        sim_rm_object_locked(client, handle, &object) == RM_OK && object != SIM_NONE &&
        sim_machine->objects[object].memory != SIM_NONE)
        sim_object_map_locked(object, mapped);
    sim_unlock();
}

#define CALL_NAME_BYTES 40

/* How the call is counted; empty: it is not. */
static void name_call(unsigned nr, const void *arg, char ret_name[CALL_NAME_BYTES])
{
    const char *name = "";
    uint32_t number = 0;
    if (nr == RM_NR_ALLOC)
        name = "RM_ALLOC", number = ((const struct rm_alloc21 *)arg)->class_id;
    else if (nr == RM_NR_ALLOC_MEMORY)
        name = "RM_ALLOC_MEMORY", number = ((const struct rm_alloc_memory *)arg)->class_id;
    else if (nr == RM_NR_CONTROL)
        name = "RM_CONTROL", number = ((const struct rm_control *)arg)->cmd;
    else if (nr == RM_NR_FREE)
        name = "RM_FREE";
    else if (nr == RM_NR_DUP_OBJECT)
        name = "RM_DUP_OBJECT";
    else if (nr == RM_NR_SHARE)
        name = "RM_SHARE";
    else if (nr == RM_NR_VID_HEAP_CONTROL)
        name = "RM_VID_HEAP_CONTROL";
    else if (nr == RM_NR_EXPORT_TO_DMABUF)
        name = "RM_EXPORT_TO_DMABUF";
    bool has_number = nr == RM_NR_ALLOC || nr == RM_NR_ALLOC_MEMORY || nr == RM_NR_CONTROL;
    snprintf(ret_name, CALL_NAME_BYTES, has_number ? "%s 0x%x" : "%s", name, number);
}

/* Where the call's answer goes; NULL for what has none or another form. */
static uint32_t *status_of(unsigned nr, void *arg, size_t size)
{
    if (nr == RM_NR_ALLOC && size == sizeof(struct rm_alloc64))
        return &((struct rm_alloc64 *)arg)->status;
    if (nr == RM_NR_ALLOC && size == sizeof(struct rm_alloc21))
        return &((struct rm_alloc21 *)arg)->status;
    if (nr == RM_NR_ALLOC_MEMORY && size >= sizeof(struct rm_alloc_memory))
        return &((struct rm_alloc_memory *)arg)->status;
    if (nr == RM_NR_FREE && size == sizeof(struct rm_free))
        return &((struct rm_free *)arg)->status;
    if (nr == RM_NR_DUP_OBJECT && size == sizeof(struct rm_dup))
        return &((struct rm_dup *)arg)->status;
    if (nr == RM_NR_SHARE && size == sizeof(struct rm_share))
        return &((struct rm_share *)arg)->status;
    if (nr == RM_NR_VID_HEAP_CONTROL && size == sizeof(struct rm_vid_heap))
        return &((struct rm_vid_heap *)arg)->status;
    if (nr == RM_NR_CONTROL && size == sizeof(struct rm_control))
        return &((struct rm_control *)arg)->status;
    if (nr == RM_NR_EXPORT_TO_DMABUF && size == sizeof(struct rm_export_dmabuf))
        return &((struct rm_export_dmabuf *)arg)->status;
    return NULL;
}

/* Counts the call; true where a rule for whichever call has answered it. */
static bool count_call(unsigned nr, void *arg, size_t size)
{
    const struct sim_rule *rule;
    char name[CALL_NAME_BYTES];
    uint32_t *status = status_of(nr, arg, size);
    name_call(nr, arg, name);
    if (!name[0])
        return false;
    sim_count(name);
    if (status == NULL || !sim_rule_hits(SIM_RULE_RM, NULL, 0, &rule))
        return false;
    sim_count_failed(name);
    *status = rule->code;
    return true;
}

/* Returns 0 or an errno. */
static int dispatch_locked(uint32_t slot, unsigned nr, void *arg, size_t size)
{
    switch (nr) {
    case RM_NR_ALLOC:
        return sim_rm_call_alloc(slot, arg, size);
    case RM_NR_ALLOC_MEMORY:
        return sim_rm_call_alloc_memory(slot, arg, size);
    case RM_NR_VID_HEAP_CONTROL:
        return sim_rm_call_vid_heap(slot, arg, size);
    case RM_NR_FREE: {
        struct rm_free *form = arg;
        if (size != sizeof *form)
            return EINVAL;
        form->status = sim_rm_free_locked(slot, form->client, form->object);
        return 0;
    }
    case RM_NR_DUP_OBJECT: {
        struct rm_dup *form = arg;
        if (size != sizeof *form)
            return EINVAL;
        form->status = execute_dup(slot, form);
        return 0;
    }
    case RM_NR_SHARE: {
        struct rm_share *form = arg;
        if (size != sizeof *form)
            return EINVAL;
        form->status = execute_share(slot, form);
        return 0;
    }
    case RM_NR_CONTROL: {
        struct rm_control *form = arg;
        if (size != sizeof *form)
            return EINVAL;
        form->status = sim_rm_control_locked(slot, form);
        return 0;
    }
    default:
        return nr == SIM_RM_NR_NEW && sim_description()->new_objects ? 0 : EINVAL;
    }
}

/* A dma-buf's descriptor is one of the machine's, which holds the memory while it is open. */
static int execute_dmabuf(int fd, struct rm_export_dmabuf *form)
{
    bool is_new = form->fd < 0;
    int made = is_new ? sim_rm_open() : form->fd;
    sim_lock();
    form->status = RM_ERR_INVALID_ARGUMENT;
    if (made >= 0 && sim_slot_of_locked(fd) != SIM_NONE)
        form->status = sim_rm_export_dmabuf(form, made);
    sim_unlock();
    if (form->status == RM_OK)
        form->fd = made;
    else if (is_new && made >= 0)
        close(made);
    return 0;
}

/* A sandbox that passes on what it knows CUDA programs to need. */
static bool is_filtered(const struct rm_control *form)
{
    return sim_description()->filter_errno != 0 && form->object != form->client;
}

int sim_rm_execute(int fd, unsigned long request, void *arg)
{
    int error = sim_attach();
    if (error != 0 || RM_REQUEST_TYPE(request) != RM_IOCTL_TYPE || !sim_file_is(fd)) {
        errno = ENOTTY;
        return -1;
    }
    unsigned nr = RM_REQUEST_NR(request);
    size_t size = RM_REQUEST_SIZE(request);
    if (nr == RM_NR_XFER && size == sizeof(struct rm_xfer) && arg != NULL) {
        const struct rm_xfer *wrapped = arg;
        nr = wrapped->nr;
        size = wrapped->size;
        arg = pointer(wrapped->ptr);
    }
    if (arg == NULL) {
        errno = EFAULT;
        return -1;
    }
    int saved = errno;
    if (nr == RM_NR_CONTROL && size == sizeof(struct rm_control) && is_filtered(arg)) {
        errno = sim_description()->filter_errno;
        return -1;
    }
    if (count_call(nr, arg, size)) {
        errno = saved;
        return 0;
    }
    if (nr == RM_NR_EXPORT_TO_DMABUF && size == sizeof(struct rm_export_dmabuf)) {
        errno = saved;
        return execute_dmabuf(fd, arg);
    }
    sim_lock();
    uint32_t slot = sim_slot_of_locked(fd);
    error = slot == SIM_NONE ? EINVAL : dispatch_locked(slot, nr, arg, size);
    sim_unlock();
    errno = error != 0 ? error : saved;
    return error != 0 ? -1 : 0;
}

int sim_rm_ioctl(int fd, unsigned long request, void *arg)
{
    const struct sim_description *own = sim_description();
    if (!own->no_rm || own->sandbox_errno != 0) {
        int saved = errno;
        int result = ioctl(fd, request, arg);
        if (result == 0 || (errno != ENOTTY && errno != own->sandbox_errno))
            return result;
        errno = saved;
    }
    return sim_rm_execute(fd, request, arg);
}
