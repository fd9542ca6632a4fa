/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's talk with the resource manager: one descriptor and one client per process, device
 * memory, channel groups and channels, each an object allocated by ioctl as the real driver does.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/rm.h"
#include "sim/cuda/cuda_sim.h"
#include "sim/machine/rm.h"

/* Ours; what the driver writes beside an exported object was not looked into. */
#define METADATA_MAGIC 0x31434d5650475655ull
struct export_metadata {
    uint64_t magic;
    uint64_t bytes;
};

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

/* A call as the described driver makes it: wrapped, or not. */
static int rm_call(unsigned nr, void *form, size_t size)
{
    struct rm_xfer wrapper = {.nr = nr, .size = (uint32_t)size, .ptr = (uint64_t)(uintptr_t)form};

    return sim_description()->xfer ? sim_rm_ioctl(descriptor, RM_IOCTL_XFER, &wrapper)
                                   : sim_rm_ioctl(descriptor, RM_REQUEST(nr, size), form);
}

/* More than any class' parameters have today. */
#define LONG_PARAMS_BYTES 256

/* size 0: that of the class' parameters, which the kernel takes for 0, and libcuda does so (seen on
 * H200, driver 580.159.04). wanted 0: the kernel picks the handle. */
static CUresult rm_alloc_sized(uint32_t parent, uint32_t wanted, uint32_t class_id, void *params,
    uint32_t size, uint32_t *ret_object)
{
    const struct sim_description *described = sim_description();
    struct sim_rm_alloc_long form = {.call = {.client = client,
                                         .parent = parent,
                                         .object = wanted,
                                         .class_id = class_id,
                                         .params = (uint64_t)(uintptr_t)params,
                                         .params_size = size}};
    struct rm_alloc21 older = {.client = client,
        .parent = parent,
        .object = wanted,
        .class_id = class_id,
        .params = form.call.params,
        .params_size = size};
    bool is_older = described->nvos21 && !described->long_calls;
    int rc = is_older ? rm_call(RM_NR_ALLOC, &older, sizeof older)
                      : rm_call(RM_NR_ALLOC, &form,
                            described->long_calls ? sizeof form : sizeof form.call);
    CUresult r = rm_result(rc, is_older ? older.status : form.call.status);

    if (r == CUDA_SUCCESS)
        *ret_object = is_older ? older.object : form.call.object;
    return r;
}

static CUresult rm_alloc_as(uint32_t parent, uint32_t wanted, uint32_t class_id, void *params,
    size_t params_bytes, uint32_t *ret_object)
{
    unsigned char longer[LONG_PARAMS_BYTES] = {0};
    CUresult r;

    if (!sim_description()->long_params)
        return rm_alloc_sized(parent, wanted, class_id, params, 0, ret_object);
    memcpy(longer, params, params_bytes);
    r = rm_alloc_sized(parent, wanted, class_id, longer, sizeof longer, ret_object);
    memcpy(params, longer, params_bytes);
    return r;
}

static CUresult rm_alloc(
    uint32_t parent, uint32_t class_id, void *params, size_t params_bytes, uint32_t *ret_object)
{
    return rm_alloc_as(parent, 0, class_id, params, params_bytes, ret_object);
}

void rm_free(uint32_t parent, uint32_t handle)
{
    struct rm_free call = {.client = client, .parent = parent, .object = handle};

    if (handle && rm_call(RM_NR_FREE, &call, sizeof call) != 0)
        fprintf(stderr, "sim cuda: the RM device does not take a free: errno %d\n", errno);
}

static CUresult rm_control(uint32_t object, uint32_t cmd, void *params, uint32_t size)
{
    struct rm_control call = {.client = client,
        .object = object,
        .cmd = cmd,
        .params = (uint64_t)(uintptr_t)params,
        .params_size = size};
    int rc = rm_call(RM_NR_CONTROL, &call, sizeof call);

    return rm_result(rc, call.status);
}

CUresult rm_client_begin(void)
{
    struct rm_client_params params = {0};

    client = 0;
    return rm_alloc(0, RM_CLASS_CLIENT, &params, sizeof params, &client);
}

CUresult rm_client_end(void)
{
    struct rm_free call = {.client = client, .object = client};
    int rc = rm_call(RM_NR_FREE, &call, sizeof call);

    return rm_result(rc, call.status);
}

CUresult rm_open(void)
{
    CUresult r;

    descriptor = sim_rm_open();
    if (descriptor < 0) {
        fprintf(stderr, "sim cuda: no descriptor of the RM device: error %d\n", -descriptor);
        return CUDA_ERROR_NO_DEVICE;
    }
    r = rm_client_begin();
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

/* An object and a call of a future driver, unknown to the library. */
static void rm_new_objects(struct device *device)
{
    uint64_t params[4] = {0};
    uint32_t object;

    (void)!rm_alloc(device->rm_device, SIM_RM_CLASS_NEW_THING, params, sizeof params, &object);
    (void)!rm_call(SIM_RM_NR_NEW, params, sizeof params);
}

/* Under the handles that it had, if it had any. */
static CUresult rm_device_alloc(struct device *device)
{
    struct rm_device_params params = {.device_id = device->index};
    struct rm_subdevice_params subdevice = {0};
    CUresult r = rm_alloc_as(
        client, device->rm_device, RM_CLASS_DEVICE, &params, sizeof params, &device->rm_device);

    if (r != CUDA_SUCCESS)
        return r;
    return rm_alloc_as(device->rm_device, device->rm_subdevice, RM_CLASS_SUBDEVICE, &subdevice,
        sizeof subdevice, &device->rm_subdevice);
}

CUresult rm_device_restore(struct device *device)
{
    return device->rm_device ? rm_device_alloc(device) : CUDA_SUCCESS;
}

CUresult rm_device_open(struct device *device)
{
    CUresult r;

    if (device->rm_device)
        return CUDA_SUCCESS;
    r = rm_device_alloc(device);
    if (r != CUDA_SUCCESS) {
        rm_free(client, device->rm_device);
        device->rm_device = 0;
    }
    if (r == CUDA_SUCCESS && sim_description()->new_objects)
        rm_new_objects(device);
    return r;
}

static CUresult rm_alloc_by_alloc(
    struct device *device, uint32_t class_id, uint64_t *bytes, uint32_t *ret_handle)
{
    struct rm_memory_params params = {.size = *bytes, .alignment = MEMORY_PAGE_BYTES};
    CUresult r = rm_alloc(device->rm_device, class_id, &params, sizeof params, ret_handle);

    *bytes = params.size;
    return r;
}

static CUresult rm_alloc_by_alloc_memory(
    struct device *device, uint64_t *bytes, uint32_t *ret_handle)
{
    struct rm_alloc_memory_fd form = {.call = {.client = client,
                                          .parent = device->rm_device,
                                          .class_id = RM_CLASS_MEMORY_LOCAL,
                                          .limit = *bytes - 1},
        .fd = -1};
    int rc = rm_call(RM_NR_ALLOC_MEMORY, &form, sizeof form);

    *bytes = form.call.limit + 1;
    *ret_handle = form.call.object;
    return rm_result(rc, form.call.status);
}

static CUresult rm_alloc_by_vid_heap(struct device *device, uint64_t *bytes, uint32_t *ret_handle)
{
    struct rm_vid_heap form = {.client = client,
        .parent = device->rm_device,
        .function = RM_VID_HEAP_ALLOC_SIZE,
        .data.memory = {.owner = client, .size = *bytes, .alignment = MEMORY_PAGE_BYTES}};
    int rc = rm_call(RM_NR_VID_HEAP_CONTROL, &form, sizeof form);

    *bytes = form.data.memory.size;
    *ret_handle = form.data.memory.object;
    return rm_result(rc, form.status);
}

static CUresult rm_memory_new(
    struct device *device, uint32_t class_id, uint64_t bytes, struct rm_object *ret_object)
{
    enum sim_rm_form form = class_id ? SIM_RM_FORM_ALLOC : sim_description()->memory_form;
    uint32_t handle = 0;
    CUresult r;

    /* Sizes near 2^64 would wrap to nothing; no card has a quarter of that. */
    if (bytes == 0 || bytes > UINT64_MAX / 4)
        return CUDA_ERROR_OUT_OF_MEMORY;
    bytes = round_up(bytes, MEMORY_PAGE_BYTES);
    if (form == SIM_RM_FORM_VID_HEAP)
        r = rm_alloc_by_vid_heap(device, &bytes, &handle);
    else if (form == SIM_RM_FORM_ALLOC_MEMORY)
        r = rm_alloc_by_alloc_memory(device, &bytes, &handle);
    else
        r = rm_alloc_by_alloc(device, class_id ? class_id : RM_CLASS_MEMORY_LOCAL, &bytes, &handle);
    if (r == CUDA_SUCCESS)
        *ret_object = (struct rm_object){.handle = handle, .bytes = bytes};
    return r;
}

CUresult rm_memory_create_unmapped(
    struct device *device, uint64_t bytes, struct rm_object *ret_object)
{
    const struct sim_description *described = sim_description();

    return rm_memory_new(device,
        described->vmm_class ? described->vmm_class : described->memory_class, bytes, ret_object);
}

CUresult rm_memory_create(struct device *device, uint64_t bytes, struct rm_object *ret_object)
{
    CUresult r = rm_memory_new(device, sim_description()->memory_class, bytes, ret_object);

    if (r == CUDA_SUCCESS)
        rm_memory_map(ret_object, true);
    return r;
}

CUresult rm_memory_create_parts(
    struct device *device, uint64_t bytes, uint64_t part_bytes, struct rm_object *ret_object)
{
    uint64_t count = bytes / part_bytes;
    struct rm_object whole = {0};
    CUresult r = CUDA_SUCCESS;

    if (bytes > UINT64_MAX / 4 || bytes == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    whole.others = calloc(count, sizeof *whole.others);
    if (!whole.others)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < count && r == CUDA_SUCCESS; i++) {
        struct rm_object part;

        r = rm_memory_create(device, part_bytes, &part);
        if (r != CUDA_SUCCESS)
            break;
        whole.bytes += part.bytes;
        if (i == 0)
            whole.handle = part.handle;
        else
            whole.others[whole.other_count++] = part.handle;
    }
    if (r == CUDA_SUCCESS)
        *ret_object = whole;
    else
        rm_memory_destroy(device, &whole);
    return r;
}

void rm_memory_destroy(struct device *device, struct rm_object *object)
{
    for (uint64_t i = 0; i < object->other_count; i++)
        rm_free(device->rm_device, object->others[i]);
    free(object->others);
    rm_free(device->rm_device, object->handle);
    *object = (struct rm_object){0};
}

void rm_memory_map(const struct rm_object *object, bool mapped)
{
    sim_memory_map(descriptor, client, object->handle, mapped);
}

CUresult rm_memory_share(const struct rm_object *object)
{
    /* What the driver writes into the policy was not recorded. */
    struct rm_share call = {.client = client, .object = object->handle};
    int rc = rm_call(RM_NR_SHARE, &call, sizeof call);

    return rm_result(rc, call.status);
}

CUresult rm_memory_give(const struct sim_memory_object *object)
{
    struct rm_free call = {.client = client, .parent = object->parent, .object = object->handle};
    int rc = rm_call(RM_NR_FREE, &call, sizeof call);

    return rm_result(rc, call.status);
}

CUresult rm_memory_take(const struct sim_memory_object *object)
{
    uint32_t class_id = sim_description()->memory_class;
    struct rm_memory_params params = {.size = object->bytes, .alignment = MEMORY_PAGE_BYTES};
    struct rm_object made = {.handle = object->handle, .bytes = object->bytes};
    CUresult r = rm_alloc_as(object->parent, object->handle,
        class_id ? class_id : RM_CLASS_MEMORY_LOCAL, &params, sizeof params, &made.handle);

    if (r != CUDA_SUCCESS)
        return r;
    if (object->mapped)
        rm_memory_map(&made, true);
    r = object->shared ? rm_memory_share(&made) : CUDA_SUCCESS;
    if (r != CUDA_SUCCESS)
        rm_free(object->parent, object->handle);
    return r;
}

CUresult rm_memory_dup(struct device *device, uint32_t client_src, uint32_t handle, uint64_t bytes,
    struct rm_object *ret_object)
{
    struct rm_dup call = {.client = client,
        .parent = device->rm_device,
        .client_src = client_src,
        .object_src = handle};
    int rc = rm_call(RM_NR_DUP_OBJECT, &call, sizeof call);
    CUresult r = rm_result(rc, call.status);

    if (r == CUDA_SUCCESS) {
        *ret_object = (struct rm_object){.handle = call.object, .bytes = bytes};
        rm_memory_map(ret_object, true);
    }
    return r;
}

CUresult rm_memory_export(struct device *device, const struct rm_object *object, int *ret_fd)
{
    struct rm_export_objects params = {.fd = sim_rm_open(),
        .device = device->rm_device,
        .max_objects = 1,
        .objects = {object->handle},
        .count = 1};
    struct export_metadata metadata = {METADATA_MAGIC, object->bytes};
    CUresult r;

    if (params.fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(params.metadata, &metadata, sizeof metadata);
    r = rm_control(client, RM_CTRL_EXPORT_OBJECTS_TO_FD, &params, sizeof params);
    if (r == CUDA_SUCCESS)
        *ret_fd = params.fd;
    else
        close(params.fd);
    return r;
}

CUresult rm_dmabuf(struct rm_export_dmabuf *params)
{
    int rc = rm_call(RM_NR_EXPORT_TO_DMABUF, params, sizeof *params);

    return rm_result(rc, params->status);
}

CUresult rm_memory_import(
    struct device *device, int fd, uint64_t bytes, struct rm_object *ret_object)
{
    struct rm_import_objects params = {.fd = fd, .parent = device->rm_device, .count = 1};
    CUresult r = rm_control(client, RM_CTRL_IMPORT_OBJECTS_FROM_FD, &params, sizeof params);

    if (r == CUDA_SUCCESS)
        *ret_object = (struct rm_object){.handle = params.objects[0], .bytes = bytes};
    return r;
}

CUresult rm_export_describe(int fd, unsigned *ret_device, uint64_t *ret_bytes)
{
    struct rm_export_info params = {.fd = fd};
    struct export_metadata metadata;
    CUresult r = rm_control(client, RM_CTRL_GET_EXPORT_OBJECT_INFO, &params, sizeof params);

    memcpy(&metadata, params.metadata, sizeof metadata);
    if (r == CUDA_SUCCESS && metadata.magic != METADATA_MAGIC)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS) {
        *ret_device = params.device_instance;
        *ret_bytes = metadata.bytes;
    }
    return r;
}

CUresult rm_group_create(struct device *device, uint32_t engine, uint32_t *group)
{
    struct rm_channel_group_params params = {.engine_type = engine};
    bool is_new = sim_description()->new_objects;

    return sim_description()->mps ? CUDA_SUCCESS
                                  : rm_alloc_as(device->rm_device, *group,
                                        is_new ? SIM_RM_CLASS_NEW_GROUP : RM_CLASS_CHANNEL_GROUP,
                                        &params, sizeof params, group);
}

CUresult rm_channel_create(uint32_t group, uint32_t *channel)
{
    struct rm_channel_params params = {.gpfifo_entries = 1024};
    bool is_new = sim_description()->new_objects;

    return sim_description()->mps ? CUDA_SUCCESS
                                  : rm_alloc_as(group, *channel,
                                        is_new ? SIM_RM_CLASS_NEW_CHANNEL : RM_CLASS_CHANNEL_HOPPER,
                                        &params, sizeof params, channel);
}
