/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's talk with the resource manager: one descriptor and one client per process, device
 * memory, channel groups and channels, each an object allocated by ioctl as the real driver does.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "abi/rm.h"
#include "sim/cuda_sim.h"
#include "sim/machine_layout.h"

static int descriptor = -1;
static uint32_t client;

int rm_descriptor(void)
{
    return descriptor;
}

uint32_t rm_client(void)
{
    return client;
}

static CUresult rm_result(int rc, uint32_t status)
{
    if (rc != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    switch (status) {
    case RM_OK:
        return CUDA_SUCCESS;
    case RM_ERR_NO_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case RM_ERR_INSUFFICIENT_PERMISSIONS:
        return CUDA_ERROR_NOT_PERMITTED;
    case RM_ERR_NOT_SUPPORTED:
        return CUDA_ERROR_NOT_SUPPORTED;
    case RM_ERR_INVALID_ARGUMENT:
    case RM_ERR_INVALID_OBJECT_HANDLE:
    case RM_ERR_OBJECT_NOT_FOUND:
        return CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_UNKNOWN;
    }
}

static CUresult rm_alloc21(
    uint32_t parent, uint32_t class_id, void *params, uint32_t size, uint32_t *ret_object)
{
    struct rm_alloc21 call = {.client = client,
        .parent = parent,
        .class_id = class_id,
        .params = (uint64_t)(uintptr_t)params,
        .params_size = size};
    CUresult r;
    int rc = sim_rm_ioctl(descriptor, RM_IOCTL_ALLOC21, &call);

    r = rm_result(rc, call.status);
    if (r == CUDA_SUCCESS)
        *ret_object = call.object;
    return r;
}

/* The kernel picks the handle. */
static CUresult rm_alloc(
    uint32_t parent, uint32_t class_id, void *params, uint32_t size, uint32_t *ret_object)
{
    struct rm_alloc64 call = {.client = client,
        .parent = parent,
        .class_id = class_id,
        .params = (uint64_t)(uintptr_t)params,
        .params_size = size};
    CUresult r;
    int rc;

    if (sim_description()->nvos21)
        return rm_alloc21(parent, class_id, params, size, ret_object);
    rc = sim_rm_ioctl(descriptor, RM_IOCTL_ALLOC64, &call);
    r = rm_result(rc, call.status);
    if (r == CUDA_SUCCESS)
        *ret_object = call.object;
    return r;
}

void rm_free(uint32_t parent, uint32_t handle)
{
    struct rm_free call = {.client = client, .parent = parent, .object = handle};

    if (handle && sim_rm_ioctl(descriptor, RM_IOCTL_FREE, &call) != 0)
        fprintf(stderr, "sim cuda: the RM device does not take a free: errno %d\n", errno);
}

static CUresult rm_control(uint32_t object, uint32_t cmd, void *params, uint32_t size)
{
    struct rm_control call = {.client = client,
        .object = object,
        .cmd = cmd,
        .params = (uint64_t)(uintptr_t)params,
        .params_size = size};
    int rc = sim_rm_ioctl(descriptor, RM_IOCTL_CONTROL, &call);

    return rm_result(rc, call.status);
}

CUresult rm_open(void)
{
    struct rm_client_params params = {0};
    CUresult r;

    descriptor = sim_rm_open();
    if (descriptor < 0) {
        fprintf(stderr, "sim cuda: no descriptor of the RM device: error %d\n", -descriptor);
        return CUDA_ERROR_NO_DEVICE;
    }
    client = 0;
    r = rm_alloc(0, RM_CLASS_CLIENT, &params, sizeof params, &client);
    if (r != CUDA_SUCCESS) {
        fprintf(
            stderr, "sim cuda: the RM device gives no client (is libvgpu-sim-rm.so preloaded?)\n");
        close(descriptor);
        descriptor = -1;
        return CUDA_ERROR_NO_DEVICE;
    }
    return CUDA_SUCCESS;
}

void rm_close(void)
{
    /* The last close frees all that the client holds. */
    close(descriptor);
    descriptor = -1;
    client = 0;
}

CUresult rm_device_open(struct device *device)
{
    struct rm_device_params params = {.device_id = device->index};
    struct rm_subdevice_params subdevice = {0};
    CUresult r;

    if (device->rm_device)
        return CUDA_SUCCESS;
    r = rm_alloc(client, RM_CLASS_DEVICE, &params, sizeof params, &device->rm_device);
    if (r != CUDA_SUCCESS)
        return r;
    r = rm_alloc(
        device->rm_device, RM_CLASS_SUBDEVICE, &subdevice, sizeof subdevice, &device->rm_subdevice);
    if (r != CUDA_SUCCESS) {
        rm_free(client, device->rm_device);
        device->rm_device = 0;
    }
    return r;
}

CUresult rm_memory_create(struct device *device, uint64_t bytes, struct rm_object *ret_object)
{
    struct rm_memory_params params = {.alignment = MEMORY_PAGE_BYTES};
    uint32_t handle = 0;
    CUresult r;

    /* Sizes near 2^64 would wrap to nothing; no card has a quarter of that. */
    if (bytes == 0 || bytes > UINT64_MAX / 4)
        return CUDA_ERROR_OUT_OF_MEMORY;
    params.size = round_up(bytes, MEMORY_PAGE_BYTES);
    r = rm_alloc(device->rm_device, RM_CLASS_MEMORY_LOCAL, &params, sizeof params, &handle);
    if (r == CUDA_SUCCESS)
        *ret_object = (struct rm_object){handle, params.size};
    return r;
}

CUresult rm_memory_dup(struct device *device, uint32_t client_src, uint32_t handle, uint64_t bytes,
    struct rm_object *ret_object)
{
    struct rm_dup call = {.client = client,
        .parent = device->rm_device,
        .client_src = client_src,
        .object_src = handle};
    int rc = sim_rm_ioctl(descriptor, RM_IOCTL_DUP_OBJECT, &call);
    CUresult r = rm_result(rc, call.status);

    if (r == CUDA_SUCCESS)
        *ret_object = (struct rm_object){call.object, bytes};
    return r;
}

CUresult rm_memory_export(struct device *device, const struct rm_object *object, int *ret_fd)
{
    struct rm_export_object params = {.type = RM_EXPORT_TYPE_RM,
        .device = device->rm_device,
        .parent = device->rm_device,
        .object = object->handle};
    CUresult r;

    params.fd = sim_rm_open();
    if (params.fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    r = rm_control(client, RM_CTRL_EXPORT_OBJECT_TO_FD, &params, sizeof params);
    if (r == CUDA_SUCCESS)
        *ret_fd = params.fd;
    else
        close(params.fd);
    return r;
}

CUresult rm_memory_import(
    struct device *device, int fd, uint64_t bytes, struct rm_object *ret_object)
{
    struct rm_import_object params = {.fd = fd,
        .type = RM_EXPORT_TYPE_RM,
        .device = device->rm_device,
        .parent = device->rm_device};
    CUresult r = rm_control(client, RM_CTRL_IMPORT_OBJECT_FROM_FD, &params, sizeof params);

    if (r == CUDA_SUCCESS)
        *ret_object = (struct rm_object){params.object, bytes};
    return r;
}

void rm_memory_destroy(struct device *device, struct rm_object *object)
{
    rm_free(device->rm_device, object->handle);
    *object = (struct rm_object){0};
}

/* The real driver writes metadata beside the object; here the machine is asked. */
CUresult rm_export_describe(int fd, unsigned *ret_device, uint64_t *ret_bytes)
{
    CUresult r = CUDA_ERROR_INVALID_VALUE;
    uint32_t slot;

    sim_lock();
    slot = sim_slot_of_locked(fd);
    if (slot != SIM_NONE && sim_machine->slots[slot].exported != SIM_NONE) {
        const struct sim_memory *memory = &sim_machine->memories[sim_machine->slots[slot].exported];

        *ret_device = memory->device;
        *ret_bytes = memory->bytes;
        r = CUDA_SUCCESS;
    }
    sim_unlock();
    return r;
}

CUresult rm_group_create(struct device *device, uint32_t engine, uint32_t *ret_group)
{
    struct rm_channel_group_params params = {.engine_type = engine};

    return rm_alloc(device->rm_device, RM_CLASS_CHANNEL_GROUP, &params, sizeof params, ret_group);
}

CUresult rm_channel_create(uint32_t group, uint32_t *ret_channel)
{
    struct rm_channel_params params = {.gpfifo_entries = 1024};

    return rm_alloc(group, RM_CLASS_CHANNEL_HOPPER, &params, sizeof params, ret_channel);
}
