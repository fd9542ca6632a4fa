/* SPDX-License-Identifier: Apache-2.0 */
/* A process is killed at each instruction in turn between the doors and the region's words: its
 * peers go on, and the account is what the living hold. */
#include "allocate.h"
#include "bed.h"
#include "stepper.h"

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define LIMIT "4GiB" /* contexts take 520 MiB by the API ledger */
#define LIMIT_BYTES (4 * GIB)
#define SIZE (64 * MIB)
#define BLOCK (2 * MIB)
#define REPEATS 3 /* of an instruction in a loop, and then its 4th, 8th, 16th ... time */
#define HANG_MS 20000
#define SECONDS_MAX 40 /* where the machine is slow, what is left is left out */

/* What the process does before it is watched, and then. */
struct scene {
    void (*prepare)(void);
    void (*act)(void);
    void (*before)(void); /* in the parent, before each */
    unsigned every;       /* of the instructions outside of src/region */
    char order;           /* what the witness checks afterwards; 0: the container */
    bool own_region;      /* made by the process itself; its peers come afterwards */
};

static struct stepper_trace *trace;
static unsigned short seen[1 << 20]; /* how often an instruction has come so far */
static int to_witness[2], from_witness[2];
static int passage[2]; /* descriptors to the witness */
static pid_t exporter;
static CUdeviceptr pointer;
static CUmemGenericAllocationHandle imported;

static bool descriptor_send(int socket, int fd)
{
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr header = {.msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control)};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    *rights = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(rights), &fd, sizeof(int));
    return sendmsg(socket, &header, 0) == 1;
}

static bool descriptor_receive(int socket, int *ret_fd)
{
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte;
    struct iovec part = {&byte, 1};
    struct msghdr header = {.msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof(control)};
    if (recvmsg(socket, &header, 0) != 1 || !CMSG_FIRSTHDR(&header))
        return false;
    memcpy(ret_fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(int));
    return true;
}

/* Exactly what is left can be had, and no more; the dead hold nothing. */
static void check_container(void)
{
    size_t free, total;
    CUdeviceptr all = 0, more;
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
    uint64_t own = allocation_charged();
    CHECK_EQ(bed_region_bytes(0), own);
    CHECK(bed_card_bytes(0) <= own);
    if (!strcmp(bed_ledger(), "rm"))
        CHECK_EQ(bed_card_bytes(0), own);
    CHECK_EQ(CU(cuMemAlloc_v2)(&more, LIMIT_BYTES - own + BLOCK), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemAlloc_v2)(&all, LIMIT_BYTES - own), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemAllocManaged)(&more, 1, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemFree_v2)(all), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), own);
    CHECK(bed_region()->slot_high <= 4); /* the dead one's slot is claimed by the next */
}

/* Of memory that a dead peer exported and this process imported: the card holds it, so it counts,
 * a process that was killed while it retired the dead. */
static void check_import(void)
{
    size_t free, total;
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
    CHECK(bed_card_bytes(0) > SIZE);
    CHECK(total - free >= bed_card_bytes(0));
    CHECK_EQ(CU(cuMemRelease)(imported), CUDA_SUCCESS);
}

static void import(void)
{
    int fd = -1;
    REQUIRE(descriptor_receive(passage[1], &fd));
    REQUIRE(CU(cuMemImportFromShareableHandle)(&imported, (void *)(intptr_t)fd,
                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_SUCCESS);
    close(fd);
}

static void witness(void *argument)
{
    char order;
    (void)argument;
    bed_context(0);
    while (read(to_witness[0], &order, 1) == 1) {
        if (order == 'c')
            check_container();
        else if (order == 'i')
            import();
        else if (order == 'v')
            check_import();
        REQUIRE(write(from_witness[1], &order, 1) == 1);
    }
}

static void ask_witness(char order)
{
    struct pollfd answer = {.fd = from_witness[0], .events = POLLIN};
    REQUIRE(write(to_witness[1], &order, 1) == 1);
    REQUIRE(poll(&answer, 1, HANG_MS) == 1);
    REQUIRE(read(from_witness[0], &order, 1) == 1);
}

static void enter_alone(void *argument)
{
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", argument, 1);
    bed_context(0);
    check_container();
}

static char *own_path(void)
{
    static char path[300];
    snprintf(path, sizeof(path), "%s/own", bed_directory());
    return path;
}

/* occurrence 0: records instead. Returns the process's wait status. */
static int run_once(const struct scene *scene, uintptr_t step, unsigned occurrence)
{
    void *doors[] = {dlsym(RTLD_DEFAULT, "ioctl"), bed_cuda("cuInit"), bed_cuda("cuMemAlloc_v2"),
        bed_cuda("cuMemFree_v2"), bed_cuda("cuMemAllocManaged"),
        bed_cuda("cuDevicePrimaryCtxRetain"), bed_cuda("cuMemGetInfo_v2"), NULL};
    int status = -1;
    if (scene->before)
        scene->before();
    pid_t pid = fork();
    if (pid == 0) {
        if (scene->own_region)
            setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", own_path(), 1);
        if (scene->prepare)
            scene->prepare();
        if (occurrence)
            stepper_kill_at(step, occurrence);
        else
            stepper_record(doors, trace);
        scene->act();
        stepper_stop();
        _exit(0);
    }
    waitpid(pid, &status, 0);
    if (exporter)
        waitpid(exporter, NULL, 0);
    exporter = 0;
    return status;
}

static void check_after(const struct scene *scene)
{
    if (!scene->own_region) {
        ask_witness(scene->order ? scene->order : 'c');
        return;
    }
    CHECK(bed_ended_well(bed_fork(enter_alone, own_path())));
    unlink(own_path());
}

static bool is_chosen(
    const struct scene *scene, uintptr_t step, unsigned occurrence, unsigned *others)
{
    bool is_early = occurrence <= REPEATS || !(occurrence & (occurrence - 1));
    return is_early && (stepper_is_region(step) || (*others)++ % scene->every == 0);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void play(const struct scene *scene)
{
    unsigned killed = 0, missed = 0, chosen = 0, in_region = 0, others = 0;
    double start = seconds();
    const char *reason = stepper_prepare();
    if (reason)
        SKIP(reason);
    trace = mmap(NULL, sizeof(*trace), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(trace != MAP_FAILED && pipe(to_witness) == 0 && pipe(from_witness) == 0);
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, passage) == 0);
    pid_t peer = scene->own_region ? 0 : bed_fork(witness, NULL);
    if (peer)
        ask_witness('h');
    REQUIRE(run_once(scene, 0, 0) == 0);
    check_after(scene);
    uintptr_t lowest = UINTPTR_MAX;
    for (unsigned i = 0; i < trace->count; i++)
        lowest = trace->steps[i] < lowest ? trace->steps[i] : lowest;
    for (unsigned i = 0; i < trace->count && check_shared->failures == 0; i++) {
        uintptr_t step = trace->steps[i];
        if (!is_chosen(scene, step, ++seen[step - lowest], &others))
            continue;
        chosen++;
        if (seconds() - start > SECONDS_MAX)
            continue;
        int status = run_once(scene, step, seen[step - lowest]);
        bool hit = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        CHECK(hit || status == 0);
        killed += hit;
        missed += !hit;
        in_region += hit && stepper_is_region(step);
        check_after(scene);
        if (check_shared->failures)
            dprintf(STDOUT_FILENO, "# at instruction %u: %#lx of the first at %#lx\n", i,
                (unsigned long)step, (unsigned long)lowest);
    }
    dprintf(STDOUT_FILENO,
        "# %u instructions; %u chosen, killed at %u (%u in src/region), %u not met; %.1f s\n",
        trace->count, chosen, killed, in_region, missed, seconds() - start);
    CHECK(trace->count > 100);
    CHECK(killed > 20);
    CHECK(missed <= killed / 4);
    if (peer)
        kill(peer, SIGKILL);
}

static void have_context(void)
{
    bed_context(0);
}

static void have_memory(void)
{
    bed_context(0);
    REQUIRE(CU(cuMemAlloc_v2)(&pointer, SIZE) == CUDA_SUCCESS);
}

static void allocate(void)
{
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, SIZE), CUDA_SUCCESS);
}

static void allocate_managed(void)
{
    CHECK_EQ(CU(cuMemAllocManaged)(&pointer, SIZE, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
}

static void allocate_too_much(void)
{
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, LIMIT_BYTES - BLOCK), CUDA_ERROR_OUT_OF_MEMORY);
}

static void release(void)
{
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
}

static void enter(void)
{
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
}

BED_TEST("killed at each instruction of a linear allocation", .limit = LIMIT, .sim = "context=2MiB")
{
    play(&(struct scene){.prepare = have_context, .act = allocate, .every = 1});
}

BED_TEST("killed at each instruction of a cuMemFree", .limit = LIMIT, .sim = "context=2MiB")
{
    play(&(struct scene){.prepare = have_memory, .act = release, .every = 1});
}

BED_TEST(
    "killed at each instruction of a refused cuMemAlloc", .limit = LIMIT, .sim = "context=2MiB")
{
    play(&(struct scene){.prepare = have_context, .act = allocate_too_much, .every = 1});
}

BED_TEST("killed at each instruction of a managed one", .limit = LIMIT, .sim = "context=2MiB")
{
    play(&(struct scene){.prepare = have_context, .act = allocate_managed, .every = 1});
}

BED_TEST("killed at each instruction of the first entry", .limit = LIMIT, .sim = "context=2MiB")
{
    play(&(struct scene){.act = enter, .every = 17});
}

BED_TEST("killed at each instruction of an entry that makes the region", .limit = LIMIT,
    .sim = "context=2MiB")
{
    play(&(struct scene){.act = enter, .every = 37, .own_region = true});
}

static void hold_much(void *argument)
{
    bed_context(0);
    REQUIRE(CU(cuMemAlloc_v2)(argument, LIMIT_BYTES / 2) == CUDA_SUCCESS);
    kill(getpid(), SIGKILL);
}

static void leave_a_dead_peer(void)
{
    waitpid(bed_fork(hold_much, &pointer), NULL, 0);
}

static void allocate_much(void)
{
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, LIMIT_BYTES / 8 * 5), CUDA_SUCCESS);
}

BED_TEST("killed at each instruction of an allocation in a dead peer's place", .limit = LIMIT,
    .sim = "context=2MiB")
{
    play(&(struct scene){
        .prepare = have_context, .act = allocate_much, .before = leave_a_dead_peer, .every = 5});
}

static void export_and_wait(void *argument)
{
    CUmemAllocationProp property = allocation_property(0);
    CUmemGenericAllocationHandle handle;
    int fd;
    (void)argument;
    bed_context(0);
    REQUIRE(CU(cuMemCreate)(&handle, SIZE, &property, 0) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemExportToShareableHandle)(
                &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS);
    REQUIRE(descriptor_send(passage[0], fd));
    for (;;)
        pause();
}

static void start_exporter(void)
{
    exporter = bed_fork(export_and_wait, NULL);
    ask_witness('i');
}

static void leave_a_dead_exporter(void)
{
    siginfo_t info;
    start_exporter();
    REQUIRE(kill(exporter, SIGKILL) == 0);
    REQUIRE(waitid(P_PID, (id_t)exporter, &info, WEXITED | WNOWAIT) == 0);
}

/* It dies after this process has a slot of its own, so that its slot is retired, not claimed. */
static void see_it_die(void)
{
    bed_context(0);
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, exporter, 0), .events = POLLIN};
    REQUIRE(ended.fd >= 0 && kill(exporter, SIGKILL) == 0 && poll(&ended, 1, HANG_MS) == 1);
}

static void look(void)
{
    size_t free, total;
    CHECK_EQ(CU(cuMemGetInfo_v2)(&free, &total), CUDA_SUCCESS);
}

BED_TEST("killed at each instruction while it retires a peer whose memory others imported",
    .limit = LIMIT, .sim = "context=2MiB")
{
    play(&(struct scene){
        .prepare = see_it_die, .act = look, .before = start_exporter, .every = 3, .order = 'v'});
}

BED_TEST("killed at each instruction while it takes the slot of such a peer", .limit = LIMIT,
    .sim = "context=2MiB")
{
    play(
        &(struct scene){.act = enter, .before = leave_a_dead_exporter, .every = 499, .order = 'v'});
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
