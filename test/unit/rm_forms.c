/* SPDX-License-Identifier: Apache-2.0 */
/* The forms of the resource manager's calls, those that nobody should make among them, over a
 * pretend kernel that checks what it is given. */
#include "rm/rm_memory.h"

#include "abi/rm.h"
#include "check.h"
#include "scratch.h"
#include "container/container.h"

#define MIB (1ull << 20)
#define UUID "GPU-00000000-0000-0000-0000-000000000001"
#define FD 77
#define CLIENT 0xc1d00001u
#define DEVICE 0x10u
#define SUBDEVICE 0x11u
#define CLASS_UNKNOWN 0xd040u

static struct {
    unsigned calls;
    uint32_t attr;         /* where memory comes to lie */
    uint64_t bytes;        /* what it says of this process; 0: does not know it */
    uint64_t unseen_bytes; /* what one object of CLASS_UNKNOWN takes */
    const void *argument;  /* of the last call */
    int error;             /* the next call fails with it */
    uint32_t next_handle;
} kernel = {.next_handle = 0x1000};

static void control(struct rm_control *call)
{
    call->status = RM_OK;
    if (call->cmd == RM_CTRL_GPU_GET_GID_INFO) {
        struct rm_gid_info *gid = (void *)(uintptr_t)call->params;
        snprintf((char *)gid->data, sizeof(gid->data), UUID);
    } else if (call->cmd == RM_CTRL_GPU_GET_PID_INFO) {
        struct rm_pid_info_list *list = (void *)(uintptr_t)call->params;
        list->list[0].result = RM_OK;
        list->list[0].private_bytes = kernel.bytes;
    } else {
        call->status = RM_ERR_NOT_SUPPORTED;
    }
}

static void vid_heap(struct rm_vid_heap *call)
{
    call->status = RM_OK;
    if (call->function == RM_VID_HEAP_ALLOC_SIZE) {
        call->data.memory.object = kernel.next_handle++;
        call->data.memory.attr = kernel.attr;
    }
}

static void answer(unsigned number, void *argument, size_t bytes)
{
    if (number == RM_NR_CONTROL) {
        control(argument);
    } else if (number == RM_NR_VID_HEAP_CONTROL && bytes == sizeof(struct rm_vid_heap)) {
        vid_heap(argument);
    } else if (number == RM_NR_ALLOC_MEMORY) {
        ((struct rm_alloc_memory *)argument)->status = RM_OK;
    } else if (number == RM_NR_FREE) {
        ((struct rm_free *)argument)->status = RM_OK;
    } else if (number == RM_NR_ALLOC && bytes == sizeof(struct rm_alloc21)) {
        ((struct rm_alloc21 *)argument)->status = RM_OK;
    } else if (number == RM_NR_ALLOC && bytes == sizeof(struct rm_alloc64)) {
        struct rm_alloc64 *call = argument;
        call->status = RM_OK;
        if (call->class_id == CLASS_UNKNOWN)
            kernel.bytes += kernel.unseen_bytes;
    }
}

static int kernel_ioctl(int fd, unsigned long request, void *argument)
{
    (void)fd;
    if (RM_REQUEST_NR(request) != RM_NR_CONTROL || kernel.error) {
        kernel.calls++;
        kernel.argument = argument;
    }
    if (kernel.error) {
        errno = kernel.error;
        return -1;
    }
    struct rm_xfer *wrapper = argument;
    if (RM_REQUEST_NR(request) == RM_NR_XFER)
        answer(wrapper->nr, (void *)(uintptr_t)wrapper->ptr, wrapper->size);
    else
        answer(RM_REQUEST_NR(request), argument, RM_REQUEST_SIZE(request));
    return 0;
}

static int call_rm(unsigned long request, void *argument)
{
    int result = rm_memory_ioctl(FD, request, argument, kernel_ioctl);
    CHECK(kernel.argument == argument || kernel.calls == 0);
    return result;
}

static uint32_t allocate(uint32_t client, uint32_t parent, uint32_t object, uint32_t class_id)
{
    struct rm_alloc64 call = {
        .client = client, .parent = parent, .object = object, .class_id = class_id};
    CHECK_EQ(call_rm(RM_IOCTL_ALLOC64, &call), 0);
    return call.status;
}

static uint32_t allocate_known(uint32_t object, uint64_t bytes)
{
    struct rm_memory_params params = {.size = bytes};
    struct rm_alloc64 call = {.client = CLIENT,
        .parent = DEVICE,
        .object = object,
        .class_id = RM_CLASS_MEMORY_LOCAL,
        .params = (uintptr_t)&params};
    CHECK_EQ(rm_memory_ioctl(FD, RM_IOCTL_ALLOC64, &call, kernel_ioctl), 0);
    return call.status;
}

static uint64_t own(void)
{
    return account_own_bytes(0, ACCOUNT_KINDS);
}

/* A process under a limit of 64 MiB that has opened its device. */
static void begin(void)
{
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", scratch_path("region"), 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "64m", 1);
    setenv("LIBCUDA_LOG_LEVEL", "0", 1);
    CHECK_EQ(allocate(0, 0, CLIENT, RM_CLASS_CLIENT), RM_OK);
    CHECK_EQ(allocate(CLIENT, CLIENT, DEVICE, RM_CLASS_DEVICE), RM_OK);
    CHECK_EQ(allocate(CLIENT, DEVICE, SUBDEVICE, RM_CLASS_SUBDEVICE), RM_OK);
    CHECK_EQ(container_device(UUID), 0);
    kernel.calls = 0;
}

static uint32_t free_object(uint32_t object)
{
    struct rm_free call = {.client = CLIENT, .object = object, .status = 0xdead};
    CHECK_EQ(call_rm(RM_IOCTL_FREE, &call), 0);
    return call.status;
}

TEST("memory by RM_ALLOC_MEMORY is charged, refused and given back")
{
    struct rm_alloc_memory_fd form = {.call = {.client = CLIENT,
                                          .parent = DEVICE,
                                          .object = 0x100,
                                          .class_id = RM_CLASS_MEMORY_LOCAL,
                                          .limit = 8 * MIB - 1}};
    begin();
    CHECK_EQ(call_rm(RM_IOCTL_ALLOC_MEMORY, &form), 0);
    CHECK_EQ(form.call.status, RM_OK);
    CHECK_EQ(own(), 8 * MIB);
    form.call.object = 0x101;
    form.call.limit = 60 * MIB - 1;
    unsigned calls = kernel.calls;
    CHECK_EQ(rm_memory_ioctl(FD, RM_IOCTL_ALLOC_MEMORY, &form, kernel_ioctl), 0);
    CHECK_EQ(form.call.status, RM_ERR_NO_MEMORY);
    CHECK_EQ(kernel.calls, calls);
    form.call.limit = UINT64_MAX;
    CHECK_EQ(rm_memory_ioctl(FD, RM_IOCTL_ALLOC_MEMORY, &form, kernel_ioctl), 0);
    CHECK_EQ(form.call.status, RM_ERR_NO_MEMORY);
    form.call.class_id = RM_CLASS_MEMORY_SYSTEM;
    CHECK_EQ(call_rm(RM_IOCTL_ALLOC_MEMORY, &form), 0);
    CHECK_EQ(form.call.status, RM_OK);
    CHECK_EQ(own(), 8 * MIB);
    CHECK_EQ(free_object(0x100), RM_OK);
    CHECK_EQ(own(), 0);
}

static struct rm_vid_heap heap_request(uint64_t bytes)
{
    return (struct rm_vid_heap){.client = CLIENT,
        .parent = DEVICE,
        .function = RM_VID_HEAP_ALLOC_SIZE,
        .status = 0xdead,
        .data.memory = {.size = bytes}};
}

TEST("memory by RM_VID_HEAP_CONTROL is charged, refused and given back in both ways")
{
    begin();
    for (int way = 0; way < 2; way++) {
        struct rm_vid_heap form = heap_request(8 * MIB), more = heap_request(57 * MIB);
        CHECK_EQ(call_rm(RM_IOCTL_VID_HEAP, &form), 0);
        CHECK_EQ(form.status, RM_OK);
        CHECK_EQ(own(), 8 * MIB);
        unsigned calls = kernel.calls;
        CHECK_EQ(rm_memory_ioctl(FD, RM_IOCTL_VID_HEAP, &more, kernel_ioctl), 0);
        CHECK_EQ(more.status, RM_ERR_NO_MEMORY);
        CHECK_EQ(kernel.calls, calls);
        uint32_t object = form.data.memory.object;
        form = (struct rm_vid_heap){.client = CLIENT,
            .parent = DEVICE,
            .function = RM_VID_HEAP_FREE,
            .data.memory = {.object = object}};
        if (way == 0)
            CHECK_EQ(call_rm(RM_IOCTL_VID_HEAP, &form), 0);
        else
            CHECK_EQ(free_object(object), RM_OK);
        CHECK_EQ(own(), 0);
    }
}

TEST("memory that may lie anywhere is charged where it came to lie on the device")
{
    begin();
    struct rm_vid_heap form = heap_request(8 * MIB);
    form.data.memory.attr = RM_MEMORY_LOCATION_ANY << 25;
    kernel.attr = RM_MEMORY_LOCATION_PCI << 25;
    CHECK_EQ(call_rm(RM_IOCTL_VID_HEAP, &form), 0);
    CHECK_EQ(own(), 0);
    form.data.memory.attr = RM_MEMORY_LOCATION_ANY << 25;
    kernel.attr = 0;
    CHECK_EQ(call_rm(RM_IOCTL_VID_HEAP, &form), 0);
    CHECK_EQ(own(), 8 * MIB);
}

TEST("wrapped calls count as if they were not")
{
    struct rm_memory_params params = {.size = 8 * MIB};
    struct rm_alloc64 alloc = {.client = CLIENT,
        .parent = DEVICE,
        .object = 0x100,
        .class_id = RM_CLASS_MEMORY_LOCAL,
        .params = (uintptr_t)&params};
    struct rm_xfer wrapper = {RM_NR_ALLOC, sizeof(alloc), (uintptr_t)&alloc};
    begin();
    CHECK_EQ(call_rm(RM_IOCTL_XFER, &wrapper), 0);
    CHECK_EQ(alloc.status, RM_OK);
    CHECK_EQ(own(), 8 * MIB);
    params.size = 57 * MIB;
    alloc.object = 0x101;
    unsigned calls = kernel.calls;
    CHECK_EQ(rm_memory_ioctl(FD, RM_IOCTL_XFER, &wrapper, kernel_ioctl), 0);
    CHECK_EQ(alloc.status, RM_ERR_NO_MEMORY);
    CHECK_EQ(kernel.calls, calls);
    struct rm_free release = {.client = CLIENT, .object = 0x100};
    wrapper = (struct rm_xfer){RM_NR_FREE, sizeof(release), (uintptr_t)&release};
    CHECK_EQ(call_rm(RM_IOCTL_XFER, &wrapper), 0);
    CHECK_EQ(own(), 0);
}

TEST("a pointer that cannot be read is the kernel's to refuse")
{
    static const unsigned long requests[] = {RM_IOCTL_ALLOC21, RM_IOCTL_ALLOC64, RM_IOCTL_FREE,
        RM_IOCTL_CONTROL, RM_IOCTL_DUP_OBJECT, RM_IOCTL_ALLOC_MEMORY, RM_IOCTL_VID_HEAP,
        RM_IOCTL_XFER, RM_REQUEST(RM_NR_SHARE, sizeof(struct rm_share))};
    begin();
    char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *const pointers[] = {NULL, (void *)8, page, (void *)UINTPTR_MAX};
    kernel.error = EFAULT;
    for (size_t r = 0; r < sizeof(requests) / sizeof(requests[0]); r++) {
        for (size_t p = 0; p < sizeof(pointers) / sizeof(pointers[0]); p++) {
            errno = 0;
            CHECK_EQ(call_rm(requests[r], pointers[p]), -1);
            CHECK_EQ(errno, EFAULT);
        }
    }
    CHECK_EQ(own(), 0);
}

/* The wrapper can be read, and what it points to cannot. */
TEST("nor is a wrapped pointer")
{
    static const uint32_t numbers[] = {RM_NR_ALLOC, RM_NR_FREE, RM_NR_CONTROL, RM_NR_DUP_OBJECT,
        RM_NR_ALLOC_MEMORY, RM_NR_VID_HEAP_CONTROL, RM_NR_SHARE, RM_NR_XFER, 0, ~0u};
    static const uint32_t sizes[] = {0, 16, 28, 32, 48, 56, 184, ~0u};
    begin();
    char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    kernel.error = EFAULT;
    for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            struct rm_xfer wrapper = {numbers[n], sizes[s], n & 1 ? (uintptr_t)page : 0};
            CHECK_EQ(call_rm(RM_IOCTL_XFER, &wrapper), -1);
        }
    }
    CHECK_EQ(own(), 0);
}

TEST("parameters that cannot be read, are too short or longer than known")
{
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    begin();
    struct rm_alloc64 call = {.client = CLIENT,
        .parent = DEVICE,
        .object = 0x100,
        .class_id = RM_CLASS_MEMORY_LOCAL,
        .params = 8};
    CHECK_EQ(call_rm(RM_IOCTL_ALLOC64, &call), 0);
    CHECK_EQ(own(), 0);
    /* As the kernel reads no further, neither do we: these end with the page. */
    call.params = (uintptr_t)page + 4096 - 16;
    call.params_size = 16;
    call.object = 0x101;
    CHECK_EQ(call_rm(RM_IOCTL_ALLOC64, &call), 0);
    CHECK_EQ(own(), 0);
    struct rm_memory_params *params = (void *)page;
    params->size = 8 * MIB;
    call.params = (uintptr_t)page;
    call.params_size = 1024;
    call.object = 0x102;
    CHECK_EQ(call_rm(RM_IOCTL_ALLOC64, &call), 0);
    CHECK_EQ(own(), 8 * MIB);
}

TEST("a refusal into memory that cannot be written is the kernel's EFAULT")
{
    struct rm_memory_params params = {.size = 65 * MIB};
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct rm_alloc64 *call = (void *)page;
    begin();
    *call = (struct rm_alloc64){.client = CLIENT,
        .parent = DEVICE,
        .object = 0x100,
        .class_id = RM_CLASS_MEMORY_LOCAL,
        .params = (uintptr_t)&params};
    mprotect(page, 4096, PROT_READ);
    CHECK_EQ(rm_memory_ioctl(FD, RM_IOCTL_ALLOC64, call, kernel_ioctl), -1);
    CHECK_EQ(errno, EFAULT);
    CHECK_EQ(own(), 0);
}

TEST("what objects of an unknown class take counts as soon as it was taken")
{
    begin();
    kernel.unseen_bytes = 10 * MIB;
    kernel.bytes = 8 * MIB;
    CHECK_EQ(allocate_known(0x100, 8 * MIB), RM_OK);
    CHECK_EQ(own(), 8 * MIB);
    for (uint32_t i = 1; i <= 3; i++) {
        CHECK_EQ(allocate(CLIENT, DEVICE, 0x200 + i, CLASS_UNKNOWN), RM_OK);
        CHECK_EQ(own(), 8 * MIB + i * 10 * MIB);
    }
    CHECK_EQ(allocate_known(0x101, 30 * MIB), RM_ERR_NO_MEMORY);
    kernel.bytes -= 20 * MIB;
    CHECK_EQ(free_object(0x201), RM_OK);
    CHECK_EQ(own(), 18 * MIB);
}

TEST("a call of an unknown size that takes memory counts as soon as it was made")
{
    char form[96] = {0};
    begin();
    kernel.bytes = 8 * MIB;
    CHECK_EQ(allocate_known(0x100, 8 * MIB), RM_OK);
    for (unsigned i = 1; i <= 2; i++) {
        kernel.bytes += 10 * MIB;
        CHECK_EQ(call_rm(RM_REQUEST(RM_NR_ALLOC, sizeof(form)), form), 0);
        CHECK_EQ(own(), 8 * MIB + i * 10 * MIB);
    }
    kernel.bytes += 10 * MIB;
    CHECK_EQ(call_rm(RM_REQUEST(0x71, sizeof(form)), form), 0);
    CHECK_EQ(own(), 38 * MIB);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
