/* SPDX-License-Identifier: Apache-2.0 */
/* The accounting of the resource manager's ioctls, over a pretend kernel of a few lines. */
#include "rm/rm_memory.h"

#include "abi/rm.h"
#include "check.h"
#include "scratch.h"
#include "container/container.h"
#include "memory/memory.h"
#include "rm/rm_audit.h"

#define MIB (1ull << 20)
#define UUID "GPU-00000000-0000-0000-0000-000000000001"
#define FD 77
#define CLIENT 0xc1d00001u
#define DEVICE 0x10u
#define SUBDEVICE 0x11u

static struct {
    unsigned calls;         /* that the kernel saw */
    uint32_t status;        /* of the next allocation or free */
    uint32_t next_handle;   /* given out where 0 is asked for */
    uint64_t rounding;      /* sizes are rounded up to it */
    uint64_t private_bytes; /* what it says of this process; 0: does not know it */
} kernel = {.next_handle = 0x1000, .rounding = 1};

static int kernel_control(struct rm_control *call)
{
    call->status = RM_OK;
    if (call->cmd == RM_CTRL_GPU_GET_GID_INFO) {
        struct rm_gid_info *gid = (void *)(uintptr_t)call->params;
        snprintf((char *)gid->data, sizeof(gid->data), UUID);
    } else if (call->cmd == RM_CTRL_GPU_GET_PID_INFO) {
        struct rm_pid_info_list *list = (void *)(uintptr_t)call->params;
        list->list[0].result = RM_OK;
        list->list[0].private_bytes = kernel.private_bytes;
    } else {
        call->status = RM_ERR_NOT_SUPPORTED;
    }
    return 0;
}

static int kernel_ioctl(int fd, unsigned long request, void *argument)
{
    CHECK_EQ(fd, FD);
    if (RM_REQUEST_NR(request) == RM_NR_CONTROL)
        return kernel_control(argument);
    kernel.calls++;
    if (RM_REQUEST_NR(request) == RM_NR_ALLOC) {
        struct rm_alloc64 *call = argument;
        call->status = kernel.status;
        if (!call->object)
            call->object = kernel.next_handle++;
        struct rm_memory_params *params = (void *)(uintptr_t)call->params;
        if (params)
            params->size = (params->size + kernel.rounding - 1) / kernel.rounding * kernel.rounding;
    } else if (RM_REQUEST_NR(request) == RM_NR_FREE) {
        ((struct rm_free *)argument)->status = kernel.status;
    } else if (RM_REQUEST_NR(request) == RM_NR_DUP_OBJECT) {
        ((struct rm_dup *)argument)->status = kernel.status;
    }
    kernel.status = RM_OK;
    return 0;
}

static uint32_t allocate_object(
    uint32_t client, uint32_t parent, uint32_t object, uint32_t class_id, void *params)
{
    struct rm_alloc64 call = {.client = client,
        .parent = parent,
        .object = object,
        .class_id = class_id,
        .params = (uintptr_t)params,
        .status = 0xdead};
    CHECK_EQ(rm_memory_ioctl(FD, RM_IOCTL_ALLOC64, &call, kernel_ioctl), 0);
    return call.status;
}

static uint32_t allocate(uint32_t client, uint32_t object, uint64_t bytes)
{
    struct rm_memory_params params = {.size = bytes};
    return allocate_object(client, DEVICE, object, RM_CLASS_MEMORY_LOCAL, &params);
}

static uint32_t release(uint32_t object)
{
    struct rm_free call = {.client = CLIENT, .object = object, .status = 0xdead};
    CHECK_EQ(rm_memory_ioctl(FD, RM_IOCTL_FREE, &call, kernel_ioctl), 0);
    return call.status;
}

static uint64_t own(void)
{
    return account_own_bytes(0, ACCOUNT_KINDS);
}

/* A process under a limit of 64 MiB that has opened its device as the driver does. */
static void begin(void)
{
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", scratch_path("region"), 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "64m", 1);
    setenv("LIBCUDA_LOG_LEVEL", "0", 1);
    CHECK_EQ(allocate_object(0, 0, CLIENT, RM_CLASS_CLIENT, NULL), RM_OK);
    CHECK_EQ(allocate_object(CLIENT, CLIENT, DEVICE, RM_CLASS_DEVICE, NULL), RM_OK);
    CHECK_EQ(allocate_object(CLIENT, DEVICE, SUBDEVICE, RM_CLASS_SUBDEVICE, NULL), RM_OK);
    CHECK_EQ(container_device(UUID), 0);
    kernel.calls = 0;
}

TEST("memory is charged when it is allocated and given back when it is freed")
{
    begin();
    CHECK(!rm_memory_is_active());
    CHECK_EQ(allocate(CLIENT, 0x100, 8 * MIB), RM_OK);
    CHECK(rm_memory_is_active());
    CHECK_EQ(own(), 8 * MIB);
    CHECK_EQ(release(0x100), RM_OK);
    CHECK_EQ(own(), 0);
}

TEST("over the limit the kernel is not asked and the call reports no memory")
{
    begin();
    CHECK_EQ(allocate(CLIENT, 0x100, 60 * MIB), RM_OK);
    CHECK_EQ(kernel.calls, 1);
    CHECK_EQ(allocate(CLIENT, 0x101, 5 * MIB), RM_ERR_NO_MEMORY);
    CHECK_EQ(kernel.calls, 1);
    CHECK_EQ(own(), 60 * MIB);
    CHECK_EQ(allocate(CLIENT, 0x102, UINT64_MAX), RM_ERR_NO_MEMORY);
    CHECK_EQ(allocate(CLIENT, 0x103, 4 * MIB), RM_OK);
}

TEST("what the kernel refuses leaves nothing charged")
{
    begin();
    kernel.status = RM_ERR_NO_MEMORY;
    CHECK_EQ(allocate(CLIENT, 0x100, 8 * MIB), RM_ERR_NO_MEMORY);
    CHECK_EQ(own(), 0);
    CHECK_EQ(allocate(CLIENT, 0x100, 64 * MIB), RM_OK);
}

TEST("a free that the kernel refuses leaves the memory charged")
{
    begin();
    CHECK_EQ(allocate(CLIENT, 0x100, 8 * MIB), RM_OK);
    kernel.status = RM_ERR_INVALID_ARGUMENT;
    CHECK_EQ(release(0x100), RM_ERR_INVALID_ARGUMENT);
    CHECK_EQ(own(), 8 * MIB);
    CHECK_EQ(release(0x100), RM_OK);
    CHECK_EQ(own(), 0);
}

TEST("freeing the client gives everything back")
{
    begin();
    for (uint32_t i = 0; i < 8; i++)
        CHECK_EQ(allocate(CLIENT, 0x100 + i, 2 * MIB), RM_OK);
    CHECK_EQ(own(), 16 * MIB);
    CHECK_EQ(release(CLIENT), RM_OK);
    CHECK_EQ(own(), 0);
}

TEST("the size that the kernel made of the request is what counts")
{
    begin();
    kernel.rounding = 2 * MIB;
    CHECK_EQ(allocate(CLIENT, 0x100, 1), RM_OK);
    CHECK_EQ(own(), 2 * MIB);
    CHECK_EQ(release(0x100), RM_OK);
    CHECK_EQ(own(), 0);
}

TEST("host memory and address ranges are not charged")
{
    struct rm_memory_params params = {.size = MIB, .attr = RM_MEMORY_LOCATION_PCI << 25};
    begin();
    CHECK_EQ(allocate_object(CLIENT, DEVICE, 0x100, RM_CLASS_MEMORY_LOCAL, &params), RM_OK);
    params = (struct rm_memory_params){.size = MIB, .flags = RM_MEMORY_FLAG_VIRTUAL};
    CHECK_EQ(allocate_object(CLIENT, DEVICE, 0x101, RM_CLASS_MEMORY_LOCAL, &params), RM_OK);
    CHECK_EQ(allocate_object(CLIENT, DEVICE, 0x102, RM_CLASS_MEMORY_SYSTEM, NULL), RM_OK);
    CHECK_EQ(own(), 0);
}

TEST("other devices' ioctls of the same number pass untouched")
{
    begin();
    CHECK_EQ(allocate(0xbad, 0x100, 1024 * MIB), RM_OK);
    CHECK_EQ(kernel.calls, 1);
    CHECK_EQ(own(), 0);
}

TEST("a handle that is given out again without a free that was seen replaces the old memory")
{
    begin();
    CHECK_EQ(allocate(CLIENT, 0x100, 8 * MIB), RM_OK);
    CHECK_EQ(allocate(CLIENT, 0x100, 4 * MIB), RM_OK);
    CHECK_EQ(own(), 4 * MIB);
}

TEST("memory counts as the kind that its thread allocates for")
{
    begin();
    enum account_kind former = rm_memory_set_kind(ACCOUNT_MODULE);
    CHECK_EQ(former, ACCOUNT_CONTEXT);
    CHECK_EQ(allocate(CLIENT, 0x100, 8 * MIB), RM_OK);
    rm_memory_set_kind(former);
    CHECK_EQ(account_own_bytes(0, ACCOUNT_MODULE), 8 * MIB);
    CHECK_EQ(release(0x100), RM_OK);
    CHECK_EQ(account_own_bytes(0, ACCOUNT_MODULE), 0);
}

TEST("the larger of the ledger's and the driver's figure counts")
{
    struct rm_audit audit;
    begin();
    kernel.private_bytes = 11 * MIB;
    CHECK_EQ(allocate(CLIENT, 0x100, 8 * MIB), RM_OK);
    CHECK_EQ(own(), 11 * MIB);
    CHECK_EQ(account_own_bytes(0, ACCOUNT_UNEXPLAINED), 3 * MIB);
    rm_audit_last(&audit);
    CHECK_EQ(audit.count, 1);
    CHECK_EQ(audit.ledger_bytes, 8 * MIB);
    CHECK_EQ(audit.manager_bytes, 11 * MIB);
}

TEST("a forked child begins with an empty ledger")
{
    begin();
    CHECK_EQ(allocate(CLIENT, 0x100, 40 * MIB), RM_OK);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_EQ(release(0x100), RM_OK);
        CHECK_EQ(own(), 0);
        _exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
    CHECK_EQ(own(), 40 * MIB);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
