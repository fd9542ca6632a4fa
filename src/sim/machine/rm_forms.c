/* SPDX-License-Identifier: Apache-2.0 */
/* The forms in which the simulated resource manager is asked for objects: RM_ALLOC in three sizes,
 * RM_ALLOC_MEMORY and RM_VID_HEAP_CONTROL. */
#include "sim/machine/rm.h"

#include "sim/machine/machine.h"
#include "sim/machine/machine_layout.h"

#include <errno.h>
#include <string.h>

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)
        address; // NOLINT(performance-no-int-to-ptr): that is how the ABI carries it
}

int sim_rm_call_alloc(uint32_t slot, void *arg, size_t size)
{
    /* All forms begin alike. */
    struct rm_alloc21 *form = arg;
    struct rm_alloc64 *form64 = arg;
    bool is64 = size == sizeof(struct rm_alloc64);
    is64 |= size == sizeof(struct sim_rm_alloc_long) && sim_description()->long_calls;
    if (!is64 && size != sizeof(struct rm_alloc21))
        return EINVAL;
    struct sim_rm_alloc call = {.client = form->client,
        .parent = form->parent,
        .object = form->object,
        .class_id = form->class_id,
        .params = pointer(form->params),
        .params_size = is64 ? form64->params_size : form->params_size};
    uint32_t status = sim_rm_alloc_locked(slot, &call);
    form->object = call.object;
    *(is64 ? &form64->status : &form->status) = status;
    return 0;
}

int sim_rm_call_alloc_memory(uint32_t slot, void *arg, size_t size)
{
    if (size < sizeof(struct rm_alloc_memory))
        return EINVAL;
    struct rm_alloc_memory *form = arg;
    bool is_local = form->class_id == RM_CLASS_MEMORY_LOCAL ||
                    form->class_id == RM_CLASS_MEMORY_LOCAL_PRIVILEGED;
    struct rm_memory_params params = {.size = form->limit + 1};
    struct sim_rm_alloc call = {.client = form->client,
        .parent = form->parent,
        .object = form->object,
        .class_id = is_local ? RM_CLASS_MEMORY_LOCAL : form->class_id,
        .params = is_local ? &params : NULL,
        .params_size = is_local ? sizeof params : 0};
    form->status = sim_rm_alloc_locked(slot, &call);
    form->object = call.object;
    if (is_local && form->status == RM_OK)
        form->limit = params.size - 1;
    return 0;
}

static uint32_t heap_alloc(uint32_t slot, struct rm_vid_heap *form)
{
    struct rm_vid_heap_memory *memory = &form->data.memory;
    struct rm_memory_params params = {.type = memory->type,
        .flags = memory->flags,
        .attr = memory->attr,
        .size = memory->size,
        .alignment = memory->alignment};
    /* Memory that may lie anywhere is taken from the device (assumed). */
    if (RM_MEMORY_LOCATION(params.attr) == RM_MEMORY_LOCATION_ANY)
        params.attr &= ~(3u << 25);
    struct sim_rm_alloc call = {.client = form->client,
        .parent = form->parent,
        .object = memory->object,
        .class_id = RM_CLASS_MEMORY_LOCAL,
        .params = &params,
        .params_size = sizeof params};
    uint32_t status = sim_rm_alloc_locked(slot, &call);
    if (status == RM_OK) {
        memory->object = call.object;
        memory->size = params.size;
        memory->attr = params.attr;
    }
    return status;
}

int sim_rm_call_vid_heap(uint32_t slot, void *arg, size_t size)
{
    struct rm_vid_heap *form = arg;
    if (size != sizeof *form)
        return EINVAL;
    if (form->function == RM_VID_HEAP_ALLOC_SIZE)
        form->status = heap_alloc(slot, form);
    else if (form->function == RM_VID_HEAP_FREE)
        form->status = sim_rm_free_locked(slot, form->client, form->data.memory.object);
    else
        form->status = RM_ERR_NOT_SUPPORTED;
    return 0;
}
