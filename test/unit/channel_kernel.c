/* SPDX-License-Identifier: Apache-2.0 */
/* Objects in a table, under one lock. */
#include "channel_kernel.h"

#include "container/container.h"
#include "scratch.h"

#include <fcntl.h>
#include <pthread.h>

#define OBJECTS_MAX 1024

struct object {
    bool live, disabled;
    uint32_t client, parent, handle, class_id, number;
    uint64_t slice_us;
};

struct channel_kernel kernel;
int kernel_fd = 77;
static struct object objects[OBJECTS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct object *find(uint32_t client, uint32_t handle)
{
    for (unsigned i = 0; i < OBJECTS_MAX; i++) {
        if (objects[i].live && objects[i].client == client && objects[i].handle == handle)
            return &objects[i];
    }
    return NULL;
}

static void release(uint32_t client, uint32_t handle)
{
    struct object *object = find(client, handle);
    if (object)
        object->live = false;
    for (unsigned i = 0; i < OBJECTS_MAX; i++) {
        if (objects[i].live && objects[i].client == client && objects[i].parent == handle)
            release(client, objects[i].handle);
    }
}

static void allocate(struct rm_alloc64 *call)
{
    unsigned i = 0;
    call->status = kernel.status;
    kernel.status = RM_OK;
    if (call->status != RM_OK)
        return;
    if (call->class_id == RM_CLASS_CLIENT)
        call->client = call->object;
    while (objects[i].live)
        i++;
    REQUIRE(i < OBJECTS_MAX);
    objects[i] = (struct object){.live = true,
        .client = call->client,
        .parent = call->parent,
        .handle = call->object,
        .class_id = call->class_id,
        .slice_us = SLICE_US};
    if (call->class_id == RM_CLASS_DEVICE)
        objects[i].number =
            call->params ? ((const struct rm_device_params *)(uintptr_t)call->params)->device_id
                         : 0;
    else if (find(call->client, call->parent))
        objects[i].number = find(call->client, call->parent)->number;
}

static uint32_t check_list(const struct rm_control *call, const struct rm_disable_channels *params)
{
    if (params->count > RM_DISABLE_CHANNELS_MAX)
        return RM_ERR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < params->count; i++) {
        const struct object *channel = find(params->clients[i], params->channels[i]);
        if (params->clients[i] != call->client)
            return RM_ERR_INVALID_CLIENT;
        if (!channel)
            kernel.unknown++;
        if (!channel)
            return RM_ERR_OBJECT_NOT_FOUND;
        if (channel->number != find(call->client, call->object)->number)
            return RM_ERR_INVALID_ARGUMENT; /* of another GPU */
        if (channel->handle == kernel.bad_channel && (params->disable || kernel.enable_failures))
            return kernel.bad_status;
    }
    if (params->disable)
        return kernel.disable_status;
    if (!kernel.enable_failures)
        return RM_OK;
    kernel.enable_failures--;
    return kernel.enable_status;
}

static void set_disabled(struct object *channel, bool disabled)
{
    if (channel)
        channel->disabled = disabled;
}

static uint32_t switch_channels(
    const struct rm_control *call, const struct rm_disable_channels *params)
{
    if (kernel.switches < 4)
        kernel.first_switches[kernel.switches] = params->disable;
    kernel.switches++;
    kernel.longest_list = params->count > kernel.longest_list ? params->count : kernel.longest_list;
    unsigned count = params->count;
    uint32_t status = check_list(call, params);
    if (status == RM_OK && count > 1)
        status = kernel.list_status;
    if (status != RM_OK)
        count = kernel.list_in_part ? count / 2 : 0;
    for (unsigned i = 0; i < count; i++)
        set_disabled(find(call->client, params->channels[i]), params->disable);
    return status;
}

static uint32_t control(const struct rm_control *call)
{
    void *params = (void *)(uintptr_t)call->params;
    struct object *object = find(call->client, call->object);
    if (!find(call->client, call->client))
        return RM_ERR_INVALID_CLIENT;
    if (!object)
        return RM_ERR_OBJECT_NOT_FOUND;
    switch (call->cmd) {
    case RM_CTRL_GPU_GET_GID_INFO: {
        struct rm_gid_info *gid = params;
        if (kernel.nameless)
            return RM_ERR_NOT_SUPPORTED;
        snprintf((char *)gid->data, sizeof(gid->data), "GPU-00000000-0000-0000-0000-00000000000%u",
            object->number);
        return RM_OK;
    }
    case RM_CTRL_FIFO_DISABLE_CHANNELS:
        return object->class_id == RM_CLASS_SUBDEVICE ? switch_channels(call, params)
                                                      : RM_ERR_INVALID_OBJECT_HANDLE;
    case RM_CTRL_GET_TIMESLICE:
        ((struct rm_timeslice *)params)->timeslice_us = object->slice_us;
        return kernel.slice_status;
    case RM_CTRL_SET_TIMESLICE:
        if (kernel.slice_status == RM_OK)
            object->slice_us = ((const struct rm_timeslice *)params)->timeslice_us;
        return kernel.slice_status;
    case RM_CTRL_GPFIFO_SCHEDULE:
        for (unsigned i = 0; i < OBJECTS_MAX; i++)
            objects[i].disabled &= objects[i].parent != call->object;
        return RM_OK;
    default:
        return RM_ERR_NOT_SUPPORTED;
    }
}

static int answer_control(int fd, struct rm_control *call)
{
    bool is_ours = call->cmd == RM_CTRL_FIFO_DISABLE_CHANNELS ||
                   call->cmd == RM_CTRL_GET_TIMESLICE || call->cmd == RM_CTRL_SET_TIMESLICE;
    if (is_ours) {
        kernel.controls++;
        kernel.last_fd = fd;
        if (kernel.errors) {
            kernel.errors--;
            errno = kernel.error;
            return -1;
        }
    }
    call->status = control(call);
    return 0;
}

int kernel_ioctl(int fd, unsigned long request, void *argument)
{
    int result = 0;
    void (*during)(void) = NULL;
    pthread_mutex_lock(&lock);
    switch (RM_REQUEST_NR(request)) {
    case RM_NR_ALLOC:
        allocate(argument);
        break;
    case RM_NR_FREE: {
        struct rm_free *call = argument;
        call->status = kernel.status;
        kernel.status = RM_OK;
        if (call->status == RM_OK)
            release(call->client, call->object);
        break;
    }
    case RM_NR_CONTROL:
        result = answer_control(fd, argument);
        if (((struct rm_control *)argument)->cmd == RM_CTRL_FIFO_DISABLE_CHANNELS) {
            during = kernel.during;
            kernel.during = NULL;
            usleep(kernel.slow_ms * 1000);
        }
        break;
    default:
        break;
    }
    int errno_kept = errno;
    pthread_mutex_unlock(&lock);
    if (during)
        during();
    errno = errno_kept;
    return result;
}

unsigned kernel_disabled(void)
{
    unsigned count = 0;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < OBJECTS_MAX; i++)
        count += objects[i].live && objects[i].disabled;
    pthread_mutex_unlock(&lock);
    return count;
}

bool kernel_is_disabled(uint32_t client, uint32_t channel)
{
    pthread_mutex_lock(&lock);
    const struct object *object = find(client, channel);
    bool disabled = object && object->disabled;
    pthread_mutex_unlock(&lock);
    return disabled;
}

uint64_t kernel_slice_us(uint32_t client, uint32_t group)
{
    return find(client, group)->slice_us;
}

void kernel_forget(uint32_t client)
{
    release(client, client);
}

/* ---- the driver ---- */

static uint32_t allocate_with(
    uint32_t client, uint32_t parent, uint32_t object, uint32_t class_id, void *params)
{
    struct rm_alloc64 call = {.client = client,
        .parent = parent,
        .object = object,
        .class_id = class_id,
        .params = (uintptr_t)params,
        .status = 0xdead};
    CHECK_EQ(rm_memory_ioctl(kernel_fd, RM_IOCTL_ALLOC64, &call, kernel_ioctl), 0);
    return call.status;
}

uint32_t kernel_allocate(uint32_t client, uint32_t parent, uint32_t object, uint32_t class_id)
{
    return allocate_with(client, parent, object, class_id, NULL);
}

uint32_t kernel_allocate_group(uint32_t client, uint32_t parent, uint32_t object, uint32_t engine)
{
    struct rm_channel_group_params params = {.engine_type = engine};
    return allocate_with(client, parent, object, RM_CLASS_CHANNEL_GROUP, &params);
}

void kernel_allocate_channels(uint32_t client, uint32_t group, uint32_t first, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        CHECK_EQ(kernel_allocate(client, group, first + i, RM_CLASS_CHANNEL_HOPPER), RM_OK);
}

uint32_t kernel_free(uint32_t client, uint32_t object)
{
    struct rm_free call = {.client = client, .object = object, .status = 0xdead};
    CHECK_EQ(rm_memory_ioctl(kernel_fd, RM_IOCTL_FREE, &call, kernel_ioctl), 0);
    return call.status;
}

uint32_t kernel_control(uint32_t client, uint32_t object, uint32_t command)
{
    struct rm_schedule params = {.enable = 1};
    struct rm_control call = {.client = client,
        .object = object,
        .cmd = command,
        .params = (uintptr_t)&params,
        .params_size = sizeof(params),
        .status = 0xdead};
    CHECK_EQ(rm_memory_ioctl(kernel_fd, RM_IOCTL_CONTROL, &call, kernel_ioctl), 0);
    return call.status;
}

static void add_device(uint32_t client, uint32_t device_handle, unsigned number)
{
    struct rm_device_params device = {.device_id = number};
    CHECK_EQ(allocate_with(client, client, device_handle, RM_CLASS_DEVICE, &device), RM_OK);
    CHECK_EQ(kernel_allocate(client, device_handle, device_handle + 1, RM_CLASS_SUBDEVICE), RM_OK);
}

void kernel_begin(void)
{
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", scratch_path("region"), 1);
    setenv("LIBCUDA_LOG_LEVEL", "0", 0);
    CHECK_EQ(kernel_allocate(0, 0, CLIENT, RM_CLASS_CLIENT), RM_OK);
    CHECK_EQ(container_device("GPU-00000000-0000-0000-0000-000000000000"), 0);
    CHECK_EQ(container_device("GPU-00000000-0000-0000-0000-000000000001"), 1);
    add_device(CLIENT, DEVICE, 0);
}

void kernel_begin_channels(unsigned count)
{
    kernel_begin();
    CHECK_EQ(kernel_allocate_group(CLIENT, DEVICE, GROUP, RM_ENGINE_GR0), RM_OK);
    kernel_allocate_channels(CLIENT, GROUP, CHANNELS, count);
    CHECK_EQ(kernel_allocate_group(CLIENT, DEVICE, GROUP_COPY, RM_ENGINE_COPY0), RM_OK);
    kernel_allocate_channels(CLIENT, GROUP_COPY, CHANNELS_COPY, 2);
}

void kernel_add_client(uint32_t client, uint32_t device_handle, unsigned number, uint32_t group,
    uint32_t first, unsigned count)
{
    if (!find(client, client))
        CHECK_EQ(kernel_allocate(0, 0, client, RM_CLASS_CLIENT), RM_OK);
    add_device(client, device_handle, number);
    CHECK_EQ(kernel_allocate_group(client, device_handle, group, RM_ENGINE_GR0), RM_OK);
    kernel_allocate_channels(client, group, first, count);
}
