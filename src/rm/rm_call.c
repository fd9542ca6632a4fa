/* SPDX-License-Identifier: Apache-2.0 */
/* The forms of the resource manager's calls. */
#include "rm/rm_call.h"

#include "abi/rm.h"
#include "base/own_memory.h"

#include <errno.h>
#include <string.h>

/* Parameters of memory are understood up to here; later members differ between drivers. */
#define MEMORY_PARAMS_MIN offsetof(struct rm_memory_params, offset)

bool rm_call_open(struct rm_call *ret_call, int fd, unsigned long request, void *argument,
    rm_ioctl_function *next)
{
    struct rm_xfer wrapper;
    *ret_call = (struct rm_call){.fd = fd,
        .request = request,
        .argument = argument,
        .next = next,
        .number = RM_REQUEST_NR(request),
        .bytes = RM_REQUEST_SIZE(request),
        .address = (uintptr_t)argument};
    if (ret_call->number != RM_NR_XFER)
        return argument != NULL;
    if (ret_call->bytes != sizeof(wrapper) ||
        !own_memory_read((uintptr_t)argument, &wrapper, sizeof(wrapper)))
        return false;
    ret_call->number = wrapper.nr;
    ret_call->bytes = wrapper.size;
    ret_call->address = wrapper.ptr;
    return wrapper.ptr != 0;
}

int rm_call_pass(const struct rm_call *call)
{
    return call->next(call->fd, call->request, call->argument);
}

bool rm_call_answer(const struct rm_call *call, int result, void *ret_structure, size_t bytes)
{
    return result == 0 && call->bytes == bytes &&
           own_memory_read(call->address, ret_structure, bytes);
}

/* Memory that may lie anywhere is sought on the device first. */
static bool is_device_memory(uint32_t attr, uint32_t flags)
{
    unsigned location = RM_MEMORY_LOCATION(attr);
    return (location == RM_MEMORY_LOCATION_VIDEO || location == RM_MEMORY_LOCATION_ANY) &&
           !(flags & RM_MEMORY_FLAG_VIRTUAL);
}

/* A size of 0 stands for the class's own; a smaller one than we know is another structure. */
static void read_memory_params(
    struct rm_allocation *allocation, uint64_t address, uint32_t params_size)
{
    struct rm_memory_params params;
    if ((params_size && params_size < MEMORY_PARAMS_MIN) ||
        !own_memory_read(address, &params, MEMORY_PARAMS_MIN) ||
        !is_device_memory(params.attr, params.flags))
        return;
    allocation->bytes = params.size;
    allocation->size_address = address + offsetof(struct rm_memory_params, size);
    allocation->attr_address = address + offsetof(struct rm_memory_params, attr);
}

/* As above: 0 stands for the class's own size. */
static void read_group_params(
    struct rm_allocation *allocation, uint64_t address, uint32_t params_size)
{
    struct rm_channel_group_params params;
    if ((!params_size || params_size >= sizeof(params)) &&
        own_memory_read(address, &params, sizeof(params)))
        allocation->engine_type = params.engine_type;
}

static bool read_alloc(const struct rm_call *call, struct rm_allocation *allocation)
{
    struct rm_alloc64 form = {0};
    bool is64 = call->bytes == sizeof(form);
    if ((!is64 && call->bytes != sizeof(struct rm_alloc21)) ||
        !own_memory_read(call->address, &form, call->bytes))
        return false;
    struct rm_alloc21 older;
    memcpy(&older, &form, sizeof(older));
    *allocation = (struct rm_allocation){.client = form.client,
        .parent = form.parent,
        .object = form.object,
        .class_id = form.class_id,
        .status_address = call->address + (is64 ? offsetof(struct rm_alloc64, status)
                                                : offsetof(struct rm_alloc21, status)),
        .object_address = call->address + offsetof(struct rm_alloc64, object)};
    uint32_t params_size = is64 ? form.params_size : older.params_size;
    if (form.class_id == RM_CLASS_MEMORY_LOCAL && form.params)
        read_memory_params(allocation, form.params, params_size);
    else if (form.class_id == RM_CLASS_CHANNEL_GROUP && form.params)
        read_group_params(allocation, form.params, params_size);
    return true;
}

/* The structure may be followed by a descriptor. */
static bool read_alloc_memory(const struct rm_call *call, struct rm_allocation *allocation)
{
    struct rm_alloc_memory form;
    if ((call->bytes != sizeof(form) && call->bytes != sizeof(struct rm_alloc_memory_fd)) ||
        !own_memory_read(call->address, &form, sizeof(form)))
        return false;
    *allocation = (struct rm_allocation){.client = form.client,
        .parent = form.parent,
        .object = form.object,
        .class_id = form.class_id,
        .status_address = call->address + offsetof(struct rm_alloc_memory, status),
        .object_address = call->address + offsetof(struct rm_alloc_memory, object)};
    if (form.class_id == RM_CLASS_MEMORY_LOCAL ||
        form.class_id == RM_CLASS_MEMORY_LOCAL_PRIVILEGED) {
        allocation->bytes = form.limit == UINT64_MAX ? form.limit : form.limit + 1;
        allocation->size_address = call->address + offsetof(struct rm_alloc_memory, limit);
        allocation->size_is_limit = true;
    }
    return true;
}

static bool read_vid_heap(const struct rm_call *call, struct rm_vid_heap *form)
{
    return call->bytes == sizeof(*form) && own_memory_read(call->address, form, sizeof(*form));
}

static bool read_vid_heap_memory(const struct rm_call *call, struct rm_allocation *allocation)
{
    struct rm_vid_heap form;
    if (!read_vid_heap(call, &form) || form.function != RM_VID_HEAP_ALLOC_SIZE)
        return false;
    const struct rm_vid_heap_memory *memory = &form.data.memory;
    uint64_t address = call->address + offsetof(struct rm_vid_heap, data);
    bool device = is_device_memory(memory->attr, memory->flags);
    *allocation = (struct rm_allocation){.client = form.client,
        .parent = form.parent,
        .object = memory->object,
        .class_id = device ? RM_CLASS_MEMORY_LOCAL : RM_CLASS_MEMORY_SYSTEM,
        .bytes = device ? memory->size : 0,
        .status_address = call->address + offsetof(struct rm_vid_heap, status),
        .object_address = address + offsetof(struct rm_vid_heap_memory, object),
        .size_address = device ? address + offsetof(struct rm_vid_heap_memory, size) : 0,
        .attr_address = address + offsetof(struct rm_vid_heap_memory, attr)};
    return true;
}

bool rm_call_allocation(const struct rm_call *call, struct rm_allocation *ret_allocation)
{
    switch (call->number) {
    case RM_NR_ALLOC:
        return read_alloc(call, ret_allocation);
    case RM_NR_ALLOC_MEMORY:
        return read_alloc_memory(call, ret_allocation);
    case RM_NR_VID_HEAP_CONTROL:
        return read_vid_heap_memory(call, ret_allocation);
    default:
        return false;
    }
}

static uint32_t status_at(uint64_t address)
{
    uint32_t status;
    return own_memory_read(address, &status, sizeof(status)) ? status : RM_ERR_INVALID_ARGUMENT;
}

uint32_t rm_allocation_answer(struct rm_allocation *allocation)
{
    uint32_t status = status_at(allocation->status_address), attr;
    if (status != RM_OK)
        return status;
    (void)!own_memory_read(
        allocation->object_address, &allocation->object, sizeof(allocation->object));
    uint64_t size;
    if (allocation->bytes && own_memory_read(allocation->size_address, &size, sizeof(size)))
        allocation->bytes = size + allocation->size_is_limit;
    if (allocation->bytes && own_memory_read(allocation->attr_address, &attr, sizeof(attr)) &&
        RM_MEMORY_LOCATION(attr) == RM_MEMORY_LOCATION_PCI)
        allocation->bytes = 0;
    return RM_OK;
}

int rm_allocation_refuse(const struct rm_allocation *allocation)
{
    uint32_t status = RM_ERR_NO_MEMORY;
    if (own_memory_write(allocation->status_address, &status, sizeof(status)))
        return 0;
    errno = EFAULT;
    return -1;
}

bool rm_call_release(const struct rm_call *call, struct rm_release *ret_release)
{
    struct rm_free form;
    struct rm_vid_heap heap;
    if (call->number == RM_NR_FREE && call->bytes == sizeof(form) &&
        own_memory_read(call->address, &form, sizeof(form))) {
        *ret_release = (struct rm_release){.client = form.client,
            .object = form.object,
            .status_address = call->address + offsetof(struct rm_free, status)};
        return true;
    }
    if (call->number == RM_NR_VID_HEAP_CONTROL && read_vid_heap(call, &heap) &&
        heap.function == RM_VID_HEAP_FREE) {
        *ret_release = (struct rm_release){.client = heap.client,
            .object = heap.data.memory.object,
            .status_address = call->address + offsetof(struct rm_vid_heap, status)};
        return true;
    }
    return false;
}

uint32_t rm_release_answer(const struct rm_release *release)
{
    return status_at(release->status_address);
}
