/* SPDX-License-Identifier: Apache-2.0 */
/* The resource manager's ioctls: arbitrary requests, sizes and contents, from a program, over a
 * pretend kernel that answers what the input says. In the end everything is freed, and nothing may
 * be left charged. */
#include "rm/rm_memory.h"

#include "abi/rm.h"
#include "fuzz.h"
#include "container/container.h"
#include "rm/rm_channels.h"
#include "rm/rm_export.h"
#include "rm/rm_ledger.h"
#include "scratch.h"

#include <fcntl.h>

#define FD 77
#define OWN_FDS 4
#define HANDLES 32 /* few, so that they meet again */
#define BUFFER_BYTES 16384

static struct fuzz_input input;
static bool obliging; /* the kernel: all is well, no more input */
static int own_fds[OWN_FDS];

static void kernel_gid(struct rm_gid_info *gid)
{
    unsigned which = fuzz_byte(&input);
    memset(gid->data, which & 128 ? 'x' : 0, sizeof(gid->data));
    if (!(which & 128))
        snprintf((char *)gid->data, sizeof(gid->data), "GPU-%u", which & 1);
}

static void kernel_pids(struct rm_pid_info_list *list)
{
    list->list[0].result = fuzz_byte(&input) & 1;
    list->list[0].private_bytes = fuzz_size(&input);
    list->list[0].shared_owned_bytes = fuzz_size(&input);
    list->list[0].shared_duped_bytes = fuzz_size(&input);
}

/* A status word where each structure has its own; sizes may come back changed. */
static int kernel(int fd, unsigned long request, void *argument)
{
    unsigned answer = obliging ? 0 : fuzz_byte(&input);
    uint32_t status = answer & 1 ? RM_ERR_INVALID_ARGUMENT : RM_OK;
    size_t size = RM_REQUEST_SIZE(request);
    FUZZ_CHECK(fd == FD);
    if (answer == 255 || !argument)
        return -1;
    if (request == RM_IOCTL_CONTROL) {
        struct rm_control *call = argument;
        call->status = status;
        if (!call->params)
            return 0;
        if (call->cmd == RM_CTRL_GPU_GET_GID_INFO &&
            call->params_size == sizeof(struct rm_gid_info))
            kernel_gid((void *)(uintptr_t)call->params);
        if (call->cmd == RM_CTRL_GPU_GET_PID_INFO &&
            call->params_size == sizeof(struct rm_pid_info_list))
            kernel_pids((void *)(uintptr_t)call->params);
    } else if (request == RM_IOCTL_ALLOC21 || request == RM_IOCTL_ALLOC64) {
        struct rm_alloc21 *call = argument;
        *(request == RM_IOCTL_ALLOC64 ? &((struct rm_alloc64 *)argument)->status : &call->status) =
            answer & 2 ? RM_ERR_NO_MEMORY : status;
        if (!call->object)
            call->object = 1 + fuzz_byte(&input) % HANDLES;
        if (answer & 4 && call->params && call->class_id == RM_CLASS_MEMORY_LOCAL)
            ((struct rm_memory_params *)(uintptr_t)call->params)->size = fuzz_size(&input) >> 8;
    } else if (request == RM_IOCTL_FREE) {
        ((struct rm_free *)argument)->status = status;
    } else if (request == RM_IOCTL_DUP_OBJECT) {
        ((struct rm_dup *)argument)->status = status;
    } else if (RM_REQUEST_NR(request) == RM_NR_SHARE && size == sizeof(struct rm_share)) {
        ((struct rm_share *)argument)->status = status;
    }
    return 0;
}

static uint32_t handle(void)
{
    return fuzz_byte(&input) % (HANDLES + 1);
}

/* The structure lies in memory of its own that ends where it does. */
static void call(unsigned long request, const void *bytes, size_t size)
{
    void *argument = fuzz_copy(bytes, size);
    (void)rm_memory_ioctl(FD, request, argument, kernel);
    free(argument);
}

static void allocate(unsigned form)
{
    static const uint32_t classes[] = {RM_CLASS_CLIENT, RM_CLASS_CLIENT_0, RM_CLASS_DEVICE,
        RM_CLASS_SUBDEVICE, RM_CLASS_MEMORY_LOCAL, RM_CLASS_MEMORY_LOCAL, RM_CLASS_MEMORY_SYSTEM};
    unsigned byte = fuzz_byte(&input), choice = byte % 8;
    uint32_t class_id = choice < 7 ? classes[choice] : (uint32_t)fuzz_number(&input, 4);
    if (byte & 128)
        class_id = byte & 64 ? RM_CLASS_CHANNEL_GROUP : RM_CLASS_CHANNEL_HOPPER;
    struct rm_memory_params *params = fuzz_copy(&(struct rm_memory_params){0}, sizeof(*params));
    params->width = RM_ENGINE_GR0; /* where a group's parameters have its engine */
    params->size = fuzz_size(&input) >> 8;
    params->attr = form & 16 ? (uint32_t)fuzz_number(&input, 4) : 0;
    params->flags = form & 32 ? (uint32_t)fuzz_number(&input, 4) : 0;
    uint32_t client = handle(), parent = handle(), object = handle();
    if (class_id == RM_CLASS_CLIENT || class_id == RM_CLASS_CLIENT_0)
        client = object;
    if (form & 64) {
        struct rm_alloc21 small = {client, parent, object, class_id,
            form & 128 ? 0 : (uintptr_t)params, sizeof(*params), 0xdead};
        call(RM_IOCTL_ALLOC21, &small, sizeof(small));
    } else {
        struct rm_alloc64 large = {.client = client,
            .parent = parent,
            .object = object,
            .class_id = class_id,
            .params = form & 128 ? 0 : (uintptr_t)params,
            .status = 0xdead};
        call(RM_IOCTL_ALLOC64, &large, sizeof(large));
    }
    free(params);
}

static int descriptor(void)
{
    unsigned choice = fuzz_byte(&input);
    return choice < 128 ? own_fds[choice % OWN_FDS] : (int)fuzz_number(&input, 4);
}

/* The parameters of a control end where their declared size does. */
static void control(void)
{
    static const uint32_t commands[] = {RM_CTRL_EXPORT_OBJECT_TO_FD, RM_CTRL_IMPORT_OBJECT_FROM_FD,
        RM_CTRL_EXPORT_OBJECTS_TO_FD, RM_CTRL_IMPORT_OBJECTS_FROM_FD, RM_CTRL_GPU_GET_GID_INFO};
    static uint8_t params[sizeof(struct rm_export_objects)];
    unsigned choice = fuzz_byte(&input);
    uint32_t command = choice % 6 < 5 ? commands[choice % 6] : (uint32_t)fuzz_number(&input, 4);
    size_t size = choice & 128 ? fuzz_number(&input, 2) % sizeof(params) : sizeof(params);
    memset(params, 0, sizeof(params));
    int fd = descriptor();
    uint32_t parent = handle(), object = handle();
    switch (command) {
    case RM_CTRL_EXPORT_OBJECT_TO_FD:
        memcpy(params, &(struct rm_export_object){.object = object, .fd = fd},
            sizeof(struct rm_export_object));
        break;
    case RM_CTRL_IMPORT_OBJECT_FROM_FD:
        memcpy(params, &(struct rm_import_object){.fd = fd, .parent = parent, .object = object},
            sizeof(struct rm_import_object));
        break;
    case RM_CTRL_EXPORT_OBJECTS_TO_FD: {
        struct rm_export_objects *all = (void *)params;
        *all = (struct rm_export_objects){.fd = fd, .objects = {object, handle(), handle()}};
        all->count = (uint16_t)fuzz_number(&input, choice & 64 ? 2 : 1);
        all->index = (uint16_t)fuzz_byte(&input);
        break;
    }
    case RM_CTRL_IMPORT_OBJECTS_FROM_FD: {
        struct rm_import_objects *all = (void *)params;
        *all = (struct rm_import_objects){
            .fd = fd, .parent = parent, .objects = {object, handle(), handle()}};
        all->count = (uint16_t)fuzz_number(&input, choice & 64 ? 2 : 1);
        break;
    }
    default:
        break;
    }
    void *copy = fuzz_copy(params, size);
    uint32_t client = handle();
    struct rm_control argument = {.client = client,
        .object = choice & 32 ? handle() : client,
        .cmd = command,
        .params = fuzz_byte(&input) & 128 ? 0 : (uintptr_t)copy,
        .params_size = (uint32_t)size,
        .status = 0xdead};
    call(RM_IOCTL_CONTROL, &argument, sizeof(argument));
    free(copy);
}

/* Any request, with a structure as large as the request says and not a byte more. Pointers in it
 * are the program's to vouch for. */
static void anything(void)
{
    static uint8_t bytes[BUFFER_BYTES];
    size_t size = fuzz_number(&input, 2) % sizeof(bytes);
    unsigned number = fuzz_byte(&input);
    unsigned long request = RM_REQUEST(number, size);
    for (size_t i = 0; i < size && i < 64; i++)
        bytes[i] = (uint8_t)fuzz_byte(&input);
    if (number == RM_NR_ALLOC && size >= sizeof(struct rm_alloc21))
        ((struct rm_alloc21 *)bytes)->params = 0;
    if (number == RM_NR_CONTROL && size >= sizeof(struct rm_control))
        ((struct rm_control *)bytes)->params = 0;
    call(request, bytes, size);
    (void)rm_memory_ioctl(FD, request, NULL, kernel);
}

static void reopen(unsigned which)
{
    close(own_fds[which % OWN_FDS]);
    own_fds[which % OWN_FDS] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void gate(unsigned op)
{
    unsigned device = op >> 3 & 1;
    switch (op >> 4 & 7) {
    case 0:
    case 1:
        (void)rm_channels_close(device, NULL);
        break;
    case 2:
        (void)rm_channels_open(device, NULL);
        break;
    case 3:
        rm_channels_hold_open();
        rm_channels_release();
        break;
    case 4:
        (void)rm_channels_test(device);
        break;
    default:
        (void)rm_channels_set_timeslice(device, op & 64 ? 10000 : 0);
    }
}

static void step(void)
{
    unsigned op = fuzz_byte(&input);
    struct rm_free free_call = {.status = 0xdead};
    struct rm_dup dup_call = {.status = 0xdead};
    struct rm_share share_call = {.status = 0xdead};
    switch (op & 7) {
    case 0:
    case 1:
        allocate(op);
        break;
    case 2:
        free_call.client = handle();
        free_call.object = op & 64 ? free_call.client : handle();
        call(RM_IOCTL_FREE, &free_call, sizeof(free_call));
        break;
    case 3:
        dup_call.client = handle();
        dup_call.parent = handle();
        dup_call.object = handle();
        dup_call.client_src = op & 64 ? dup_call.client : handle();
        dup_call.object_src = handle();
        call(RM_IOCTL_DUP_OBJECT, &dup_call, sizeof(dup_call));
        break;
    case 4:
        control();
        break;
    case 5:
        share_call.client = handle();
        share_call.object = handle();
        call(RM_REQUEST(RM_NR_SHARE, sizeof(share_call)), &share_call, sizeof(share_call));
        break;
    case 6:
        if (op & 128)
            gate(fuzz_byte(&input));
        else
            reopen(op >> 3);
        break;
    default:
        anything();
    }
}

static void begin(void)
{
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", scratch_path("region"), 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "64g", 1);
    setenv("LIBCUDA_LOG_LEVEL", "0", 1);
    container_enter();
    for (unsigned i = 0; i < OWN_FDS; i++)
        own_fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* What the audit found beyond the ledger is the driver's word, not a leak. */
static void check_nothing_left(void)
{
    for (unsigned device = 0; device < VGPU_REGION_DEVICES; device++) {
        uint64_t version, kinds = 0;
        FUZZ_CHECK(rm_ledger_bytes(device, &version) == 0);
        for (int kind = 0; kind < ACCOUNT_KINDS; kind++) {
            uint64_t bytes = account_own_bytes(device, (enum account_kind)kind);
            FUZZ_CHECK(kind == ACCOUNT_UNEXPLAINED || bytes == 0);
            kinds += bytes;
        }
        FUZZ_CHECK(account_own_bytes(device, ACCOUNT_KINDS) == kinds);
        account_release(
            device, account_own_bytes(device, ACCOUNT_UNEXPLAINED), ACCOUNT_UNEXPLAINED);
    }
    FUZZ_CHECK(rm_ledger_imports() == 0);
    for (unsigned device = 0; device < VGPU_REGION_DEVICES; device++) {
        FUZZ_CHECK(rm_channels_count(device) == 0);
        FUZZ_CHECK(rm_channels_open(device, NULL) == 0);
        FUZZ_CHECK(!rm_channels_is_closed(device));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool begun;
    if (!begun)
        begin();
    begun = true;
    input = (struct fuzz_input){data, size};
    obliging = false;
    for (int steps = 0; input.left && steps < 256; steps++)
        step();
    obliging = true;
    input.left = 0;
    for (uint32_t client = 0; client <= UINT8_MAX; client++)
        call(RM_IOCTL_FREE, &(struct rm_free){.client = client, .object = client},
            sizeof(struct rm_free));
    for (unsigned i = 0; i < OWN_FDS; i++)
        reopen(i);
    for (unsigned i = 0; i < OWN_FDS; i++)
        close(own_fds[i]);
    (void)rm_export_sweep();
    for (unsigned i = 0; i < OWN_FDS; i++)
        own_fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    check_nothing_left();
    rm_memory_reset();
    return 0;
}
