/* SPDX-License-Identifier: Apache-2.0 */
/* A process that ends gives its memory back, one whose descriptors live on does not, and fork, exec
 * and daemonising are ordinary events. */
#include "allocate.h"
#include "bed.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define LIMIT "3GiB"
#define LIMIT_BYTES (3 * GIB)
#define SIZE (3 * GIB / 2)

extern char **environ;

/* A child that holds SIZE and tells when it does. */
struct holder {
    void (*then)(void); /* what it does with its memory; NULL: waits */
    int told[2];
    pid_t pid;
};

static struct holder *current;

static void tell(pid_t pid)
{
    REQUIRE(write(current->told[1], &pid, sizeof(pid)) == sizeof(pid));
}

static pid_t hear(const struct holder *holder)
{
    pid_t pid = -1;
    REQUIRE(read(holder->told[0], &pid, sizeof(pid)) == sizeof(pid));
    return pid;
}

static void hold(void *argument)
{
    CUdeviceptr pointer;
    current = argument;
    bed_context(0);
    REQUIRE(CU(cuMemAlloc_v2)(&pointer, SIZE) == CUDA_SUCCESS);
    if (current->then)
        current->then();
    tell(getpid());
    for (;;)
        pause();
}

static void start(struct holder *holder)
{
    REQUIRE(pipe2(holder->told, O_CLOEXEC) == 0);
    holder->pid = bed_fork(hold, holder);
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* Whether another SIZE can be had now. */
static bool is_free(void)
{
    CUdeviceptr pointer;
    CUresult result = CU(cuMemAlloc_v2)(&pointer, SIZE);
    if (result == CUDA_SUCCESS)
        CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    else
        CHECK_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(bed_card_bytes(0) <= LIMIT_BYTES);
    return result == CUDA_SUCCESS;
}

static void leave_at_once(void)
{
    tell(getpid());
    _exit(0);
}

BED_TEST("a process that exits without freeing gives its memory back", .limit = LIMIT)
{
    struct holder holder = {.then = leave_at_once};
    start(&holder);
    hear(&holder);
    waitpid(holder.pid, NULL, 0);
    bed_context(0);
    CHECK(is_free());
    CHECK(bed_region_slot(holder.pid) == NULL);
}

BED_TEST("a process that is killed gives its memory back", .limit = LIMIT)
{
    struct holder holder = {0};
    start(&holder);
    hear(&holder);
    bed_context(0);
    CHECK(!is_free());
    end(holder.pid);
    CHECK(is_free());
    CHECK(bed_region_slot(holder.pid) == NULL);
}

BED_TEST("the view forgets a killed process at once", .limit = LIMIT)
{
    size_t before, after, total;
    struct holder holder = {0};
    start(&holder);
    hear(&holder);
    bed_context(0);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&before, &total), CUDA_SUCCESS);
    end(holder.pid);
    CHECK_EQ(CU(cuMemGetInfo_v2)(&after, &total), CUDA_SUCCESS);
    CHECK(after >= before + SIZE);
}

static void churn(void *argument)
{
    CUdeviceptr pointer;
    __typeof__(cuMemAlloc_v2) *alloc = CU(cuMemAlloc_v2);
    __typeof__(cuMemFree_v2) *release = CU(cuMemFree_v2);
    (void)argument;
    bed_context(0);
    for (;;) {
        if (alloc(&pointer, 64 * MIB) == CUDA_SUCCESS)
            release(pointer);
    }
}

BED_TEST("processes killed while they allocate leave nothing behind", .limit = LIMIT)
{
    for (unsigned i = 0; i < 20; i++) {
        pid_t pid = bed_fork(churn, NULL);
        bed_sleep_ms(5 + i);
        end(pid);
    }
    bed_context(0);
    CHECK(is_free());
    CHECK_EQ(bed_region_bytes(0), allocation_charged());
}

/* A child that the holder leaves behind, with what it inherited. */
static pid_t grandchild;

static void fork_a_keeper(void)
{
    grandchild = fork();
    if (grandchild == 0) {
        for (;;)
            pause();
    }
    tell(grandchild);
}

BED_TEST("a forked child that holds the driver's descriptors keeps its dead parent's memory",
    .limit = LIMIT)
{
    struct holder holder = {.then = fork_a_keeper};
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    start(&holder);
    pid_t keeper = hear(&holder);
    hear(&holder);
    bed_context(0);
    end(holder.pid);
    CHECK(bed_card_bytes(0) > SIZE);
    CHECK(!is_free());
    CHECK(bed_region_slot(holder.pid) != NULL);
    end(keeper);
    CHECK(is_free());
    CHECK(bed_region_slot(holder.pid) == NULL);
}

/* Until the process runs `sleep`: the kernel names it when it has closed what exec closes. */
static void wait_for_sleep(pid_t pid)
{
    char path[64], name[16];
    snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    for (int looks = 0; looks < 1000; looks++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t length = read(fd, name, sizeof(name));
        close(fd);
        if (length == 6 && !memcmp(name, "sleep\n", 6))
            return;
        bed_sleep_ms(10);
    }
    CHECK(false);
}

static void spawn_another_program(void)
{
    grandchild = fork();
    if (grandchild == 0) {
        execlp("sleep", "sleep", "100", NULL);
        _exit(127);
    }
    wait_for_sleep(grandchild);
    tell(grandchild);
}

BED_TEST("a child that runs another program keeps nothing", .limit = LIMIT)
{
    struct holder holder = {.then = spawn_another_program};
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    start(&holder);
    pid_t other = hear(&holder);
    hear(&holder);
    bed_context(0);
    end(holder.pid);
    CHECK_EQ(kill(other, 0), 0);
    CHECK(is_free());
    end(other);
}

static void become_another_program(void)
{
    tell(getpid());
    execlp("sleep", "sleep", "100", NULL);
}

BED_TEST("a process that becomes another program gives its memory back", .limit = LIMIT)
{
    struct holder holder = {.then = become_another_program};
    start(&holder);
    hear(&holder);
    bed_context(0);
    wait_for_sleep(holder.pid);
    CHECK_EQ(kill(holder.pid, 0), 0);
    CHECK(is_free());
    end(holder.pid);
}

static void ask_in_child(void *argument)
{
    CUdeviceptr pointer;
    size_t free, total;
    (void)argument;
    CHECK(CU(cuMemAlloc_v2)(&pointer, MIB) != CUDA_SUCCESS);
    CHECK(CU(cuMemGetInfo_v2)(&free, &total) != CUDA_SUCCESS);
    CHECK(bed_region_slot(getpid()) == NULL || bed_region_slot(getpid())->usage[0].bytes == 0);
}

BED_TEST("a forked child gets the driver's errors and is charged nothing", .limit = LIMIT)
{
    CUdeviceptr pointer;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_SUCCESS);
    uint64_t before = bed_region_bytes(0);
    CHECK(bed_ended_well(bed_fork(ask_in_child, NULL)));
    CHECK_EQ(bed_region_bytes(0), before);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    CHECK_EQ(bed_region_bytes(0), before - GIB);
}

BED_TEST("a program started from a forked child is a process of its own", .limit = LIMIT)
{
    CUdeviceptr pointer;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, SIZE), CUDA_SUCCESS);
    char *argv[] = {bed_build_path("test/driver/hold"), "1536", "0", NULL};
    pid_t pid;
    int status = -1;
    CHECK_EQ(posix_spawn(&pid, argv[0], NULL, NULL, argv, environ), 0);
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1); /* refused */
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
    CHECK_EQ(posix_spawn(&pid, argv[0], NULL, NULL, argv, environ), 0);
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

BED_TEST("system() and popen() of a program with CUDA work", .limit = LIMIT)
{
    bed_context(0);
    uint64_t before = bed_region_bytes(0);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(system("exit 3"), 3 << 8);
    FILE *stream = popen("echo a line", "r");
    char line[64] = "";
    REQUIRE(stream != NULL && fgets(line, sizeof(line), stream));
    CHECK_STR(line, "a line\n");
    CHECK_EQ(pclose(stream), 0);
    CHECK_EQ(bed_region_bytes(0), before);
    CHECK(!bed_stderr()[0] || bed_stderr_lines("API ledger") == 1);
}

static bool stop;

static void *allocate_and_free(void *argument)
{
    CUdeviceptr pointer;
    CUcontext context = argument;
    CU(cuCtxSetCurrent)(context);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        if (CU(cuMemAlloc_v2)(&pointer, 4 * MIB) == CUDA_SUCCESS)
            CU(cuMemFree_v2)(pointer);
    }
    return NULL;
}

BED_TEST("a fork in the midst of other threads' allocations leaves no lock behind", .limit = LIMIT)
{
    pthread_t threads[4];
    CUcontext context;
    CUdeviceptr pointer;
    __typeof__(cuMemAlloc_v2) *alloc = CU(cuMemAlloc_v2);
    bed_context(0);
    CHECK_EQ(CU(cuCtxGetCurrent)(&context), CUDA_SUCCESS);
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_create(&threads[i], NULL, allocate_and_free, context) == 0);
    for (int i = 0; i < 100; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(30); /* a hang ends by SIGALRM */
            (void)alloc(&pointer, GIB);
            _exit(0);
        }
        CHECK(bed_ended_well(pid));
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

static void close_all(void)
{
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
}

static void daemonise_first(void *argument)
{
    CUdeviceptr pointer;
    (void)argument;
    close_all();
    setsid();
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, LIMIT_BYTES), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_SUCCESS);
    CHECK(allocation_charged() > GIB);
}

BED_TEST("a process that closes all descriptors before CUDA is limited", .limit = LIMIT)
{
    CHECK(bed_ended_well(bed_fork(daemonise_first, NULL)));
    bed_context(0);
    CHECK(is_free());
}

static int region_descriptor(void)
{
    struct stat region, status;
    REQUIRE(stat(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), &region) == 0);
    for (int fd = 3; fd < 1024; fd++) {
        if (fstat(fd, &status) == 0 && status.st_ino == region.st_ino &&
            status.st_dev == region.st_dev)
            return fd;
    }
    return -1;
}

/* The driver's descriptors are gone too; what its calls answer then is its own business. */
static void daemonise_afterwards(void *argument)
{
    CUdeviceptr pointer;
    struct stat before, after;
    (void)argument;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_SUCCESS);
    int fd = region_descriptor();
    CHECK(fd >= 0);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close_all();
    /* The number now names a file of the program's. */
    REQUIRE(dup2(open("/proc/self/exe", O_RDONLY), fd) == fd);
    REQUIRE(fstat(fd, &before) == 0);
    (void)CU(cuMemAlloc_v2)(&pointer, 4 * MIB);
    (void)CU(cuMemFree_v2)(pointer);
    (void)CU(cuMemAlloc_v2)(&pointer, LIMIT_BYTES);
    CHECK(allocation_charged() <= LIMIT_BYTES);
    CHECK_EQ(fstat(fd, &after), 0);
    CHECK(before.st_ino == after.st_ino && before.st_dev == after.st_dev);
}

BED_TEST("a process that closes all descriptors after CUDA goes on, and its files are left alone",
    .limit = LIMIT)
{
    CHECK(bed_ended_well(bed_fork(daemonise_afterwards, NULL)));
    bed_context(0);
    CHECK(is_free());
}

BED_TEST("a process whose slot was taken brings all it holds to a new one", .limit = LIMIT)
{
    CUdeviceptr first, second;
    bed_context(0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&first, GIB), CUDA_SUCCESS);
    uint64_t before = allocation_charged();
    struct vgpu_slot *slot = (struct vgpu_slot *)bed_region_slot(getpid());
    REQUIRE(slot != NULL);
    __atomic_store_n(&slot->state, slot->state >> 32 << 32 | VGPU_SLOT_FREE, __ATOMIC_SEQ_CST);
    CHECK_EQ(bed_region_bytes(0), 0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&second, 256 * MIB), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before + 256 * MIB);
    CHECK_EQ(CU(cuMemFree_v2)(first), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(second), CUDA_SUCCESS);
    CHECK_EQ(allocation_charged(), before - GIB);
}

BED_TEST("a process goes on when its region's file is removed", .limit = LIMIT)
{
    CUdeviceptr pointer;
    bed_context(0);
    CHECK_EQ(unlink(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE")), 0);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, LIMIT_BYTES), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, GIB), CUDA_SUCCESS);
    CHECK_EQ(CU(cuMemFree_v2)(pointer), CUDA_SUCCESS);
}

static void see_total(void *argument)
{
    size_t total = 0;
    setenv("CUDA_DEVICE_MEMORY_LIMIT", argument, 1);
    CHECK_EQ(CU(cuInit)(0), CUDA_SUCCESS);
    CHECK_EQ(CU(cuDeviceTotalMem_v2)(&total, 0), CUDA_SUCCESS);
    CHECK_EQ(total, GIB);
}

BED_TEST("a container that starts anew with another limit has the new one", .limit = LIMIT)
{
    struct holder holder = {0};
    start(&holder);
    hear(&holder);
    end(holder.pid);
    CHECK(bed_ended_well(bed_fork(see_total, "1GiB")));
    CHECK(bed_ended_well(bed_fork(see_total, "1024m")));
}

BED_TEST("sixty-four processes at once find their places", .limit = "64GiB", .sim = "context=64MiB")
{
    pid_t pids[64];
    int gate[2];
    char wait;
    REQUIRE(pipe(gate) == 0);
    for (int i = 0; i < 64; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            CUdeviceptr pointer;
            close(gate[1]);
            (void)!read(gate[0], &wait, 1);
            bed_context(0);
            CHECK_EQ(CU(cuMemAlloc_v2)(&pointer, 64 * MIB), CUDA_SUCCESS);
            CHECK(bed_region_slot(getpid()) != NULL);
            _exit(0);
        }
    }
    close(gate[1]);
    for (int i = 0; i < 64; i++)
        CHECK(bed_ended_well(pids[i]));
    bed_context(0);
    CHECK_EQ(bed_card_bytes(0), 64 * MIB);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
