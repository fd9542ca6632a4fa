/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that several processes or handles share counts once, and is not free before its last
 * holder lets go. */
#include "allocate.h"
#include "bed.h"

#include <fcntl.h>
#include <sys/socket.h>

#define LIMIT "4GiB"
#define SIZE (256 * MIB)

/* One message between the processes of a test. */
struct message {
    int fd; /* -1: none */
    union {
        CUipcMemHandle ipc;
        char text[64];
    } u;
};

static void send_message(int socket, const struct message *message)
{
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {(void *)&message->u, sizeof(message->u)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (message->fd >= 0) {
        header.msg_control = control;
        header.msg_controllen = sizeof(control);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &message->fd, sizeof(int));
    }
    REQUIRE(sendmsg(socket, &header, 0) == (ssize_t)sizeof(message->u));
}

static struct message receive_message(int socket)
{
    struct message message = {.fd = -1};
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&message.u, sizeof(message.u)};
    struct msghdr header = {.msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control)};
    REQUIRE(recvmsg(socket, &header, 0) == (ssize_t)sizeof(message.u));
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    if (rights && rights->cmsg_type == SCM_RIGHTS)
        memcpy(&message.fd, CMSG_DATA(rights), sizeof(int));
    return message;
}

static void tell(int socket)
{
    send_message(socket, &(struct message){.fd = -1});
}

static void wait_for(int socket)
{
    struct message message = receive_message(socket);
    if (message.fd >= 0)
        close(message.fd);
}

static uint64_t charged_to_all(void)
{
    struct vgpu_region *region = bed_region();
    uint64_t bytes = bed_region_bytes(0), lingering = 0, imported = 0;
    for (unsigned i = 0; region && i < region->slot_high; i++) {
        if ((region->slots[i].state & 3) != VGPU_SLOT_LIVE)
            continue;
        lingering += region->slots[i].usage[0].lingering;
        imported += region->slots[i].usage[0].imported;
    }
    return bytes + (lingering < imported ? lingering : imported);
}

BED_TEST("exporting before releasing does not make memory free", .limit = LIMIT)
{
    enum { COUNT = 64 };
    int fds[COUNT], count = 0;
    CUmemAllocationProp property = allocation_property(0);
    CUmemGenericAllocationHandle handle;
    bed_context(0);
    uint64_t before = allocation_charged();
    while (count < COUNT && CU(cuMemCreate)(&handle, SIZE, &property, 0) == CUDA_SUCCESS) {
        CHECK_EQ(CU(cuMemExportToShareableHandle)(
                     &fds[count++], handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
    }
    CHECK(bed_card_bytes(0) <= 4 * GIB);
    CHECK(count > 8 && count < 16);
    for (int i = 0; i < count; i++)
        close(fds[i]);
    CHECK_EQ(CU(cuMemCreate)(&handle, 2 * GIB, &property, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

static int export_to_descriptor(CUmemGenericAllocationHandle handle)
{
    int fd = -1;
    CHECK_EQ(
        CU(cuMemExportToShareableHandle)(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        CUDA_SUCCESS);
    return fd;
}

BED_TEST("a descriptor's number that serves for something else keeps no memory", .limit = LIMIT)
{
    CUmemAllocationProp property = allocation_property(0);
    CUmemGenericAllocationHandle first, second;
    bed_context(0);
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuMemCreate)(&first, 2 * GIB, &property, 0), CUDA_SUCCESS);
    int fd = export_to_descriptor(first), null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0 && null >= 0 && dup2(null, fd) == fd);
    CHECK_EQ(CU(cuMemRelease)(first), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
    close(fd);
    CHECK_EQ(CU(cuMemCreate)(&first, 2 * GIB, &property, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemCreate)(&second, SIZE, &property, 0), CUDA_SUCCESS);
    fd = export_to_descriptor(first);
    close(fd);
    int again = export_to_descriptor(second);
    CHECK_EQ(again, fd);
    CHECK_EQ(CU(cuMemRelease)(first), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before + SIZE);
    CHECK_EQ(CU(cuMemRelease)(second), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before + SIZE); /* by its descriptor */
    close(again);
    CHECK_EQ(CU(cuMemCreate)(&first, 3 * GIB + SIZE, &property, 0), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before + 3 * GIB + SIZE);
}

BED_TEST("what is exported and freed again and again counts once", .limit = LIMIT)
{
    CUmemAllocationProp property = allocation_property(0);
    CUmemGenericAllocationHandle handle;
    bed_context(0);
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(CU(cuMemCreate)(&handle, SIZE, &property, 0), CUDA_SUCCESS);
        close(export_to_descriptor(handle));
        CHECK_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
    }
    struct vgpu_region *region = bed_region();
    uint64_t exported = 0;
    for (unsigned i = 0; i < region->slot_high; i++)
        exported += region->slots[i].usage[0].exported;
    CHECK_EQ(exported, 0);
}

BED_TEST("an import in the same process does not count twice", .limit = LIMIT)
{
    CUmemAllocationProp property = allocation_property(0);
    CUmemGenericAllocationHandle handle, imported;
    int fd;
    bed_context(0);
    uint64_t before = allocation_charged();
    CHECK_EQ(CU(cuMemCreate)(&handle, SIZE, &property, 0), CUDA_SUCCESS);
    uint64_t with = allocation_charged();
    CHECK_EQ(
        CU(cuMemExportToShareableHandle)(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemImportFromShareableHandle)(
                 &imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        CUDA_SUCCESS);
    close(fd);
    CHECK_EQ(allocation_charged(), with);
    CHECK_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
    CHECK_EQ(charged_to_all(), with);
    CHECK_EQ(CU(cuMemRelease)(imported), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
}

static void open_ipc(void *argument)
{
    int socket = *(int *)argument;
    CUdeviceptr pointer;
    bed_context(0);
    uint64_t before = allocation_charged();
    tell(socket); /* a context that is being made is charged before the card holds it */
    struct message message = receive_message(socket);
    CHECK_EQ(CU(cuIpcOpenMemHandle_v2)(&pointer, message.u.ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
    tell(socket);
    wait_for(socket);
    CHECK_EQ(CU(cuIpcCloseMemHandle)(pointer), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before);
    tell(socket);
    wait_for(socket);
}

BED_TEST("memory opened by an IPC handle counts once", .limit = LIMIT)
{
    int sockets[2];
    struct message message = {.fd = -1};
    CUdeviceptr pointer;
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
    pid_t child = bed_fork(open_ipc, &sockets[1]);
    bed_context(0);
    wait_for(sockets[0]);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, SIZE), CUDA_SUCCESS);
    CHECK_EQ(CU(cuIpcGetMemHandle)(&message.u.ipc, pointer), CUDA_SUCCESS);
    uint64_t own = allocation_charged();
    send_message(sockets[0], &message);
    wait_for(sockets[0]);
    CHECK_EQ(allocation_charged(), own);
    CHECK(bed_region_bytes(0) < 2 * 530 * MIB + SIZE);
    CHECK(charged_to_all() + 16 * MIB > bed_card_bytes(0));
    tell(sockets[0]);
    wait_for(sockets[0]);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), own - SIZE);
    tell(sockets[0]);
    CHECK(bed_ended_well(child));
}

BED_TEST("what was once shared and freed does not count for what is shared later", .limit = LIMIT)
{
    enum { ROUNDS = 3 };
    int sockets[ROUNDS][2];
    pid_t children[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets[i]) == 0);
        children[i] = bed_fork(open_ipc, &sockets[i][1]);
    }
    bed_context(0);
    for (int i = 0; i < ROUNDS; i++)
        wait_for(sockets[i][0]);
    for (int i = 0; i < ROUNDS; i++) {
        int socket = sockets[i][0];
        struct message message = {.fd = -1};
        CUdeviceptr pointer;
        CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, SIZE), CUDA_SUCCESS);
        CHECK_EQ(CU(cuIpcGetMemHandle)(&message.u.ipc, pointer), CUDA_SUCCESS);
        send_message(socket, &message);
        wait_for(socket);
        size_t free, total; /* asking retires the children that have ended */
        CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
        CHECK(charged_to_all() < bed_card_bytes(0) + 16 * MIB);
        tell(socket);
        wait_for(socket);
        CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
        tell(socket);
        CHECK(bed_ended_well(children[i]));
    }
}

static void import_and_keep(void *argument)
{
    int socket = *(int *)argument;
    CUmemGenericAllocationHandle handle;
    bed_context(0);
    struct message message = receive_message(socket);
    CHECK(message.fd >= 0);
    CHECK_EQ(CU(cuMemImportFromShareableHandle)(
                 &handle, (void *)(intptr_t)message.fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        CUDA_SUCCESS);
    close(message.fd);
    tell(socket);
    wait_for(socket);
    CHECK_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
    tell(socket);
    wait_for(socket);
}

BED_TEST("memory that its owner has released counts while another process holds it", .limit = LIMIT)
{
    int sockets[2];
    struct message message;
    CUmemAllocationProp property = allocation_property(0);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr pointer;
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
    pid_t child = bed_fork(import_and_keep, &sockets[1]);
    bed_context(0);
    CHECK_EQ(CU(cuMemCreate)(&handle, 2 * GIB, &property, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemExportToShareableHandle)(
                 &message.fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        CUDA_SUCCESS);
    send_message(sockets[0], &message);
    wait_for(sockets[0]);
    close(message.fd);
    CHECK_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
    CHECK(bed_card_bytes(0) > 3 * GIB);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 2 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(bed_card_bytes(0) <= 4 * GIB);
    tell(sockets[0]);
    wait_for(sockets[0]);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 2 * GIB), CUDA_SUCCESS);
    tell(sockets[0]);
    CHECK(bed_ended_well(child));
}

BED_TEST("a dma-buf that is gone does not count beside another process's import", .limit = LIMIT)
{
    int sockets[2], fd;
    struct message message;
    CUmemAllocationProp property = allocation_property(0);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr pointer;
    (void)CU(cuMemGetHandleForAddressRange); /* a driver that is older has none */
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
    pid_t child = bed_fork(import_and_keep, &sockets[1]);
    bed_context(0);
    CHECK_EQ(CU(cuMemCreate)(&handle, GIB, &property, 0), CUDA_SUCCESS);
    message.fd = export_to_descriptor(handle);
    send_message(sockets[0], &message);
    wait_for(sockets[0]);
    close(message.fd);
    uint64_t before = charged_to_all();
    for (int i = 0; i < 32; i++) {
        CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, SIZE), CUDA_SUCCESS);
        CHECK_EQ(CU(cuMemGetHandleForAddressRange)(
                     &fd, pointer, SIZE, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
            CUDA_SUCCESS);
        close(fd);
        CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    }
    CHECK_EQ(charged_to_all(), before);
    tell(sockets[0]);
    wait_for(sockets[0]);
    tell(sockets[0]);
    CHECK(bed_ended_well(child));
}

static void own_and_die(void *argument)
{
    int socket = *(int *)argument;
    struct message message;
    CUmemAllocationProp property = allocation_property(0);
    CUmemGenericAllocationHandle handle;
    bed_context(0);
    CHECK_EQ(CU(cuMemCreate)(&handle, 2 * GIB, &property, 0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemExportToShareableHandle)(
                 &message.fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        CUDA_SUCCESS);
    send_message(socket, &message);
    wait_for(socket);
}

BED_TEST("memory whose owner is dead counts while another process holds it", .limit = LIMIT)
{
    int sockets[2];
    CUmemGenericAllocationHandle handle;
    CUdeviceptr pointer;
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) == 0);
    pid_t child = bed_fork(own_and_die, &sockets[1]);
    bed_context(0);
    struct message message = receive_message(sockets[0]);
    CHECK_EQ(CU(cuMemImportFromShareableHandle)(
                 &handle, (void *)(intptr_t)message.fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        CUDA_SUCCESS);
    close(message.fd);
    tell(sockets[0]);
    CHECK(bed_ended_well(child));
    CHECK(bed_card_bytes(0) > 2 * GIB);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 2 * GIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(bed_card_bytes(0) <= 4 * GIB);
    CHECK_EQ(CU(cuMemRelease)(handle), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 2 * GIB), CUDA_SUCCESS);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
